"""Checks of a running method: what it gives, that it repeats, and that it leaves everything else alone."""

from __future__ import annotations

import contextlib
import itertools
import json
import pickle
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from backends.contract import Frame, InputError, Method, Params
from backends.runtime import memo
from backends.store import RUN_LIMIT_BYTES, FrameKeeper
from backends.validation import validate
from tests.contract.input_checks import upload_fields, uses_file
from tests.contract.running import (
    CHEAP_SECONDS,
    HANG_FACTOR,
    LOAD_MARGIN_S,
    SIGN_OF_LIFE_S,
    Background,
    Outcome,
    cheap,
    data_keys,
    exact,
    fresh_memo,
    modules_of,
    outcome,
    reference,
    repeatable,
    run,
    same_values,
)
from tests.contract.values import others

MADE_BY = {"model", "data", "size", "device"}
PLAIN = (float, int, str, bool, type(None))
RUN_LIMIT_S = HANG_FACTOR * CHEAP_SECONDS + 20
FIRST_FRAME_S = 1.0


# ------------------------------------------------------------------------------------------------ what a run gives


def check_cheap_params_end(method: Method) -> None:
    """A hang guard at ten times the stated second, not a bar."""
    seconds = reference(method).seconds
    print(f"{method.card.slug}: cheap params {seconds:.2f} s, stated {CHEAP_SECONDS:g} s")
    assert seconds <= HANG_FACTOR * CHEAP_SECONDS


def check_first_frame_and_sign_of_life(method: Method) -> None:
    """The first frame within a second after loading, then a sign of life (a frame, a message, a check) each second."""
    result = reference(method)
    assert result.first_frame_s <= FIRST_FRAME_S + LOAD_MARGIN_S, f"the first frame came after {result.first_frame_s:.1f} s"
    gaps = np.diff([0.0, *result.signs, result.seconds])
    assert gaps.max() <= SIGN_OF_LIFE_S + LOAD_MARGIN_S, f"{gaps.max():.1f} s without frame, message or check()"


def check_progress_rises_to_one(method: Method) -> None:
    assert_progress(reference(method).frames)


def assert_progress(frames: tuple[Frame, ...]) -> None:
    progress = [f.progress for f in frames]
    assert all(b >= a for a, b in itertools.pairwise(progress)), f"progress fell: {progress}"
    assert progress[-1] == 1, f"progress ended at {progress[-1]}"


def check_metrics_are_declared_and_plain(method: Method) -> None:
    for frame in reference(method).frames:
        assert_metrics(method, frame)


def assert_metrics(method: Method, frame: Frame) -> None:
    unknown = set(frame.metrics) - set(method.card.metrics)
    assert not unknown, f"the frame has metrics that the card does not: {sorted(unknown)}"
    for name, value in frame.metrics.items():
        # numpy's numbers pass for floats but not through every JSON writer
        assert type(value) in PLAIN, f"{name} is a {type(value).__name__}, not a plain number, text, bool or None"
        assert not isinstance(value, float) or np.isfinite(value), f"{name} is {value}"


def check_last_frame_has_every_metric(method: Method) -> None:
    last = reference(method).last
    missing = set(method.card.metrics) - set(last.metrics)
    assert not missing, f"the last frame lacks {sorted(missing)}; an undefined metric is None, and the message says why"
    undefined = [n for n, v in last.metrics.items() if v is None]
    assert not undefined or last.message.strip(), f"{undefined} are undefined and the message is empty"


def check_every_frame_says_what_made_it(method: Method) -> None:
    for number, frame in enumerate(reference(method).frames):
        made_by = frame.data.get("made_by")
        assert isinstance(made_by, dict), f"frame {number}: data['made_by'] must name {sorted(MADE_BY)}, it is {made_by!r}"
        assert set(made_by) >= MADE_BY, f"frame {number}: data['made_by'] must name {sorted(MADE_BY)}, it is {made_by!r}"
        empty = [k for k in MADE_BY if made_by[k] in (None, "")]
        assert not empty, f"frame {number}: made_by leaves {empty} empty"


