"""The pictures of lcs: what is drawn, what a click means, what it costs."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import plotly.graph_objects as go
import pytest
from PIL import Image

from app.export import to_plotly
from app.pages import lcs as page
from app.pages import load
from app.pages._lcs_images import cells, smooth, swatch, wash
from app.plotting import Changes, Figure, Panel, view_json
from app.thumbnails import svg
from backends.contract import Frame, InputError, Params, Upload
from backends.registry import get
from backends.validation import validate

STEPS, SIDE, GRID, TOKENS, SOLIDS = 28, 64, 8, 64, 156
SHOWN = [0, 4, 8, 12, 16, 20, 24, 28]
STEER = 4
VIEWS = ["pair", "prediction", "cone", "film", "masks", "peers", "measured", "schedule", "words"]
FIGURES = ["prediction", "cone", "film", "schedule"]
FRAME_BYTES = 180_000  # some thirty pictures
ANCHORS = ("#ff0000", "#00ff00", "#0000ff", "#ffff00", "#ff00ff", "#00ffff", "#000000", "#ffffff")


def settings(**changes: Any) -> SimpleNamespace:
    given = {"prompt": "a circle on a wall", "objects": "circle", "color": "#e08a1e", "kind": "blend", "steps": STEPS, "mask_mass": 0.8}
    return SimpleNamespace(**{**given, "model": "little-flux", "picture": None, "steer_step": "auto"} | changes)


def picture(rng: np.random.Generator, side: int = SIDE) -> np.ndarray:
    """Squares of eight pixels a side, a little noisy: as hard to pack as what a model draws."""
    squares = np.kron(rng.integers(20, 230, (-(-side // 8), -(-side // 8), 3)), np.ones((8, 8, 1), int))[:side, :side]
    return (squares + rng.integers(-5, 6, (side, side, 3))).astype(np.uint8)


def sampling(steps: list[int], rng: np.random.Generator) -> dict[str, Any]:
    cloud = rng.normal(0, 6, (len(steps), TOKENS, 3))
    if steps[0] == 0:
        cloud[0] *= 100
    pictures = {"decoded": [picture(rng) for _ in steps], "lcs": [picture(rng, GRID) for _ in steps]}
    return {"step": steps, "sigma": [1 - s / STEPS for s in steps], **pictures, "cloud": cloud, "mean": cloud.mean(1), "color": ["#336699"] * len(steps)}


def frame(progress: float = 1.0, **changes: Any) -> Frame:
    """Shaped as a run's last frame; the numbers are drawn at random."""
    rng = np.random.default_rng(0)
    at = np.arange(STEPS + 1)
    share = at / STEPS
    mask = np.zeros((GRID, GRID), np.uint8)
    mask[2:5, 2:6] = 1
    region = np.zeros((SIDE, SIDE), np.uint8)
    region[:32, :16] = 1
    data: dict[str, Any] = {
        "made_by": {"model": "generated", "data": "random", "size": "64 tokens", "device": "cpu"},
        "notes": [],
        "stage": "done",
        "grid": [GRID, GRID],
        "target": {"color": "#e08a1e", "hsl": [0.09, 0.76, 0.5], "coordinates": np.array([1.0, 2.0, 3.0])},
        "cone": {
            "anchors": rng.normal(0, 9, (8, 3)),
            "anchor_colors": list(ANCHORS),
            "origin": np.zeros(3),
            "solids": rng.normal(0, 6, (SOLIDS, 3)),
            "solid_colors": [f"#{k:06x}" for k in range(SOLIDS)],
            "explained": 0.97,
        },
        "steer": {"step": STEER, "sigma": 0.9, "gamma": 0.9, "kind": "blend"},
        "sampling": sampling(SHOWN, rng),
        "steering": sampling([s for s in SHOWN if s >= STEER], rng),
        "schedule": {
            "step": at,
            "sigma": 1 - share,
            "one_minus_sigma": share,
            "beta": share,
            "run_beta": share + 0.04 * share * (1 - share),
            "alpha": np.outer(1 - share, [-2.0, 0.1, -0.1]),
            "run_mean": np.outer(share, [1.0, -3.0, 4.0]),
        },
        "prediction": {
            "step": at,
            "sigma": 1 - share,
            "lcs": 5 + 20 * np.exp(-at),
            "affine": 1 + 20 * np.exp(-at / 4),
            "cells": 8 + 40 * np.exp(-at / 6),
            "color": ["#336699"] * (STEPS + 1),
            "decoder_step": SHOWN,
            "decoder": 25 * (1 - np.array(SHOWN) / STEPS),
            "random_level": 46.7,
        },
        "masks": [{"word": "circle", "attention": rng.random((GRID, GRID)), "mask": mask}],
        "before": picture(rng),
        "after": picture(rng),
        "recoloured": picture(rng),
        "region": region,
        "measured": {
            "which": ["unsteered", "steered", "recoloured"],
            "color": ["#102030", "#e08a20", "#e08a1f"],
            "delta_e": [41.3, 6.2, 1.1],
            "delta_h": [120.2, 4.4, 0.4],
            "delta_s": [0.31, 0.04, 0.01],
            "delta_l": [0.22, 0.03, 0.01],
        },
        "outside_share": 0.31,
        "rest_delta_e": 1.4,
    }
    return Frame(progress, "done", {"shape_iou": 0.93}, {k: v for k, v in (data | changes).items() if v is not None})


