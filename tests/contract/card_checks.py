"""Checks of what a method says without running: its card, its params, their controls."""

from __future__ import annotations

import ast
import functools
import pickle
import re
from pathlib import Path
from typing import Any

import gradio as gr

from app import controls
from app.controls import kind_of
from app.render import claim_params
from backends import registry
from backends.contract import ContextSpec, InputError, Method, Params, Upload
from backends.registry import THEMES
from backends.runtime import folders
from backends.validation import validate
from tests.contract.values import described, legal

TAKEN_BY_GRADIO = ("view", "deep_link")
EXTRA_KEYS = {"unit", "control", "scale", "live", "group", "advanced", "private", "lines", "labels", "inert", "slider", "accept", "format", "cleared_by"}
SENTENCE_END = re.compile(r"[.!?](\s|$)")
EXERCISE_STEPS = 3


def check_card_is_complete(method: Method) -> None:
    card = method.card
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", card.slug), f"the slug {card.slug!r} is not lower case with hyphens"
    assert card.theme in THEMES, f"{card.theme!r} is no theme"
    for name in ("title", "aha", "how", "reconstructed"):
        assert getattr(card, name).strip(), f"the card's {name} is empty"
    assert all((card.paper.title, card.paper.authors)), "the paper has no title or no authors"
    assert card.paper.url.startswith("https://"), f"the paper's address {card.paper.url!r} does not begin with https://"


def check_aha_is_one_sentence(method: Method) -> None:
    aha = method.card.aha.strip()
    ends = len(SENTENCE_END.findall(aha))
    assert (aha[-1] in ".!?", ends, "\n" in aha) == (True, 1, False), f"not one sentence: {aha!r}"


def check_metrics_are_explained(method: Method) -> None:
    assert method.card.metrics, "the card names no metric"
    for name, metric in method.card.metrics.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name), f"the metric {name!r} is not snake_case"
        assert metric.unit.strip(), f"{name} has no unit; where there is none, say what it is (share, count, ratio)"
        assert metric.meaning.strip(), f"{name} has no meaning"


def check_presets(method: Method) -> None:
    presets = method.card.presets
    assert presets, "the card has no preset"
    names = [p.name for p in presets]
    assert len(set(names)) == len(names), f"two presets share a name: {names}"
    assert any(p.fails for p in presets), "no preset shows where the method fails"
    for preset in presets:
        assert preset.title.strip(), f"the preset {preset.name} has no title"
        assert preset.seconds > 0, f"the preset {preset.name} states no seconds"
        validate(method.Params, preset.params)


def check_default_preset_is_the_default(method: Method) -> None:
    assert not method.card.presets[0].fails, "the first preset is the default and must work"
    first = validate(method.Params, method.card.presets[0].params)
    assert first == method.Params(), "the first preset differs from the defaults of Params()"


def check_exercise(method: Method) -> None:
    steps = method.card.exercise
    assert len(steps) == EXERCISE_STEPS, f"the exercise has {len(steps)} steps, not {EXERCISE_STEPS}"
    for step in steps:
        method.card.preset(step.preset)
        assert step.question.strip().endswith("?") or "?" in step.question, f"no question: {step.question!r}"
        assert step.answer.strip(), f"no answer to {step.question!r}"


def check_claims_name_preset_and_metric(method: Method) -> None:
    names = [c.name for c in method.card.claims]
    assert len(set(names)) == len(names), f"two claims share a name: {names}"
    for claim in method.card.claims:
        method.card.preset(claim.preset)
        assert claim.metric in method.card.metrics, f"the claim {claim.name} names the metric {claim.metric}, which the card lacks"
        assert claim.tolerance > 0, f"the claim {claim.name} has no tolerance"
        assert all(t.strip() for t in (claim.text, claim.setting, claim.source)), f"the claim {claim.name} lacks its text, setting or source"
        claim_params(method.card, method.Params, claim.name)


def check_defaults_are_within_bounds(method: Method) -> None:
    method.Params()  # validate_default=True: raises for a default outside its bounds
    validate(method.Params, method.card.cheap)
    for name in method.Params.model_fields:
        default = getattr(method.Params(), name)
        given = validate(method.Params, {name: default})
        assert getattr(given, name) == default, f"{name} does not take its own default {default!r}"


def check_params_are_frozen_and_closed(method: Method) -> None:
    config = method.Params.model_config
    assert issubclass(method.Params, Params), "Params must derive from backends.contract.Params"
    kept = {key: config.get(key) for key in ("frozen", "extra", "allow_inf_nan")}
    assert kept == {"frozen": True, "extra": "forbid", "allow_inf_nan": False}, f"the base class's rules are changed: {kept}"
    assert "seed" in method.Params.model_fields