def check_frames_survive_pickle_and_json(method: Method) -> None:
    frames = reference(method).frames
    for frame in (frames[0], frames[len(frames) // 2], frames[-1]):
        again = pickle.loads(pickle.dumps(frame))
        assert (again.metrics, data_keys(again)) == (frame.metrics, data_keys(frame)), "a frame changes by pickling"
        back = Frame.from_json(json.loads(json.dumps(frame.to_json(), allow_nan=False)))
        assert back.progress == frame.progress
        assert back.message == frame.message
        assert dict(back.metrics) == dict(frame.metrics)
        changed = [k for k in frame.data if not same_values(frame.data[k], back.data.get(k))]
        assert not changed, f"{changed} change on the way through JSON"


def check_frames_are_whole_and_own_their_data(method: Method) -> None:
    """Each frame is a state of its own: a later step must not change what an earlier frame held."""
    given: list[tuple[Frame, dict[str, str]]] = []
    context_frames = _raw_frames(method)
    for frame in context_frames:
        given.append((frame.sealed(), data_keys(frame)))
    for frame, keys in given:
        assert data_keys(frame) == keys, "a sealed frame changed afterwards: its data holds something that is not copied (an object, a generator)"


def _raw_frames(method: Method) -> Iterator[Frame]:
    from tests.contract.running import context_of

    params = cheap(method)
    yield from method.run(params, context_of(method, params))


def check_stored_run_is_small(method: Method) -> None:
    assert_stored_size(reference(method).frames)


def assert_stored_size(frames: tuple[Frame, ...]) -> None:
    keeper = FrameKeeper()
    for frame in frames:
        keeper.add(frame)
    kept = keeper.frames()
    size = len(pickle.dumps(frames[-1], protocol=5))
    assert kept, f"the last frame alone has {size:,} bytes, above the {RUN_LIMIT_BYTES:,} of a stored run"
    assert kept[-1] is frames[-1]
    assert sum(len(pickle.dumps(f, protocol=5)) for f in kept) <= RUN_LIMIT_BYTES


# ------------------------------------------------------------------------------------------------------ it repeats


def check_equal_seed_equal_result(method: Method) -> None:
    params = cheap(method)
    if not repeatable(method, params):
        return
    with fresh_memo():
        again = run(method, params)
    assert_equal(method, reference(method).last, again.last, "a second run with the same seed")


def check_warm_store_changes_nothing(method: Method) -> None:
    """Results do not depend on what was run before: an empty store of intermediate results, one of other params, one of the same."""
    params = cheap(method)
    if not repeatable(method, params):
        return
    with fresh_memo():
        for changes in _neighbours(method):
            outcome(method, {**method.card.cheap, **changes})
        warm = run(method, params)
        warmer = run(method, params)
    assert_equal(method, reference(method).last, warm.last, "a run after other runs")
    assert_equal(method, reference(method).last, warmer.last, "a run after itself")


def _neighbours(method: Method) -> list[dict[str, Any]]:
    live = [f for f in method.Params.model_fields if _extra(method.Params, f).get("live")]
    return [{"seed": method.card.cheap.get("seed", 0) + 1}, *({f: v} for f in live for v in others(method.Params, f, getattr(cheap(method), f))[:1])]


def check_other_seed_other_result(method: Method) -> None:
    """Where the seed is not marked inert, randomness is claimed: another seed gives another result."""
    first = Outcome(None, exact(method, reference(method).last), data_keys(reference(method).last))
    keys = stable_keys(method)
    inert = bool(_extra(method.Params, "seed").get("inert"))
    seeds = (method.card.cheap.get("seed", 0) + step for step in (1, 2, 3))
    differs = any(outcome(method, {**method.card.cheap, "seed": seed}).differs(first, keys) for seed in seeds)
    assert differs or inert, "three other seeds give the same result; mark the seed inert, with the reason"
    assert not (differs and inert), "the seed is marked inert and changes the result"


def check_every_control_matters(method: Method) -> None:
    """Another value of a control gives other metrics, other data or a refusal, unless it is marked inert."""
    keys = stable_keys(method)
    known: dict[str, Outcome] = {}

    def of(values: dict[str, Any]) -> Outcome | None:
        try:
            name = memo.content_key(validate(method.Params, values))
        except InputError:
            return None
        if name not in known:
            known[name] = outcome(method, values)
        return known[name]

    idle, false_claims = [], []
    for field in method.Params.model_fields:
        if field == "seed":
            continue
        inert = _extra(method.Params, field).get("inert")
        matters = _matters(method, field, of, keys, only_cheap=bool(inert))
        if not matters and not inert:
            idle.append(field)
        if matters and inert:
            false_claims.append(field)
    assert not idle, f"{', '.join(idle)}: no value tried changes anything; mark a control inert, with the reason, or remove it"
    assert not false_claims, f"{', '.join(false_claims)}: marked inert, yet the result changes"


def _matters(method: Method, field: str, of: Any, keys: set[str], *, only_cheap: bool) -> bool:
    reference_keys = data_keys(reference(method).last).keys()
    for start in _settings_to_try(method, field, only_cheap):
        before = of(start)
        if before is None:
            continue
        now = getattr(validate(method.Params, start), field)
        for value in others(method.Params, field, now)[:3]:
            after = of({**start, field: value})
            if after is None:
                continue
            if after.differs(before, keys):
                return True
            elsewhere = {k for k in before.data.keys() & after.data.keys() if k not in reference_keys}
            moved = {k for k in elsewhere if before.data[k] != after.data[k]}
            if moved and any(before.data[k] == outcome(method, start).data.get(k) for k in moved):  # what carries a time moves by itself
                return True
    return False


def _settings_to_try(method: Method, field: str, only_cheap: bool) -> Iterator[dict[str, Any]]:
    """The cheap params first; then with a file, then with each other choice: many controls belong to one choice only."""
    from app.controls import kind_of

    cheap_values = dict(method.card.cheap)
    yield cheap_values
    if only_cheap:
        return
    using = uses_file(method) if upload_fields(method) else None
    if using is not None and field not in upload_fields(method):
        yield using
    elif using is not None:
        yield {k: v for k, v in using.items() if k != field}
    for name in method.Params.model_fields:
        if name != field and kind_of(method.Params, name)[0] in ("choice", "flag", "range"):
            for value in others(method.Params, name, getattr(cheap(method), name)):
                yield {**cheap_values, name: value}


def stable_keys(method: Method) -> set[str]:
    """The names of the data that repeat: what carries a time, or echoes the params, says nothing about an effect."""
    first = data_keys(reference(method).last)
    second = data_keys(run(method, cheap(method)).last)
    return {k for k in first if first[k] == second.get(k) and k != "made_by"}


def check_live_run_equals_full_run(method: Method) -> None:
    """One frame, with the metrics that a full run of the same params ends with."""
    for field in method.Params.model_fields:
        if not _extra(method.Params, field).get("live"):
            continue
        for value in others(method.Params, field, getattr(cheap(method), field))[:3]:
            params = cheap(method, **{field: value})
            with fresh_memo():
                full = run(method, params)
            with fresh_memo():
                run(method, cheap(method))
                live = run(method, params, live=field)
            assert len(live.frames) == 1, f"{field}={value!r}: a live run gives one frame, not {len(live.frames)}"
            assert live.last.progress == 1
            if repeatable(method, params):
                assert_equal(method, full.last, live.last, f"the live run of {field}={value!r} against the full run")


def check_interleaved_runs_equal_runs_in_a_row(method: Method) -> None:
    seed = method.card.cheap.get("seed", 0)
    both = [cheap(method, seed=seed), cheap(method, seed=seed + 1)]
    if not all(repeatable(method, p) for p in both):
        return
    with fresh_memo():
        in_a_row = [run(method, p).last for p in both]
    with fresh_memo():
        # Each waits for the other after its first frame, so that neither is over before the other has begun.
        barrier = threading.Barrier(2)
        together = [Background(method, p, on_frame=lambda number: _meet(barrier) if number == 0 else None).start() for p in both]
        last = [b.result(2 * RUN_LIMIT_S) for b in together]
    for alone, beside in zip(in_a_row, last, strict=True):
        assert_equal(method, alone, beside, "a run beside another one")


def _meet(barrier: threading.Barrier) -> None:
    with contextlib.suppress(threading.BrokenBarrierError):  # the other one waits for a value that this one is making
        barrier.wait(5.0)


def assert_equal(method: Method, a: Frame, b: Frame, what: str) -> None:
    left, right = exact(method, a), exact(method, b)
    wrong = {n: (left.get(n), right.get(n)) for n in left.keys() | right.keys() if left.get(n) != right.get(n)}
    assert not wrong, f"{what} gives other exact metrics: {wrong}"


def _extra(model: type[Params], field: str) -> dict[str, Any]:
    extra = model.model_fields[field].json_schema_extra
    return extra if isinstance(extra, dict) else {}


# --------------------------------------------------------------------------------------- it leaves everything alone


def check_inputs_are_unchanged(method: Method) -> None:
    params = cheap(method)
    before = pickle.dumps(params)
    run(method, params)
    assert pickle.dumps(params) == before, "the run changed its params"


def check_no_module_state_changes(method: Method) -> None:
    reference(method)
    before = module_state(method)
    with fresh_memo():
        run(method, cheap(method, seed=method.card.cheap.get("seed", 0) + 1))
    after = module_state(method)
    changed = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
    assert not changed, f"the run changed {', '.join(changed)}"


def module_state(method: Method) -> dict[str, str]:
    """A fingerprint of each global, and each class attribute, of the method's own modules."""
    state: dict[str, str] = {}
    for module in modules_of(method):
        for name, value in list(vars(module).items()):
            if name.startswith("__"):
                continue
            state[f"{module.__name__}.{name}"] = _fingerprint(value)
            if isinstance(value, type) and value.__module__ == module.__name__:
                for key, inner in list(vars(value).items()):
                    if not key.startswith("_abc") and not (key.startswith("__") and key.endswith("__")):
                        state[f"{module.__name__}.{name}.{key}"] = _fingerprint(inner)
    return state


def _fingerprint(value: Any) -> str:
    if isinstance(value, type) or callable(value):
        return f"object {id(value)}"
    try:
        return memo.content_key(value if not hasattr(value, "__dict__") else (type(value).__qualname__, vars(value)))
    except Exception:  # noqa: BLE001 - what does not pickle is compared by identity
        return f"object {id(value)}"


def check_global_random_state_is_untouched(method: Method) -> None:
    reference(method)
    # Moved on by one draw: a run that seeds them as the last one did would otherwise leave them as it found them.
    random.random()
    np.random.random()  # noqa: NPY002 - the state that is watched
    before = _random_state()
    with fresh_memo():  # what is already stored would not be drawn again
        run(method, cheap(method))
    touched = [name for name, state in _random_state().items() if before.get(name, state) != state]
    assert not touched, f"the run draws from the global random state of {', '.join(touched)}; use context.rng and context.torch_generator"


def _random_state() -> dict[str, bytes]:
    state = {"random": pickle.dumps(random.getstate()), "numpy.random": pickle.dumps(np.random.get_state())}  # noqa: NPY002 - it is watched, not used
    if "torch" in sys.modules:
        state["torch"] = sys.modules["torch"].get_rng_state().numpy().tobytes()
    return state


CHECKS: tuple[Any, ...] = tuple(value for name, value in list(globals().items()) if name.startswith("check_"))
