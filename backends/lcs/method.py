"""One run of lcs as a stream of frames: the subspace, the unsteered sampling, then the steered one from the step at which they part.

Every frame is whole. Its data, with T steps, L tokens, K drawn steps, and pictures (H, W, 3) uint8; what is not yet known is absent:

===============  ================================================================================================================
made_by          {model, data, size, device}
notes            list of sentences
stage            "subspace", "sampling", "steering", "done"
grid             [height, width] in tokens
target           {color "#rrggbb", hsl [h, s, l], coordinates (3,)}
cone             {anchors (8, 3), anchor_colors, origin (3,), solids (156, 3), solid_colors, explained}
steer            {step, sigma, gamma, kind}
sampling         unsteered: {step, sigma, decoded, lcs, color} lists of K; cloud (K, L, 3); mean (K, 3). decoded: pictures of the noisy
                 latents; lcs: previews (height, width, 3); color: what the mean stands for
steering         the same of the steered sampling, from the steer step on
schedule         {step, sigma, one_minus_sigma, beta, run_beta} (T + 1,); alpha, run_mean (T + 1, 3): closed form and this run's own
prediction       {step, sigma, lcs, affine, cells} (T + 1,), CIEDE2000 to the finished picture; color list of T + 1; decoder_step, decoder
                 of the K drawn steps; random_level: mean difference of two named colours
masks            one for each object: {word, attention (height, width), mask (height, width) uint8}
before, after,   pictures: unsteered, steered, and the unsteered one recoloured afterwards
recoloured
region           (H, W) uint8: where colours are measured
measured         {which, color, delta_e, delta_h (degrees), delta_s, delta_l}: rows unsteered, steered, recoloured
outside_share    share of the final latents' difference that lies outside the subspace: recolouring alone would leave 0
rest_delta_e     how far the mean colour outside the region moved
picture          a person's picture as it was encoded; then cloud (L, 3), lcs (height, width, 3) of it stand here as well
===============  ================================================================================================================
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np
import torch

from backends.contract import Context, Frame, InputError, MetricValue
from backends.lcs import models
from backends.lcs.attention import attention_mask, first_token
from backends.lcs.card import LITTLE, OBJECTS_LIMIT, Params
from backends.lcs.picture import read_picture, recode
from backends.lcs.readout import AffineReadout, difference, hsl_of, mean_rgb, measured_region, recolour
from backends.lcs.sampling import Steering, denoise, early_step, noise_levels
from backends.lcs.solids import Solids, encode_solids, explained_variance
from backends.lcs.subspace import ANCHOR_COLOURS, LCS
from backends.lcs.trajectory import History, OnKept, Trajectory, follow, prediction, schedule, shown_steps
from backends.runtime import device, little_flux, scenes

Array = np.ndarray
STANDS_OUT, LARGE = 10.0, 0.03  # CIEDE2000 between object and rest, and share of the picture, below which a segmenter finds only texture
FIFTH = 0.2


def run(params: Params, context: Context) -> Iterator[Frame]:
    """Streams a run; a live one gives its last frame only, from the stored unsteered sampling."""
    started = _Run(params, context)
    for frame in started.sampled() if params.picture is None else started.pictured():
        if context.live is None or frame.progress == 1.0:
            yield frame


class _Run:
    """The stages of one run; what each knows is added to ``data`` and ``metrics``, which every frame shows whole."""

    def __init__(self, params: Params, context: Context) -> None:
        self.params, self.context = params, context
        self.began = time.perf_counter()
        self.data: dict[str, Any] = {"notes": []}
        self.metrics: dict[str, MetricValue] = {}

    def frame(self, progress: float, message: str, stage: str) -> Frame:
        self.data["stage"] = stage
        return Frame(progress, " ".join(message.split()), dict(self.metrics), dict(self.data))

    def note(self, text: str) -> None:
        self.data["notes"] = [*self.data["notes"], text]

    # ------------------------------------------------------------------------------------------- what both ways share

    @cached_property
    def model(self) -> models.Steerable:
        return models.load(self.params.model, self.context.models, self.context.device)

    @cached_property
    def solids(self) -> Solids:
        # A load and not a stored value: it belongs to the model, takes a second, and must go on when its asker stops.
        return self.context.models.load(f"156 solid colours as seen by {self.model.title}", lambda say: encode_solids(self.model.pipe.vae))

    @cached_property
    def lcs(self) -> LCS:
        return self.model.subspace(self.solids, self.params.variant)

    @cached_property
    def hsl(self) -> tuple[float, float, float]:
        return hsl_of(self.params.color)

    @property
    def gamma(self) -> float | None:
        return None if self.params.gamma == "auto" else self.params.gamma

    def opening(self, source: str, size: str, grid: tuple[int, int]) -> None:
        on = device.describe() if self.context.device == "cpu" else self.context.device
        self.data |= {
            "made_by": {"model": self.model.title, "data": source, "size": size, "device": on},
            "target": {"color": self.params.color, "hsl": list(self.hsl)},
            "grid": list(grid),
        }

    def found(self) -> Frame:
        """The subspace itself."""
        lcs, solids = self.lcs, self.solids
        share = explained_variance(solids, lcs)
        self.metrics["explained_variance_3"] = share
        self.data["target"] = {**self.data["target"], "coordinates": lcs.to_lcs(self.hsl)}
        self.data["cone"] = {
            "anchors": lcs.anchors.numpy(),
            "anchor_colors": list(ANCHOR_COLOURS),
            "origin": (lcs.anchors[0] - lcs.cone.hues[0]).numpy(),
            "solids": lcs.coordinates(solids.latents),
            "solid_colors": list(solids.colours),
            "explained": share,
        }
        return self.frame(0.05, f"three directions hold {share:.1%} of how {len(solids.colours)} solid colours differ", "subspace")

    def compare(self, before: Array, after: Array, region: Array) -> None:
        """Both pictures and the recoloured one against the wanted colour."""
        params = self.params
        recoloured = recolour(before, params.color, region)
        rows = {name: difference(mean_rgb(p, region), params.color) for name, p in (("unsteered", before), ("steered", after), ("recoloured", recoloured))}
        columns = [asdict(row) for row in rows.values()]
        self.data["measured"] = {"which": list(rows), **{name: [column[name] for column in columns] for name in columns[0]}}
        self.data |= {"before": before, "after": after, "recoloured": recoloured, "region": region.astype(np.uint8)}
        self.metrics |= {f"delta_e_{name}": row.delta_e for name, row in rows.items()}
        self.metrics["shape_iou"] = _shape_overlap(before, after)
        if not region.all():
            self.data["rest_delta_e"] = float(scenes.delta_e(mean_rgb(before, ~region), mean_rgb(after, ~region)))

    # ------------------------------------------------------------------------------------------------- from a prompt

    def sampled(self) -> Iterator[Frame]:
        params, model = self.params, self.model
        words = _objects(params.objects)
        _check_words(params.prompt, model)
        tokens = [first_token(model.pipe.tokenizer_2, params.prompt, word) for word in words]
        step = self.step(words)
        self.opening(
            f"“{params.prompt}”, seed {params.seed}", f"{model.size} x {model.size} pixels, {np.prod(model.grid)} tokens, {params.steps} steps", model.grid
        )
        yield self.frame(0.01, "encoding 156 solid colours", "subspace")
        yield self.found()
        trajectory = yield from self.unsteered()
        self.read(trajectory)
        masks = self.masks(trajectory, words, tokens, step)
        yield self.frame(0.5, f"without steering the picture is {self.data['sampling']['color'][-1]} in the mean", "sampling")
        final, after = trajectory.latents[-1], trajectory.picture
        if params.kind != "off":
            final, after = yield from self.steered(trajectory, tokens, step)
            change = final - trajectory.latents[-1]
            inside = np.square(change @ self.lcs.B.numpy().T).sum()
            whole = float(np.square(change).sum())
            self.data["outside_share"] = 1 - float(inside) / whole if whole else None
        region, agreement = measured_region(trajectory.picture, np.logical_or.reduce(masks) if masks else None, model.grid)
        self.compare(trajectory.picture, after, region)
        self.metrics["mask_iou"] = agreement if len(masks) == 1 else None
        self.metrics["seconds"] = time.perf_counter() - self.began
        yield self.frame(1.0, self.summary(), "done")

    @cached_property
    def sigmas(self) -> Array:
        return noise_levels(self.model.pipe, self.params.steps, int(np.prod(self.model.grid)))

    def step(self, words: list[str]) -> int:
        """The number of completed steps at which colour is set. Raises InputError where it cannot be."""
        params = self.params
        step = early_step(self.sigmas) if params.steer_step == "auto" else params.steer_step
        if step > params.steps:
            raise InputError("steer_step", f"there are {params.steps} steps, so none is number {step}", f"choose from 0 to {params.steps}")
        if step == 0 and words:
            raise InputError("steer_step", "before the first step there is no attention that could find an object", "steer after step 1, or the whole picture")
        sigma = float(self.sigmas[step])
        gamma = {"type1": 1.0, "type2": 0.0}.get(params.kind, sigma if self.gamma is None else self.gamma)
        self.data["steer"] = {"step": step, "sigma": sigma, "gamma": gamma, "kind": params.kind}
        self.metrics["steps"] = params.steps
        return step

    def streamed(self, work: Callable[[OnKept], Any], history: History, name: str, start: float) -> Iterator[Frame]:
        """Frames of a sampling that runs in a thread of its own; work takes the function that is called at each drawn step."""

        def emitting(emit: Callable[[tuple[int, Array, Array]], None]) -> None:
            work(lambda done, latents, decoded: emit((done, latents, decoded)))

        for done, latents, decoded in self.context.stream(emitting):
            history.add(done, float(self.sigmas[done]), latents, decoded)
            self.data[name] = history.data()
            verb = "steered" if name == "steering" else "sampled"
            yield self.frame(start + 0.4 * done / self.params.steps, f"{verb}: step {done} of {self.params.steps}", name)

    def unsteered(self) -> Generator[Frame, None, Trajectory]:
        """The stored unsteered sampling, made and shown where there is none; returns it."""
        params, model, context = self.params, self.model, self.context
        key = (model.name, params.prompt, params.seed, params.steps, params.guidance)
        whole: list[Trajectory] = []

        def work(on_kept: OnKept) -> None:
            def make() -> Trajectory:
                return follow(model, params.prompt, params.steps, params.guidance, context.torch_generator, on_kept, context.check)

            whole.append(context.memo("unsteered", key, make))

        yield from self.streamed(work, History(self.lcs, model.grid), "sampling", 0.06)
        trajectory, history = whole[0], History(self.lcs, model.grid)
        for done in shown_steps(params.steps):
            history.add(done, float(trajectory.sigmas[done]), trajectory.latents[done], trajectory.decoded[done])
        self.data["sampling"] = history.data()
        return trajectory

    def read(self, trajectory: Trajectory) -> None:
        """How early the finished colour could be read."""
        affine = AffineReadout.fit(self.lcs.coordinates(self.solids.latents), self.solids.rgb)
        named = np.array(list(scenes.COLOURS.values()))
        level = scenes.delta_e(named[:, None], named[None])
        table = prediction(self.lcs, affine, trajectory, self.model.grid)
        self.data["prediction"] = {**table, "random_level": float(level.sum() / (level.size - len(named)))}
        self.data["schedule"] = schedule(self.lcs, trajectory)
        self.metrics["prediction_delta_e_at_20pct"] = float(table["lcs"][round(FIFTH * self.params.steps)])

    def masks(self, trajectory: Trajectory, words: list[str], tokens: list[int], step: int) -> list[Array]:
        """Where each object lies, (L,) bool, by the attention of the step at which colour is set."""
        grid, masks = self.model.grid, []
        self.data["masks"] = []
        for word, token in zip(words, tokens, strict=True):
            column = trajectory.attention[step - 1, :, token]
            masks.append(attention_mask(torch.tensor(column)[None], grid, self.params.mask_mass)[0].numpy())
            self.data["masks"].append({"word": word, "attention": column.reshape(grid), "mask": masks[-1].reshape(grid).astype(np.uint8)})
        return masks

    def steered(self, trajectory: Trajectory, tokens: list[int], step: int) -> Generator[Frame, None, tuple[Array, Array]]:
        """Samples again from the step before the colour is set; returns the final latents (L, 64) and the picture."""
        params, model = self.params, self.model
        weights = next(model.pipe.transformer.parameters())
        first, shown = max(step - 1, 0), {step, *(t for t in shown_steps(params.steps) if t > step)}
        kept: list[tuple[Array, Array]] = []

        def work(on_kept: OnKept) -> None:
            def on_step(done: int, sigma: float, latents: torch.Tensor) -> None:
                self.context.check()
                if done in shown:
                    x = latents[0].float().cpu().numpy()
                    kept.append((x, model.decode(x)))
                    on_kept(done, *kept[-1])

            with model.maps.recorded() as passes:
                steering = Steering(
                    self.lcs, self.hsl, step, model.grid, params.kind, self.gamma, params.mask_mass, [[t] for t in tokens], passes, first, on_step=on_step
                )
                latents = torch.tensor(trajectory.latents[first])[None].to(weights.device, weights.dtype)
                if step == 0:
                    latents = steering.steer(latents, 1.0)
                    on_step(0, 1.0, latents)
                denoise(model, params.prompt, params.steps, params.guidance, steering, latents=latents, first=first)

        yield from self.streamed(work, History(self.lcs, model.grid), "steering", 0.52)
        return kept[-1]

    def summary(self) -> str:
        metrics, params = self.metrics, self.params
        text = f"difference to {params.color}: {metrics['delta_e_unsteered']:.1f} without steering, {metrics['delta_e_steered']:.1f} with it"
        text += f", {metrics['delta_e_recoloured']:.1f} recoloured"
        undefined = []
        if metrics["shape_iou"] is None:
            undefined.append("no object stands out, so no shapes are compared")
        if metrics["mask_iou"] is None:
            several = params.objects and params.picture is None
            undefined.append(("several objects are" if several else "the whole picture is") + " steered, so no mask is judged")
        return "; ".join([text, *undefined])

    # ------------------------------------------------------------------------------------------ from a person's picture

    def pictured(self) -> Iterator[Frame]:
        params, model = self.params, self.model
        assert params.picture is not None
        given = read_picture(params.picture, model.cell)
        grid = given.shape[0] // model.cell, given.shape[1] // model.cell
        self.opening(f"your picture {params.picture.name}", f"{given.shape[1]} x {given.shape[0]} pixels, {np.prod(grid)} tokens", grid)
        self.data |= {"picture": given, "steer": {"step": 0, "sigma": 0.0, "kind": params.kind}}
        if params.objects:
            self.note("object words need a prompt: the whole picture is moved")
        if model.name == LITTLE:
            self.note("the little autoencoder knows simple shapes at 64 pixels: fine detail and photographs come out soft")
        yield self.frame(0.01, "encoding 156 solid colours", "subspace")
        yield self.found()
        gamma = {"type1": 1.0, "type2": 0.0}.get(params.kind, self.gamma or 0.0)
        self.data["steer"] = {**self.data["steer"], "gamma": gamma}
        done = recode(model, self.lcs, given, self.hsl, params.kind, self.gamma)
        seen = self.lcs.observe(done.latents, 0.0)
        self.data |= {"cloud": seen.coordinates, "lcs": np.round(255 * seen.rgb.reshape(*grid, 3)).astype(np.uint8)}
        loss = float(scenes.delta_e(done.before / 255, given / 255).mean())
        self.note(f"the autoencoder alone changes a pixel by {loss:.1f} CIEDE2000 in the mean")
        self.compare(done.before, done.after, np.ones(given.shape[:2], bool))
        self.metrics |= {"mask_iou": None, "prediction_delta_e_at_20pct": None, "steps": 0, "seconds": time.perf_counter() - self.began}
        yield self.frame(1.0, self.summary() + "; nothing is sampled, so nothing is foretold", "done")


def _objects(text: str) -> list[str]:
    """The object words, each once. Raises InputError above the limit."""
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if len(words) > OBJECTS_LIMIT:
        raise InputError("objects", f"{len(words)} objects are named", f"name at most {OBJECTS_LIMIT}")
    return words


def _check_words(prompt: str, model: models.Steerable) -> None:
    """The little model's tokenizer turns a word it does not know into nothing, and cuts what is too long, without a word. Raises InputError."""
    if model.name != LITTLE:
        return
    unknown = sorted({word for word in re.findall(r"\w+|[^\w\s]", prompt.lower()) if word not in little_flux.VOCABULARY})
    if unknown:
        some = ", ".join(f"“{word[:20]}”" for word in unknown[:5])
        raise InputError("prompt", f"the little model does not know {some}", "use words such as " + ", ".join((*scenes.SHAPES, "wall", "red", "on")))
    length = len(model.pipe.tokenizer_2(prompt)["input_ids"])
    if length > model.words:
        raise InputError("prompt", f"it has {length - 1} words", f"use at most {model.words - 1}")


def _shape_overlap(before: Array, after: Array) -> float | None:
    """Intersection over union of the objects in both pictures; None where the first has none that stands out."""
    found = scenes.segment(before)
    if not LARGE <= found.mean() < 1 or float(scenes.delta_e(mean_rgb(before, found), mean_rgb(before, ~found))) < STANDS_OUT:
        return None
    return scenes.overlap(found, scenes.segment(after))
