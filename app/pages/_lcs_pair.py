"""What steering did to the picture: the pair, its numbers, its peer, and where it acted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.pages._lcs_images import cells, smooth, swatch, wash
from app.plotting import Panel, floats

Shown = dict[str, str]
FIFTH = 0.2
NAMES = {"unsteered": "Without steering", "steered": "Steered", "recoloured": "Recoloured later"}
PICTURE_NAMES = {"unsteered": "Decoded again", "steered": "Moved in the latent", "recoloured": "Moved in the pixels"}


def pair(data: Mapping[str, Any], metrics: Mapping[str, Any], params: Any) -> Panel | None:
    """The main act: the picture without and with steering beside the wanted colour; while it grows, the newest step as both read it."""
    if "before" in data and params.picture is not None:
        return _recoded(data, params)
    if "before" in data and params.kind == "off":
        return _read(data, metrics, params)
    if "before" in data:
        return _steered(data, metrics, params)
    if "steering" in data:
        unsteered = _image(smooth(data["sampling"]["decoded"][-1]), "Without steering", "finished")
        return _growing(data["steering"], [unsteered], "The same noise, with the colour set", data)
    if "sampling" in data:
        return _growing(data["sampling"], [], "A picture grows, and the subspace reads its colour", data)
    return None


def steered_what(params: Any) -> str:
    """Whom the run steers, for the middle of a sentence."""
    words = [word.strip() for word in params.objects.split(",") if word.strip()]
    return "the whole picture" if not words or params.picture is not None else "the " + " and the ".join(words)


def _image(src: str, title: str, caption: str, overlay: str | None = None) -> Shown:
    return {"src": src, "title": title, "caption": caption} | ({} if overlay is None else {"overlay": overlay})


def _row(data: Mapping[str, Any], which: str) -> dict[str, Any]:
    """One row of the measured table."""
    found = data["measured"]
    place = list(found["which"]).index(which)
    return {name: found[name][place] for name in ("color", "delta_e", "delta_h", "delta_s", "delta_l")}


def _distances(row: Mapping[str, Any]) -> str:
    parts = (f"\u0394E {row['delta_e']:.1f}", f"\u0394H {row['delta_h']:.0f}\u00b0", f"\u0394S {row['delta_s']:.2f}", f"\u0394L {row['delta_l']:.2f}")
    return f"mean {row['color']}: " + ", ".join(parts)


def _wanted(data: Mapping[str, Any]) -> Shown:
    color = data["target"]["color"]
    return _image(swatch(color), "Wanted", color)


def _steered(data: Mapping[str, Any], metrics: Mapping[str, Any], params: Any) -> Panel:
    rows = {which: _row(data, which) for which in ("unsteered", "steered")}
    images = [
        _image(smooth(data["before"]), "Without steering", _distances(rows["unsteered"])),
        _image(smooth(data["after"]), "Steered", _distances(rows["steered"])),
        _wanted(data),
    ]
    step, who = data["steer"]["step"], steered_what(params)
    shape = metrics.get("shape_iou")
    said = f"From {rows['unsteered']['delta_e']:.1f} to {rows['steered']['delta_e']:.1f} CIEDE2000 between the mean colour of {who} and the wanted one"
    said += "." if shape is None else f"; both pictures\u2019 shapes overlap by {shape:.0%}."
    title = f"One vector added after step {step} of {params.steps}: the colour of {who}"
    return Panel("pair", "images", title, {"images": images}, said, "main")


def _read(data: Mapping[str, Any], metrics: Mapping[str, Any], params: Any) -> Panel:
    run, table = data["sampling"], data["prediction"]
    step = int(_early(run["step"], params.steps))
    place = list(run["step"]).index(step)
    off = float(floats(table["lcs"])[step])
    images = [
        _image(smooth(run["decoded"][place]), f"Decoder, step {step}", "what the eye sees then"),
        _image(cells(run["lcs"][place]), f"Subspace, step {step}", f"mean {table['color'][step]}"),
        _image(smooth(data["before"]), f"Finished, step {params.steps}", f"mean {_row(data, 'unsteered')['color']}"),
    ]
    said = f"After {step} of {params.steps} steps the subspace\u2019s mean colour is {off:.1f} CIEDE2000 from the finished one. Nothing is steered."
    return Panel("pair", "images", "The colour, read while the picture is still noise", {"images": images}, said, "main")


def _early(steps: Any, total: int) -> float:
    """The drawn step nearest to a fifth of all."""
    drawn = floats(steps)
    return float(drawn[np.abs(drawn - FIFTH * total).argmin()])


def _recoded(data: Mapping[str, Any], params: Any) -> Panel:
    rows = {which: _row(data, which) for which in ("unsteered", "steered")}
    images = [
        _image(smooth(data["picture"]), "Your picture", "as it is encoded"),
        _image(cells(data["lcs"]), "Read in the subspace", "one square a token"),
        _image(smooth(data["before"]), PICTURE_NAMES["unsteered"], _distances(rows["unsteered"])),
        _image(smooth(data["after"]), PICTURE_NAMES["steered"] if params.kind != "off" else "Not moved", _distances(rows["steered"])),
        _wanted(data),
    ]
    said = f"Its mean colour went from {rows['unsteered']['delta_e']:.1f} to {rows['steered']['delta_e']:.1f} CIEDE2000 from the wanted one, in the latent."
    return Panel("pair", "images", "Your picture, its colour moved in the latent", {"images": images}, said, "main")


def _growing(run: Mapping[str, Any], beside: list[Shown], title: str, data: Mapping[str, Any]) -> Panel:
    step = int(run["step"][-1])
    images = [
        *beside,
        _image(smooth(run["decoded"][-1]), f"Decoder, step {step}", "through the whole decoder"),
        _image(cells(run["lcs"][-1]), f"Subspace, step {step}", f"three numbers a token; mean {run['color'][-1]}"),
    ]
    if not beside:
        images.append(_wanted(data))
    said = f"Step {step}: the decoder needs a network to show this, the subspace one small matrix."
    return Panel("pair", "images", title, {"images": images}, said, "main")


def masks(data: Mapping[str, Any], params: Any) -> Panel | None:
    """Where each object's word is looked at, and where colours are measured, on the picture without steering."""
    if "masks" not in data or not data["masks"]:
        return None
    if "before" in data:
        under = data["before"]
    else:
        under = data["sampling"]["decoded"][-1]
    images, picture = [], smooth(under)
    for found in data["masks"]:
        inside = np.asarray(found["mask"], bool)
        caption = f"{int(inside.sum())} of {inside.size} tokens hold {params.mask_mass:.0%} of the word\u2019s attention"
        images.append(_image(picture, f"\u201c{found['word']}\u201d", caption, wash(inside)))
    if "region" in data:
        share = float(np.asarray(data["region"], bool).mean())
        images.append(_image(picture, "Measured here", f"{share:.0%} of the picture", wash(data["region"])))
    step = data["steer"]["step"]
    said = f"Only clear tokens are moved; the mask is the attention of step {step} from the picture to the word, in one block."
    return Panel("masks", "images", "Where the colour is set", {"images": images}, said)