def check_every_field_is_described(method: Method) -> None:
    for name, info in method.Params.model_fields.items():
        assert (info.description or "").strip(), f"{name} has no description"
        assert not info.is_required(), f"{name} has no default"


def check_every_field_has_bounds(method: Method) -> None:
    for name in method.Params.model_fields:
        assert described(method.Params, name), f"{name} has neither bounds nor a Literal nor a max_length"


def check_field_names(method: Method) -> None:
    for name in method.Params.model_fields:
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name), f"{name} does not begin with a letter"
        assert name not in TAKEN_BY_GRADIO, f"{name} is a name of Gradio's own"


def check_extra_keys(method: Method) -> None:
    for name, info in method.Params.model_fields.items():
        extra = info.json_schema_extra
        assert extra is None or isinstance(extra, dict), f"{name}: json_schema_extra must be a dict"
        unknown = set(extra or {}) - EXTRA_KEYS
        assert not unknown, f"{name} has the unknown keys {sorted(unknown)}; known are {sorted(EXTRA_KEYS)}"
        others = set(method.Params.model_fields) - {name}
        assert set((extra or {}).get("cleared_by", ())) <= others, f"{name} is cleared by what is no other field"
        inert = (extra or {}).get("inert")
        assert inert is None or (isinstance(inert, str) and len(inert.split()) >= 3), f"{name} is inert without a reason in words"


def check_every_field_has_a_control(method: Method) -> None:
    for name in method.Params.model_fields:
        kind_of(method.Params, name)  # raises TypeError for what the table does not hold


def check_controls_round_trip(method: Method) -> None:
    with gr.Blocks(analytics_enabled=False):
        built = [controls.build(method, name) for name in method.Params.model_fields]  # type: ignore[arg-type]
    for control in built:
        for value in legal(method.Params, control.field):
            if isinstance(value, Upload):
                continue  # a file travels by Gradio's upload folder, never by value
            try:
                given = getattr(validate(method.Params, {control.field: value}), control.field)
            except InputError:
                continue  # the schema says less than the model's own validators
            back = getattr(validate(method.Params, {control.field: control.read(control.write(given))}), control.field)
            assert back == given, f"{control.field}: {given!r} came back from its control as {back!r}"


def check_params_pickle(method: Method) -> None:
    for params in (method.Params(), validate(method.Params, method.card.cheap)):
        assert pickle.loads(pickle.dumps(params)) == params, f"{params!r} does not survive pickling"
        spec = ContextSpec(params.seed, "cpu", "a")
        assert pickle.loads(pickle.dumps(spec)) == spec


def check_method_has_version_and_weight(method: Method) -> None:
    assert isinstance(method, Method), "card, Params, version, weight and run are needed"
    assert isinstance(method.version, str)
    assert method.version, "the version is empty"
    assert method.weight(method.Params()) in ("light", "cpu", "gpu", "timing")


def check_near_names_find_it(method: Method) -> None:
    slug = method.card.slug
    assert registry.get(slug) is not None
    near = slug[:-1] + ("y" if slug.endswith("x") else "x")
    error = _not_found(near)
    assert error is not None, f"{near} was found"
    assert error.field == "method"
    assert slug in error.remedy, f"the refusal of a near name does not name {slug}: {error}"


def _not_found(slug: str) -> InputError | None:
    try:
        registry.get(slug)
    except InputError as error:
        return error
    return None


@functools.cache
def imports_of(folder: Path) -> frozenset[str]:
    """Every module that the Python files of a folder name in an import, also inside functions."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level > 1:
                found.add("a relative import that leaves the package")
    return frozenset(found)


def check_imports_stay_in_the_package(method: Method) -> None:
    folder = folders.ROOT / "backends" / method.card.package
    assert_imports(imports_of(folder), method.card.package)


def assert_imports(found: frozenset[str], package: str) -> None:
    others = {m.card.package for m in registry.methods().values()} - {package}
    bad = [name for name in found if _forbidden(name.split("."), others)]
    assert not bad, f"{package} imports {sorted(bad)}: not another method, not a face"


def _forbidden(parts: list[str], other_methods: set[str]) -> bool:
    if parts[0] in ("app", "gradio", "gradio_client", "plotly", "tests") or " " in parts[0]:
        return True
    return parts[0] == "backends" and len(parts) > 1 and parts[1] in other_methods


CHECKS: tuple[Any, ...] = tuple(value for name, value in list(globals().items()) if name.startswith("check_"))
