"""Checks of bad input: one shape of refusal, in plain words, for whatever a person gives."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from backends.contract import InputError, Method, Upload
from backends.validation import validate
from tests.contract.running import cheap, refusal, run, run_for
from tests.contract.values import WRONG_TYPES, awkward, others, refused, sample_file

# Ours speaks; a library's words, addresses and paths of the server never reach a person.
FOREIGN = re.compile(r"pydantic|traceback|https?://|File \"|site-packages|/(home|usr|etc|tmp|root)/|<class|object at 0x|validation error", re.IGNORECASE)
WORDS_LIMIT = 400
FUZZ_EXAMPLES = 40
AWKWARD_S = 0.6  # a run at the end of a range may be long; what breaks, breaks early

# The same values each time, and no search for a smaller one: a check must end in its time.
FUZZ: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "phases": [Phase.generate],
    "suppress_health_check": list(HealthCheck),
}

anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=40), st.binary(max_size=40), st.sampled_from(WRONG_TYPES)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=6,
)


def assert_plain(error: InputError, fields: Any, echoed: Any = None) -> None:
    """The one shape: a known field, a problem and a remedy, each one line of our own words (what the person gave may be quoted)."""
    assert error.field in fields, f"{error} names the field {error.field!r}"
    for part in (error.problem, error.remedy):
        assert part.strip(), f"{error!r} has an empty part"
        assert part.isprintable(), f"not one printable line: {part!r}"
        assert len(part) <= WORDS_LIMIT, f"{len(part)} characters: {part[:80]}..."
        ours = part.replace(echoed, "") if isinstance(echoed, str) and echoed else part
        found = FOREIGN.search(ours)
        assert not found or (isinstance(echoed, str) and found[0].lower() in echoed.lower()), f"foreign words {found and found[0]!r} in {part!r}"


def check_bad_values_are_refused(method: Method) -> None:
    for field in method.Params.model_fields:
        for value in refused(method.Params, field):
            error = refusal(method.Params, {field: value})
            assert error is not None, f"{field} took {_short(value)}"
            assert error.field == field, f"a bad {field} was reported at {error.field}: {error}"
            assert_plain(error, (field,), value if isinstance(value, str) and len(value) < 100 else None)


def check_unknown_field_is_refused(method: Method) -> None:
    for field in method.Params.model_fields:
        error = refusal(method.Params, {field + "x": 1})
        assert error is not None, f"{field}x was taken"
        assert_plain(error, (field + "x",))
        assert "did you mean" in error.remedy, f"the refusal of {field}x names no near control: {error}"


def check_awkward_values_run_or_are_refused(method: Method) -> None:
    """What passes validation is run: a method's own refusals have the same shape."""
    fields = method.Params.model_fields
    for field in fields:
        for start in _starts(method, field):
            for value in awkward(method.Params, field):
                try:
                    run_for(method, validate(method.Params, {**start, field: value}), AWKWARD_S)
                except InputError as error:
                    assert_plain(error, fields, value if isinstance(value, str) else None)


def _starts(method: Method, field: str) -> Iterator[dict[str, Any]]:
    """The cheap params, or for files and text those that make use of a file: names of columns mean nothing elsewhere."""
    using = uses_file(method) if field in text_and_file_fields(method) else None
    yield dict(method.card.cheap) if using is None else using


def text_and_file_fields(method: Method) -> list[str]:
    from app.controls import kind_of

    return [name for name in method.Params.model_fields if kind_of(method.Params, name)[0] in ("text", "upload")]


def upload_fields(method: Method) -> dict[str, str]:
    """The fields that take a file, and the kind of file."""
    from app.controls import kind_of

    kinds = {name: kind_of(method.Params, name) for name in method.Params.model_fields}
    return {name: str(node.get("control", "csv")) for name, (kind, node, _) in kinds.items() if kind == "upload"}


_USING: dict[int, tuple[Method, dict[str, Any] | None]] = {}


def uses_file(method: Method) -> dict[str, Any] | None:
    """Params under which a file matters: the link to one (name and hash, no bytes) is refused at its field. None without one."""
    if id(method) not in _USING:
        _USING[id(method)] = method, _find_use(method)
    return _USING[id(method)][1]


def _find_use(method: Method) -> dict[str, Any] | None:
    for field, kind in upload_fields(method).items():
        link = {"name": "a.csv", "sha256": "0" * 64}
        for extra in _choices(method):
            try:
                run(method, cheap(method, **extra, **{field: link}))
            except InputError as error:
                if error.field == field:
                    return {**method.card.cheap, **extra, field: sample_file(kind)}
    return None


def _choices(method: Method) -> Iterator[dict[str, Any]]:
    from app.controls import kind_of

    yield {}
    for name in method.Params.model_fields:
        if kind_of(method.Params, name)[0] in ("choice", "flag"):
            # A person's own file is the last choice of a list wherever we have seen one.
            yield from ({name: value} for value in reversed(others(method.Params, name, method.card.cheap.get(name))))


def check_files_come_as_bytes_only(method: Method) -> None:
    """A link that names a file is refused in words at its field; the file itself is taken."""
    fields = upload_fields(method)
    if not fields:
        return
    using = uses_file(method)
    assert using is not None, f"no choice makes use of {', '.join(fields)}, or a link without the file was not refused at that field"
    # A method may want another table than our sample, and says so.
    with contextlib.suppress(InputError):
        run(method, validate(method.Params, using))
    for field in fields:
        assert isinstance(getattr(validate(method.Params, {field: sample_file()}), field), Upload)


def check_fuzzed_validation(method: Method) -> None:
    """Whatever is given: Params or InputError, never anything else."""
    fields = list(method.Params.model_fields)

    @settings(max_examples=FUZZ_EXAMPLES * len(fields), **FUZZ)
    @given(st.sampled_from(fields), anything)
    def try_one(field: str, value: Any) -> None:
        try:
            params = validate(method.Params, {field: value})
        except InputError as error:
            assert_plain(error, fields, value if isinstance(value, str) else None)
        else:
            again = validate(method.Params, dict(params))
            assert again == params, f"{params!r} is not a fixed point of validation"

    try_one()


def _short(value: Any) -> str:
    try:
        return repr(value)[:60]
    except ValueError:  # Python refuses to write out a very long whole number
        return "a very long number"


CHECKS: tuple[Any, ...] = tuple(value for name, value in list(globals().items()) if name.startswith("check_"))