def views_of(found: Frame, **changes: Any) -> dict[str, Any]:
    return {view.name: view for view in page.views(found, settings(**changes))}


def trace(view: Figure, name: str) -> Mapping[str, Any]:
    return next(t for t in view.traces if t["name"] == name)


def image(address: str) -> np.ndarray:
    """The pixels behind a data: address."""
    head, _, body = address.partition(",")
    assert head == "data:image/webp;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(body))))


def test_a_full_run_has_all_pictures_the_main_one_first() -> None:
    made = page.views(frame(), settings())
    assert [v.name for v in made] == VIEWS
    assert [v.name for v in made if v.span == "main"] == ["pair"]
    assert all(v.summary and v.title for v in made)


@pytest.mark.parametrize("name", FIGURES)
def test_plotly_accepts_the_figure_and_its_axes_are_named(name: str) -> None:
    drawn = go.Figure(to_plotly(views_of(frame())[name]))
    if name == "cone":
        axes = [drawn.layout.scene.xaxis, drawn.layout.scene.yaxis, drawn.layout.scene.zaxis]
    else:
        axes = [drawn.layout[a] for a in drawn.layout if a.startswith(("xaxis", "yaxis"))]
    assert all(a.title.text for a in axes if a.visible is not False)


def test_pictures_are_small() -> None:
    parts = {v.name: len(orjson.dumps(view_json(v))) for v in page.views(frame(), settings())}
    print(f"{sum(parts.values()):,} bytes: {parts}")
    assert sum(parts.values()) < FRAME_BYTES


def test_a_stored_frame_draws_the_same_pictures() -> None:
    found = frame()
    stored = Frame.from_json(orjson.loads(orjson.dumps(found.to_json())))
    assert [(v.title, v.summary) for v in page.views(stored, settings())] == [(v.title, v.summary) for v in page.views(found, settings())]
    again = {v.name: view_json(v) for v in page.views(stored, settings())}
    assert again["pair"] == view_json(views_of(found)["pair"])


LAST = ("before", "after", "recoloured", "region", "measured", "outside_share", "rest_delta_e")
LATER = ("steer", "sampling", "steering", "schedule", "prediction", "masks", *LAST)


def without(*keys: str) -> dict[str, Any]:
    return dict.fromkeys(keys)


def test_pictures_wait_for_their_data() -> None:
    assert page.views(Frame(0.0, "loading"), settings()) == []
    subspace = frame(0.05, **without(*LATER))
    assert list(views_of(subspace)) == ["cone", "words"]
    growing = frame(0.3, **without(*LATER[3:]), sampling=sampling(SHOWN[:3], np.random.default_rng(1)), steering=None)
    made = views_of(growing)
    assert list(made) == ["pair", "cone", "film", "words"]
    assert [i["title"] for i in made["pair"].data["images"]] == ["Decoder, step 8", "Subspace, step 8", "Wanted"]


def test_while_steering_the_finished_picture_stands_beside_the_growing_one() -> None:
    growing = frame(0.7, **without(*LAST), steering=sampling([4, 8], np.random.default_rng(1)))
    made = views_of(growing)
    assert [i["title"] for i in made["pair"].data["images"]] == ["Without steering", "Decoder, step 8", "Subspace, step 8"]
    assert "masks" in made


def test_the_pair_tells_the_measured_distances() -> None:
    panel = views_of(frame())["pair"]
    before, after, wanted = panel.data["images"]
    assert (before["title"], after["title"], wanted["title"]) == ("Without steering", "Steered", "Wanted")
    assert "ΔE 41.3, ΔH 120°, ΔS 0.31, ΔL 0.22" in before["caption"]
    assert "ΔE 6.2, ΔH 4°, ΔS 0.04, ΔL 0.03" in after["caption"]
    assert wanted["caption"] == "#e08a1e"
    assert "From 41.3 to 6.2" in panel.summary
    assert "93%" in panel.summary
    assert "step 4 of 28" in panel.title


def test_an_undefined_shape_overlap_is_left_out() -> None:
    found = frame()
    text = page.views(Frame(1.0, "done", {"shape_iou": None}, found.data), settings())[0].summary
    assert "overlap" not in text


