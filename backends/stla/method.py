"""One run of stla as a stream of frames: a matrix rounded cluster by cluster beside its peers, or a block and the perplexity after it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import torch

from backends.contract import Context, Frame, InputError, MetricValue
from backends.runtime import device, language_model
from backends.stla import blocks, picture, whole_model, windows
from backends.stla.block import Setting, quantise, round_layer
from backends.stla.blocks import MATRICES, Chunk, Moments
from backends.stla.card import Params
from backends.stla.curvature import damped, upper_factor
from backends.stla.example import example
from backends.stla.inputs import moments_of
from backends.stla.rounding import Learning
from backends.stla.sweep import Progress, Watch
from backends.stla.tensors import check_sizes

FRAME_S = 0.3  # at least, from one frame of a sweep to the next
MODEL = language_model.DEFAULT
INPUT_FIELDS = ("layer", "calibration_tokens", "seed")
ROUND_FIELDS = ("bits", "group", "damping")
LEARN_FIELDS = ("iterations", "learning_rate", "regulariser")
PEERS = {  # in the order they are run: metric, words
    "rtn": ("loss_rtn", "nearest"),
    "gptq": ("loss_gptq", "GPTQ"),
    "gptq-act": ("loss_gptq_act", "GPTQ, act order"),
    "adaround": ("loss_adaround", "AdaRound"),
    "decoupled": (None, "GPTQ then AdaRound"),
    "stla": ("loss_stla", "STLA"),
    "stla-local": ("loss_stla_local", "STLA, local"),
}
LEARNED = ("adaround", "decoupled", "stla", "stla-local")
BITS = (2, 3, 4)
Emit = Callable[[dict[str, Any]], None]


def run(params: Params, context: Context) -> Iterator[Frame]:
    """Streams a run; a live one gives its last frame only, from stored parts."""
    started = _Run(params, context)
    frames = started.layer_frames() if params.mode == "layer" else started.block_frames()
    for frame in frames:
        if context.live is None or frame.progress == 1.0:
            yield frame


class _Run:
    """The stages of one run; what each knows is added to ``data`` and ``metrics``, which every frame shows whole."""

    def __init__(self, params: Params, context: Context) -> None:
        self.params, self.context = params, context
        self.began = time.perf_counter()
        self.data: dict[str, Any] = {"notes": [], "losses": {}}
        self.metrics: dict[str, MetricValue] = {}

    def frame(self, progress: float, message: str) -> Frame:
        seconds = {"seconds": time.perf_counter() - self.began}
        return Frame(progress, message, self.metrics | seconds, self.data | {"losses": dict(self.data["losses"]), "notes": list(self.data["notes"])})

    # ------------------------------------------------------------------------------------------------ what all stages share

    @cached_property
    def decoder(self) -> language_model.Decoder:
        return language_model.load(self.context.models, MODEL, self.context.device)

    @property
    def name(self) -> str:
        """The matrix in words."""
        return f"{self.params.matrix} of layer {self.params.layer}"

    @property
    def main(self) -> str:
        """The method that the main picture shows."""
        return "stla" if self.params.objective == "global" else "stla-local"

    @cached_property
    def ids(self) -> torch.Tensor:
        return windows.calibration(self.decoder.tokenizer, self.params.calibration_tokens, self.context.rng)

    @cached_property
    def setting(self) -> Setting:
        return self.setting_of(self.params.bits)

    def setting_of(self, bits: int) -> Setting:
        p = self.params
        learning = Learning(p.iterations, p.learning_rate, p.regulariser, torch.float32)
        group = None if p.group == "per-channel" else p.group
        return Setting(bits, p.cluster, group, p.order, p.damping, p.asymmetric_correction, learning)

    def opening(self) -> None:
        params = self.params
        names = list(MATRICES) if params.mode == "block" else [params.matrix]
        block = blocks.layers_of(self.decoder.model)[params.layer]
        for name in names:
            self.refuse(name, blocks.linear_of(block, name).weight.shape[1])
        on = device.describe() if self.context.device == "cpu" else self.context.device
        size = " x ".join(map(str, blocks.linear_of(block, params.matrix).weight.shape))
        tokens = f"{self.ids.numel()} tokens of calibration"
        self.data |= {
            "made_by": {
                "model": self.decoder.description,
                "data": "the Constitution of the United States" + (", judged on the King James Version" if params.mode == "block" else ""),
                "size": f"{self.name}, {size}; {tokens}" if params.mode == "layer" else f"seven matrices of layer {params.layer}; {tokens}",
                "device": on,
            },
            "example": example() | {"chosen": params.by_hand},
            "whole": whole_model.table(),
        }

    def refuse(self, matrix: str, columns: int) -> None:
        """What only the matrix can tell. Raises InputError."""
        params = self.params
        group = columns if params.group == "per-channel" else params.group
        if columns % group:
            raise InputError("group", f"{group} does not divide the {columns} columns of {matrix}", f"choose a divisor of {columns}, such as 64, 96 or 192")
        if params.cluster > columns:
            raise InputError("cluster", f"{matrix} has {columns} columns", f"choose at most {columns}")
        try:
            check_sizes(columns, params.cluster, group)
        except ValueError as error:
            raise InputError("cluster", str(error), f"choose a divisor of {group}, or a multiple of it") from None
        if self.ids.numel() < columns and not params.damping:
            raise InputError("damping", f"{self.ids.numel()} tokens cannot span {columns} columns without damping", "raise the damping or the tokens")

    def key(self, *fields: str) -> tuple[Any, ...]:
        return tuple(getattr(self.params, name) for name in fields)

    # -------------------------------------------------------------------------------------------------------- one matrix

    @cached_property
    def weights(self) -> torch.Tensor:
        return blocks.weight_of(blocks.layers_of(self.decoder.model)[self.params.layer], self.params.matrix)

    @cached_property
    def moments(self) -> Moments:
        params = self.params
        rounded = (params.bits, self.setting.group) if params.asymmetric_correction else None

        def make() -> Moments:
            return moments_of(self.decoder.model, self.ids, params.layer, params.matrix, self.context.check, rounded)

        stage = next(s for s in blocks.STAGES if params.matrix in s)
        return self.context.memo("moments", (*self.key(*INPUT_FIELDS), stage, rounded), make)

    def layer_frames(self) -> Iterator[Frame]:
        params = self.params
        self.opening()
        yield self.frame(0.0, f"reading {self.ids.numel()} tokens up to layer {params.layer}")
        found = self.moments
        if params.asymmetric_correction and found.drift is None:
            self.data["notes"].append("no matrix comes before this one: the correction is zero")
        self.definite()
        self.data["orders"] = self.context.memo("orders", self.layer_key("cluster", "order"), self.orders)
        self.losses("rtn")
        yield self.frame(0.1, f"{self.name}: nearest rounding loses {self.metrics['loss_rtn']:.4g}")
        for part in self.swept(self.main):
            self.data |= part["picture"]
            share = part["picture"]["heat"]["done"] / part["picture"]["heat"]["columns"]
            yield self.frame(0.1 + 0.3 * share, part["message"])
        other = "stla-local" if self.main == "stla" else "stla"
        for number, method in enumerate((other, "gptq", "gptq-act", "adaround", "decoupled"), 1):
            yield self.frame(0.4 + 0.08 * (number - 1), f"{self.name}: {PEERS[method][1]}")
            self.losses(method)
        self.measure()
        for number, bits in enumerate(b for b in BITS if b != params.bits):
            yield self.frame(0.8 + 0.1 * number, f"{self.name}: the same at {bits} bits")
            self.bits(bits)
        yield self.frame(1.0, self.summary())

    def layer_key(self, *more: str) -> tuple[Any, ...]:
        return self.key(*INPUT_FIELDS, "matrix", *ROUND_FIELDS, "asymmetric_correction", *more)

    def definite(self) -> None:
        """Raises InputError where H is not positive definite even when damped."""
        try:
            upper_factor(damped(self.weights, self.moments.second, self.params.damping)[1])
        except ValueError:
            raise InputError("damping", f"H of {self.name} is not positive definite", "raise the damping or the calibration tokens") from None

    def orders(self) -> dict[str, Any]:
        return picture.orders(self.weights, self.moments.second, self.params.cluster, self.params.order, self.params.damping)

    def method_key(self, method: str, bits: int) -> tuple[Any, ...]:
        learned = LEARN_FIELDS if method in LEARNED else ()
        swept = ("cluster", "order") if method.startswith("stla") else ()
        return (method, bits, *self.layer_key(*learned, *swept))

    def rounded(self, method: str, bits: int) -> dict[str, Any]:
        """One method without pictures: its loss and its clusters."""

        def make() -> dict[str, Any]:
            watch = Watch(self.context.check)
            found = round_layer(self.weights, self.moments, method, self.setting_of(bits), watch)
            return self.told(found)

        return self.context.memo("rounded", self.method_key(method, bits), make)

    def told(self, found: Any) -> dict[str, Any]:
        loss = self.moments.loss(self.weights, found.weights, self.params.damping)
        apart = abs(sum(c.remaining for c in found.clusters) - found.loss) / max(found.loss, 1e-300)
        return {"loss": loss, "clusters": picture.clusters(found.clusters), "telescoping": apart}

    def losses(self, method: str) -> None:
        """Runs a method at the bits of this run and notes its loss."""
        found = self.rounded(method, self.params.bits)
        self.note_loss(method, found["loss"])
        if method.startswith("stla"):
            self.data["judged"] = self.data.get("judged", {}) | {method: found["clusters"]}

    def note_loss(self, method: str, loss: float) -> None:
        metric = PEERS[method][0]
        if metric is not None:
            self.metrics[metric] = loss
        self.data["losses"] = self.data["losses"] | {method: loss}

    def swept(self, method: str) -> Iterator[dict[str, Any]]:
        """The main sweep with its pictures; a stored one comes at once."""
        whole: list[dict[str, Any]] = []
        params = self.params

        def compute(emit: Emit) -> dict[str, Any]:
            recorder = picture.Recorder(*damped(self.weights, self.moments.second, params.damping), self.setting)
            last: list[Progress] = []
            shown = [0.0]

            def progress(now: Progress) -> None:
                recorder.note(now)
                last[:] = [now]
                if time.perf_counter() - shown[0] > FRAME_S:
                    shown[0] = time.perf_counter()
                    emit({"picture": recorder.data(now), "message": self.words(now)})

            found = round_layer(self.weights, self.moments, method, self.setting, Watch(self.context.check, progress))
            return {"picture": recorder.data(last[0]), "message": self.words(last[0]), **self.told(found)}

        def work(emit: Emit) -> None:
            whole.append(self.context.memo("swept", self.method_key(method, params.bits), lambda: compute(emit)))

        yield from self.context.stream(work)
        self.note_loss(method, whole[0]["loss"])
        self.metrics["telescoping_error"] = None if params.asymmetric_correction else whole[0]["telescoping"]
        self.data["judged"] = {method: whole[0]["clusters"]}
        yield whole[0]

    def words(self, now: Progress) -> str:
        count = -(-now.original.shape[1] // self.params.cluster)
        if now.step is None:
            return f"{self.name}: {len(now.clusters)} of {count} clusters rounded"
        return f"{self.name}: cluster {len(now.clusters) + 1} of {count}, step {now.step.iteration}"

    def measure(self) -> None:
        self.metrics |= {"perplexity_full": None, "perplexity_stla": None}
        self.data["bits"] = {}
        self.bits(self.params.bits)

    def bits(self, bits: int) -> None:
        """Losses of three methods at so many bits."""
        found = {method: self.rounded(method, bits)["loss"] for method in ("rtn", "gptq-act")}
        found["stla"] = self.metrics["loss_stla"] if bits == self.params.bits else self.rounded("stla", bits)["loss"]
        self.data["bits"] = dict(sorted((self.data["bits"] | {str(bits): found}).items()))

    def summary(self) -> str:
        metrics = self.metrics
        text = f"{self.name}, {self.params.bits} bits: nearest loses {metrics['loss_rtn']:.4g}, GPTQ {metrics['loss_gptq']:.4g}"
        text += f", STLA {metrics['loss_stla']:.4g}, judged locally {metrics['loss_stla_local']:.4g}; perplexity is measured in block mode"
        return text + ("; with the correction the identity does not hold" if self.params.asymmetric_correction else "")

    # --------------------------------------------------------------------------------------------------------- one block

    def block_frames(self) -> Iterator[Frame]:
        params = self.params
        self.opening()
        yield self.frame(0.0, f"reading {self.ids.numel()} tokens up to layer {params.layer}")
        whole: list[dict[str, Any]] = []

        def compute(emit: Emit) -> dict[str, Any]:
            return self.block(emit)

        def work(emit: Emit) -> None:
            fields = (*INPUT_FIELDS, *ROUND_FIELDS, *LEARN_FIELDS, "cluster", "order", "objective", "asymmetric_correction")
            whole.append(self.context.memo("block", self.key(*fields), lambda: compute(emit)))

        progress = 0.0
        for part in self.context.stream(work):
            progress = max(progress, part["progress"])
            self.take(part)
            yield self.frame(progress, part["message"])
        self.take(whole[0])
        self.metrics |= dict.fromkeys(("loss_adaround", "loss_gptq"))
        self.metrics["loss_stla_local" if self.main == "stla" else "loss_stla"] = None
        before, after = self.metrics["perplexity_full"], self.metrics["perplexity_stla"]
        text = f"layer {params.layer} rounded to {params.bits} bits: perplexity {before:.2f} before, {after:.2f} after; "
        yield self.frame(1.0, text + "AdaRound, GPTQ in plain order and the other objective are measured in layer mode")

    def take(self, part: dict[str, Any]) -> None:
        """What the block's thread has found so far."""
        self.data |= part["picture"]
        self.metrics |= part["metrics"]
        self.data["losses"] = part["losses"]
        self.data["perplexity"] = part["perplexity"]

    def block(self, emit: Emit) -> dict[str, Any]:
        """Rounds the block by three methods and reads the other text with each."""
        params, context, model = self.params, self.context, self.decoder.model
        told = windows.evaluation(self.decoder.tokenizer)[: max(1, params.calibration_tokens // windows.WINDOW)]
        state: dict[str, Any] = {"picture": {}, "metrics": {}, "losses": {}, "perplexity": {}, "progress": 0.0}

        def show(progress: float, message: str) -> None:
            state["progress"] = progress
            emit({**state, **{k: dict(state[k]) for k in ("picture", "metrics", "losses", "perplexity")}, "message": message})

        layers = blocks.layers_of(model)
        calibrated, judged = blocks.enter(model, self.ids), blocks.enter(model, told)
        for layer in layers[: params.layer]:
            calibrated, judged = blocks.pass_on(layer, calibrated, context.check), blocks.pass_on(layer, judged, context.check)
        for number, method in enumerate((self.main, "gptq-act", "rtn")):
            own = self.one_block(layers[params.layer], calibrated, method, show, state, 0.05 + 0.3 * number)
            show(0.2 + 0.3 * number, f"{PEERS[method][1]}: reading another text")
            state["perplexity"][method] = self.read(judged, own, told)
            if method == self.main:
                state["metrics"]["perplexity_stla"] = state["perplexity"][method]
                state["perplexity"]["full"] = self.read(judged, layers[params.layer], told)
                state["metrics"]["perplexity_full"] = state["perplexity"]["full"]
        if windows.overlap(self.ids, told):
            self.data["notes"].append("the model is judged on a text that it was calibrated on: its perplexity flatters")
        return {**state, "message": ""}

    def one_block(self, block: Any, chunks: list[Chunk], method: str, show: Callable[[float, str], None], state: dict[str, Any], since: float) -> Any:
        """The block rounded by one method; the main one shows its sweep, matrix after matrix."""
        shown = [0.0]
        current: list[Any] = []

        def begin(matrix: str) -> None:
            current[:] = [matrix, None]
            show(since + 0.02 * list(MATRICES).index(matrix), f"{PEERS[method][1]}: {matrix} of layer {self.params.layer}")

        def progress(now: Progress) -> None:
            if current[1] is None:
                current[1] = picture.Recorder(now.original[:, torch.argsort(now.order)], None, self.setting)
            current[1].note(now)
            if time.perf_counter() - shown[0] > FRAME_S:
                shown[0] = time.perf_counter()
                state["picture"] = current[1].data(now) | {"matrix": current[0]}
                show(state["progress"], f"{PEERS[method][1]}: {current[0]}, {len(now.clusters)} clusters rounded")

        watch = Watch(self.context.check, progress if method == self.main else None)
        found = quantise(block, chunks, method, self.setting, watch=watch, begin=begin)
        metric = PEERS[method][0]
        state["losses"][method] = sum(found.losses.values())
        if metric is not None:
            state["metrics"][metric] = state["losses"][method]
        if method == self.main:
            state["metrics"]["telescoping_error"] = found.telescoping
        return found.block

    def read(self, judged: list[Chunk], block: Any, told: torch.Tensor) -> float:
        """Perplexity with this block in the place of the layer's."""
        model, check = self.decoder.model, self.context.check
        for layer in (block, *blocks.layers_of(model)[self.params.layer + 1 :]):
            judged = blocks.pass_on(layer, judged, check)
        return blocks.perplexity(model, judged, told, check)