def peers(data: Mapping[str, Any], params: Any) -> Panel | None:
    """Steering beside recolouring of the finished picture."""
    if "recoloured" not in data or params.kind == "off":
        return None
    rows, names = {which: _row(data, which) for which in ("steered", "recoloured")}, _names(params)
    images = [
        _image(smooth(data["after"]), names["steered"], f"\u0394E {rows['steered']['delta_e']:.1f}"),
        _image(smooth(data["recoloured"]), names["recoloured"], f"\u0394E {rows['recoloured']['delta_e']:.1f}"),
    ]
    outside, rest = data.get("outside_share"), data.get("rest_delta_e")
    said = "Recolouring turns the finished pixels in HSL inside the measured region."
    if outside is not None:
        said = f"Steering is not recolouring: {outside:.0%} of the latents\u2019 change lies outside the three directions, since the remaining steps drew anew."
    if rest is not None:
        said += f" Around the object the mean colour moved by {rest:.1f} CIEDE2000."
    return Panel("peers", "images", f"{names['steered']}, or {names['recoloured'].lower()}", {"images": images}, said)


def _names(params: Any) -> dict[str, str]:
    return NAMES if params.picture is None else PICTURE_NAMES


def measured(data: Mapping[str, Any], params: Any) -> Panel | None:
    """The same colours in numbers."""
    if "measured" not in data or params.kind == "off":
        return None
    columns = ("picture", "mean colour", "\u0394E", "\u0394H", "\u0394S", "\u0394L")
    rows, names = [], _names(params)
    for which in data["measured"]["which"]:
        row = _row(data, which)
        numbers = (f"{row['delta_e']:.1f}", f"{row['delta_h']:.0f}\u00b0", f"{row['delta_s']:.2f}", f"{row['delta_l']:.2f}")
        rows.append([names[which], row["color"], *numbers])
    note = "\u0394E is CIEDE2000, hue in degrees, saturation and lightness from 0 to 1. All in one region" + (
        "." if params.picture is not None else ", found in the picture without steering."
    )
    shown = {"columns": [{"name": name, "kind": "text"} for name in columns], "rows": rows, "note": note}
    best = min(data["measured"]["which"], key=lambda which: _row(data, which)["delta_e"])
    return Panel("measured", "table", f"How far from {data['target']['color']}", shown, f"Nearest to the wanted colour: {names[best].lower()}.")