def test_nothing_steered_shows_the_early_reading() -> None:
    found = frame(**without("steering", "outside_share", "masks"), steer={"step": STEER, "sigma": 0.9, "gamma": 0.9, "kind": "off"})
    made = views_of(found, kind="off", objects="")
    assert [i["title"] for i in made["pair"].data["images"]] == ["Decoder, step 4", "Subspace, step 4", "Finished, step 28"]
    off = found.data["prediction"]["lcs"][4]
    assert f"{off:.1f} CIEDE2000" in made["pair"].summary
    assert not {"peers", "measured", "masks"} & set(made)


def test_a_persons_picture_has_its_own_row() -> None:
    rng = np.random.default_rng(2)
    keys = ("sampling", "steering", "schedule", "prediction", "masks", "outside_share", "rest_delta_e")
    found = frame(**without(*keys), picture=picture(rng), cloud=rng.normal(0, 5, (TOKENS, 3)), lcs=picture(rng, GRID))
    made = views_of(found, picture=Upload.of("cat.png", b"x"))
    assert list(made) == ["pair", "cone", "peers", "measured"]
    assert [i["title"] for i in made["pair"].data["images"]] == ["Your picture", "Read in the subspace", "Decoded again", "Moved in the latent", "Wanted"]
    assert len(trace(made["cone"], "tokens")["x"]) == TOKENS


def test_pictures_are_what_was_given() -> None:
    given = np.full((8, 8, 3), (200, 40, 90), np.uint8)
    given[:4] = (10, 120, 30)
    squares = image(cells(given))
    assert squares.shape == (256, 256, 3)
    assert (squares[::32, ::32] == given).all()
    assert np.abs(image(smooth(given)).reshape(8, 32, 8, 32, 3)[1, :, 1].astype(int).mean((0, 1)) - (10, 120, 30)).max() < 4
    assert (image(swatch("#e08a1e")) == (0xE0, 0x8A, 0x1E)).all()
    assert image(smooth(np.zeros((300, 200, 3), np.uint8))).shape == (300, 200, 3), "a large picture stays as it is"


def test_the_veil_leaves_the_mask_clear() -> None:
    mask = np.eye(8, dtype=np.uint8)
    assert (image(wash(mask))[16::32, 16::32, 3] == 255 * (1 - mask)).all()
    panel = views_of(frame())["masks"]
    assert [i["title"] for i in panel.data["images"]] == ["\u201ccircle\u201d", "Measured here"]
    assert panel.data["images"][0]["caption"].startswith("12 of 64 tokens hold 80%")
    assert panel.data["images"][1]["caption"] == "12% of the picture"


def test_who_predicts_better_is_said_as_it_is() -> None:
    table = frame().data["prediction"]
    summary = views_of(frame())["prediction"].summary
    assert "The affine map predicts better" in summary
    swapped = {**table, "lcs": table["affine"], "affine": table["lcs"]}
    assert "The cone predicts better" in views_of(frame(prediction=swapped))["prediction"].summary
    assert f"the cone reads the mean colour to {table['lcs'][6]:.1f}, an affine map" in summary


def test_the_steer_step_is_a_line_to_drag() -> None:
    view = views_of(frame())["prediction"]
    assert view.layout["meta"]["editable"] is True
    assert [(s["name"], s["x0"]) for s in view.layout["shapes"] if s["editable"]] == [("steer", STEER)]
    assert [t["name"] for t in view.traces if t.get("meta") == {"ghost": True}] == ["subspace"]


def test_the_cone_contracts_from_the_noise_onto_the_steered_colours() -> None:
    view = views_of(frame())["cone"]
    assert [f["name"] for f in view.frames] == ["step 0", *(f"steered, step {s}" for s in SHOWN[1:])]
    (place,) = {f["traces"][0] for f in view.frames}
    assert view.frames[-1]["data"][0] is view.traces[place], "the figure shows the last frame"
    earlier = views_of(frame(**without("steering")))["cone"]
    assert earlier.frames[0]["traces"] == [place], "the tokens keep their place while the paths come in"
    path = trace(view, "unsteered mean")
    assert path["text"] == SHOWN[1:], "the mean of the pure noise lies far outside"


def test_white_is_drawn_above_black() -> None:
    found = frame()
    scene = views_of(found)["cone"].layout["scene"]
    up, eye = (np.array([scene["camera"][name][c] for c in "xyz"]) for name in ("up", "eye"))
    axis = found.data["cone"]["anchors"][7] - found.data["cone"]["anchors"][6]
    assert up @ axis == pytest.approx(np.linalg.norm(axis))
    assert 0 < up @ eye < 0.7 * np.linalg.norm(eye)


def test_the_film_says_when_the_mean_has_settled() -> None:
    table = frame().data["prediction"]
    mean = np.where(np.arange(STEPS + 1) < 7, 20.0, 4.0)
    mean[9] = 4.6
    assert f"From step 7 on the mean is at most 4.6 CIEDE2000 off; a single token still is by {table['cells'][7]:.0f} then" in (
        views_of(frame(prediction={**table, "lcs": mean}))["film"].summary
    )


def test_the_film_holds_each_drawn_step_twice() -> None:
    view = views_of(frame())["film"]
    assert len(view.layout["images"]) == 2 * len(SHOWN) + 2 * (len(SHOWN) - 1)
    assert view.layout["xaxis"]["ticktext"] == [str(s) for s in SHOWN]
    clicked = trace(view, "steps")
    assert clicked["customdata"] == SHOWN * 4


def test_the_thumbnail_shows_the_curves() -> None:
    first = next(v for v in page.views(frame(), settings()) if isinstance(v, Figure))
    drawing = svg(first, "images", "Colour")
    assert drawing.count("<path") >= 4
    assert len(drawing) < 8_000


def test_the_persons_words_are_no_markup() -> None:
    found = frame(masks=[{"word": "<img src=x>", "attention": np.ones((8, 8)), "mask": np.ones((8, 8), np.uint8)}])
    figures = [v for v in views_of(found, objects="<img src=x>", prompt="$method <img src=x>").values() if isinstance(v, Figure)]
    text = orjson.dumps([view_json(v)["figure"] for v in figures]).decode()
    assert "<img" not in text


def test_the_chips_say_what_is_pressed_and_are_the_little_models() -> None:
    panel = views_of(frame(), prompt="a red circle beside a ring on a brick wall")["words"]
    assert isinstance(panel, Panel)
    pressed = [chip["text"] for group in panel.data["groups"] for chip in group["chips"] if chip["pressed"]]
    assert pressed == ["circle", "ring", "brick", "red"]
    assert "words" not in views_of(frame(), model="black-forest-labs/FLUX.1-dev")


# ---------------------------------------------------------------------------------------------------------- the events

GIVEN = {"prompt": "a circle on a wall", "objects": "circle", "steps": STEPS, "steer_step": STEER, "kind": "blend"}
EVENTS = [
    ("prediction", {"type": "click", "x": 9.4}, Changes({"steer_step": 9}, True)),
    ("prediction", {"type": "click", "x": 0}, Changes({"steer_step": 1}, True)),
    ("prediction", {"type": "click", "x": 99}, Changes({"steer_step": STEPS}, True)),
    ("prediction", {"type": "drag", "shape": "steer", "x0": 12.2, "x1": 12.2}, Changes({"steer_step": 12}, True)),
    ("prediction", {"type": "drag", "shape": "steer", "x0": 4.0, "x1": 20.0}, Changes({"steer_step": 20}, True)),
    ("prediction", {"type": "drag"}, None),
    ("prediction", {"type": "click", "x": True}, None),
    ("prediction", {"type": "click", "x": float("nan")}, None),
    ("prediction", {"type": "click", "x": 10**400}, None),
    ("film", {"type": "click", "x": 3, "customdata": 12}, Changes({"steer_step": 12}, True)),
    ("film", {"type": "click", "customdata": [1]}, None),
    ("cone", {"type": "click", "trace": "solids", "customdata": "#33cc66"}, Changes({"color": "#33cc66"}, True)),
    ("cone", {"type": "click", "customdata": "red"}, None),
    ("cone", {"type": "click", "trace": "tokens"}, None),
    ("words", {"type": "click", "id": "shape house", "pressed": True}, None),
    ("words", {"type": "click", "id": 7}, None),
    ("controls", {"type": "upload", "field": "picture"}, Changes({}, True)),
    ("controls", {"type": "upload", "field": "csv"}, None),
    ("pair", {"type": "click", "x": 1}, None),
]


@pytest.mark.parametrize(("view", "event", "expected"), EVENTS, ids=lambda v: str(v)[:40])
def test_what_an_event_means(view: str, event: dict[str, Any], expected: Changes | None) -> None:
    assert load("lcs").on_event(view, event, GIVEN) == expected


def test_who_clicks_wants_to_see_it_steered() -> None:
    assert page.on_event("film", {"type": "click", "customdata": 12}, {**GIVEN, "kind": "off"}) == Changes({"steer_step": 12, "kind": "blend"}, True)


def test_the_whole_picture_can_be_steered_before_the_first_step() -> None:
    assert page.on_event("film", {"type": "click", "customdata": 0}, {**GIVEN, "objects": ""}) == Changes({"steer_step": 0}, True)


def test_what_a_click_gives_is_valid() -> None:
    for view, event, changes in EVENTS:
        if changes is not None:
            try:
                assert isinstance(validate(get("lcs").Params, {**GIVEN, **changes.params}), Params)
            except InputError as error:
                pytest.fail(f"{view} {event}: {error}")
