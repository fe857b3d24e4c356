"""One run of fatigue-index as a stream of frames: a text with its signals token by token, or a study of twenty texts."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from backends.contract import Context, Frame, InputError, MetricValue
from backends.fatigue_index import alarm, picture
from backends.fatigue_index.calibration import Calibration, calibrate, shipped
from backends.fatigue_index.card import DEFAULT_PROMPT, Params
from backends.fatigue_index.generation import Plan, Slice, Trace, generate
from backends.fatigue_index.index import PAPER, SUM_ERROR, Constants
from backends.fatigue_index.prompts import STUDY, Prompt, encode
from backends.fatigue_index.study import compare, scores
from backends.fatigue_index.treatments import SELF_CHECK
from backends.runtime import device, language_model

FRAME_S, STUDY_FRAME_S = 0.1, 0.4  # at least, between two frames
LIVE = tuple(name for name, field in Params.model_fields.items() if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("live"))
TREATED = {"sca": "attention fell below 0.010", "par": "50 tokens passed", "pause": "a self-check was put in"}


def run(params: Params, context: Context) -> Iterator[Frame]:
    """Streams a run; a live one gives its last frame only, from the stored text."""
    started = _Run(params, context)
    for frame in started.study() if params.study else started.text():
        if context.live not in LIVE or frame.progress == 1.0:
            yield frame


class _Run:
    """One run: what is asked of the model, and the frames made of what it wrote so far."""

    def __init__(self, params: Params, context: Context) -> None:
        self.params, self.context = params, context
        self.began = time.perf_counter()
        self.notes: list[str] = []
        self.constants = self._constants()
        self.calibration = shipped().get(params.model)

    def _constants(self) -> Constants:
        """The asked constants; weights that do not sum to 1 are divided by their sum, which is said."""
        params = self.params
        if params.entropy_low >= params.entropy_high:
            problem = f"the band would begin at {params.entropy_low:g} nats and end at {params.entropy_high:g}"
            raise InputError("entropy_low", problem, "choose a beginning below the end")
        if params.theta_low > params.theta:
            problem = f"the alarm would go off at {params.theta_low:g}, above where it goes on ({params.theta:g})"
            raise InputError("theta_low", problem, f"choose at most {params.theta:g}")
        total = math.fsum(params.weights)
        if total <= 0:
            raise InputError("weights", "all three weights are 0", "raise at least one")
        weights = tuple(params.weights)
        if abs(total - 1) > SUM_ERROR:
            weights = tuple(w / total for w in weights)
            self.notes.append(f"the weights sum to {total:.3g} and were divided by it: " + ", ".join(f"{w:.3g}" for w in weights))
        return Constants(weights, params.entropy_low, params.entropy_high, params.beta, params.kappa)

    @cached_property
    def decoder(self) -> language_model.Decoder:
        return language_model.load(self.context.models, self.params.model, self.context.device)

    def slice(self, prompt: Prompt, *, drop_first: bool | None = None) -> Slice:
        """The prompt tokens whose attention counts, by the params."""
        params = self.params
        start, stop = (prompt.start, prompt.stop) if params.slice == "instruction" else (0, len(prompt.ids))
        return Slice(min(params.prefix, stop - start), start, params.drop_first if drop_first is None else drop_first)

    def plan(self, of: Slice) -> Plan:
        """How the text is written. Raises InputError for choices that do not go together."""
        params = self.params
        greedy = params.decoding == "greedy"
        if params.treatment == "erd" and greedy:
            raise InputError("treatment", "ERD steers the temperature, and greedy decoding has none", "choose the decoding top-p")
        if params.study and params.treatment != "none":
            raise InputError("treatment", "the study writes twenty untreated texts", "choose none, or leave the study")
        check = self.decoder.tokenizer(SELF_CHECK + params.prompt.strip() + "\n").input_ids if params.treatment == "pause" else []
        watched = of if params.treatment == "sca" else Slice()  # only SCA's text depends on it
        return Plan(params.max_new, 0.0 if greedy else params.temperature, params.top_p, params.seed, params.treatment, watched, tuple(check))

    def written(self, prompts: list[Prompt], plan: Plan) -> Iterator[list[Trace]]:
        """The texts as they grow; stored ones come whole."""
        whole: list[list[Trace]] = []
        ids = [p.ids for p in prompts]

        def compute(emit: Callable[[list[Trace]], None]) -> list[Trace]:
            traces: list[Trace] = []
            for traces in generate(self.decoder, ids, plan, self.context.check):
                emit([snapshot(t) for t in traces])
            return traces

        def work(emit: Callable[[list[Trace]], None]) -> None:
            whole.append(self.context.memo("texts", (self.params.model, ids, plan), lambda: compute(emit)))

        shown = 0.0
        for traces in self.context.stream(work):
            if time.perf_counter() - shown > (STUDY_FRAME_S if self.params.study else FRAME_S):
                shown = time.perf_counter()
                yield traces
        yield whole[0]

    # ---------------------------------------------------------------------------------------------------- one text

    def text(self) -> Iterator[Frame]:
        prompt = encode(self.decoder, self.params.prompt)
        of = self.slice(prompt)
        plan = self.plan(of)
        said = "the lab's tea prompt" if self.params.prompt == DEFAULT_PROMPT else "a given prompt"
        data = {
            "made_by": self.made_by(said, f"{len(prompt.ids)} prompt tokens, at most {plan.max_new} new"),
            "prompt": self.words(prompt),
            "room": plan.max_new,
            "inserted": len(plan.self_check),
        }
        yield Frame(0.01, f"{len(prompt.ids)} prompt tokens are being read", {}, data | {"notes": list(self.notes)})
        traces: list[Trace] = []
        for traces in self.written([prompt], plan):
            yield self.frame(min(0.98, 0.01 + 0.97 * len(traces[0].ids) / plan.max_new), traces[0], prompt, data)
        if self.calibration is None:
            self.calibration = self.measured()
        yield self.frame(1.0, traces[0], prompt, data)

    def frame(self, progress: float, trace: Trace, prompt: Prompt, data: dict[str, Any]) -> Frame:
        """The state after the newest token."""
        of = self.slice(prompt)
        ways = {"paper": PAPER, "asked": self.constants}
        if self.calibration is not None and (self.params.state == "after" or self.calibration.kappa_before is not None):
            ways["calibrated"] = self.calibration.constants(self.params.state)
        if not getattr(trace, self.params.state):
            raise InputError("state", f"{self.params.model} does not show its state before the final norm", "choose after")
        found = picture.watch(trace, of, self.constants, self.params)
        compared = {
            f"{name}{'_rest' if drop else ''}": picture.watch(trace, replace(of, drop_first=drop), constants, self.params)
            for name, constants in ways.items()
            if name != "asked"
            for drop in (False, True)
        }
        first = trace.attention(Slice(prefix=1))
        shown = picture.text(trace, self.decode(trace.ids), found, first)
        more = {
            "compared": picture.compared(compared),
            "constants": {name: picture.constants(constants) for name, constants in ways.items()},
            "levels": [self.params.theta, self.params.theta_low],
            "slice": [of.start, min(of.start + of.prefix, len(trace.prompt)), of.drop_first],
            "notes": self.said(trace, found),
        }
        flips = shown["flips"]
        metrics: dict[str, MetricValue] = {
            "fi_mean": float(found.fi.mean()),
            "fi_last": float(found.fi[-1]),
            "attention_last": float(found.attention[-1]),
            "entropy_last": float(found.entropy[-1]),
            "drift_last": float(found.drift[-1]),
            "repetition_ratio": float(shown["signals"]["repetition"][-1]),
            "flips_threshold": flips["threshold"],
            "flips_hysteresis": flips["hysteresis"],
            "tokens": len(trace.ids),
            "tokens_per_second": len(trace.ids) / max(trace.seconds, 1e-9),
            "seconds": time.perf_counter() - self.began,
        }
        state = "on" if found.alarm[-1] else "off"
        message = f"token {len(trace.ids)}: index {found.fi[-1]:.2f}, mean {found.fi.mean():.2f}, alarm {state}"
        if progress == 1.0:
            message += "; the model ended its text" if trace.ended else ""
        return Frame(progress, "; ".join([message, *self.notes]), metrics, data | shown | more)

    def said(self, trace: Trace, found: picture.Watched) -> list[str]:
        """What a visitor should know of this run."""
        said, kind = list(self.notes), self.params.treatment
        if kind in TREATED:
            acted = [f"{step} ({dropped} tokens dropped)" if dropped > 0 else str(step) for step, dropped in trace.acted]
            when = ", ".join(acted) if acted else f"never; the lowest attention was {found.attention.min():.3f}"
            said.append(f"{kind.upper()}, companion paper: {TREATED[kind]}, after token {when}")
        if kind == "erd":
            said.append(f"ERD, companion paper: the temperature is now {trace.temperature[-1]:.2f}")
        return said

    def words(self, prompt: Prompt) -> dict[str, Any]:
        """The prompt's tokens, and where the person's own words stand among them."""
        return {"text": self.decode(prompt.ids), "start": prompt.start, "stop": prompt.stop}

    def decode(self, ids: Any) -> list[str]:
        """The text of each token alone."""
        tokenizer = self.decoder.tokenizer
        return [tokenizer.decode([i]) for i in ids]

    def measured(self) -> Calibration | None:
        """The calibrated constants of a model that has no shipped ones; None, with a note, where its texts do not allow it."""
        self.context.say("measuring the healthy band of this model")
        try:
            return self.context.memo("calibration", self.params.model, lambda: calibrate(self.decoder, self.context.check))
        except ValueError as error:
            self.notes.append(f"no calibrated constants: {error}")
            return None

    def made_by(self, data: str, size: str) -> dict[str, str]:
        on = device.describe() if self.context.device == "cpu" else self.context.device
        return {"model": self.decoder.description, "data": data, "size": size, "device": on}

    # -------------------------------------------------------------------------------------------------- the study

    def study(self) -> Iterator[Frame]:
        prompts = [encode(self.decoder, request) for request in STUDY]
        slices = [self.slice(p) for p in prompts]
        plan = self.plan(slices[0])
        data = {"made_by": self.made_by("the lab's twenty prompts", f"{len(prompts)} texts of at most {plan.max_new} tokens"), "notes": list(self.notes)}
        yield Frame(0.01, "twenty prompts are being read", {}, data)
        traces: list[Trace] = []
        for traces in self.written(prompts, plan):
            longest = max(len(t.ids) for t in traces)
            yield self.study_frame(min(0.98, 0.01 + 0.97 * longest / plan.max_new), traces, slices, data, None)
        yield self.study_frame(1.0, traces, slices, data, self.context.rng)

    def study_frame(self, progress: float, traces: list[Trace], slices: list[Slice], data: dict[str, Any], rng: np.random.Generator | None) -> Frame:
        """All texts as far as they are written; with ``rng`` the intervals too."""
        if not traces[0].before and self.params.state == "before":
            raise InputError("state", f"{self.params.model} does not show its state before the final norm", "choose after")
        found = scores(traces, slices, self.constants, self.params.state)
        rows = compare(found, rng)
        each = [picture.watch(trace, of, self.constants, self.params) for trace, of in zip(traces, slices, strict=True)]
        flips = np.array([[alarm.flips(w.threshold), alarm.flips(w.alarm)] for w in each], float)
        last = np.array([[w.fi[-1], w.attention[-1], w.entropy[-1], w.drift[-1]] for w in each])
        tokens = [len(t.ids) for t in traces]
        seconds = max(t.seconds for t in traces)
        metrics: dict[str, MetricValue] = {
            "fi_mean": float(found.fi.mean()),
            **{name: float(x) for name, x in zip(("fi_last", "attention_last", "entropy_last", "drift_last"), last.mean(0), strict=True)},
            "repetition_ratio": float(found.repetition.mean()),
            "flips_threshold": float(flips[:, 0].mean()),
            "flips_hysteresis": float(flips[:, 1].mean()),
            "tokens": sum(tokens),
            "tokens_per_second": sum(tokens) / max(seconds, 1e-9),
            "seconds": time.perf_counter() - self.began,
        }
        own = rows[0].correlation
        rho = "not defined yet: no text repeats" if own.rho is None else f"{own.rho:.2f}"
        between = "" if own.low is None or own.high is None else f" (95 % from {round(own.low, 2) + 0.0:.2f} to {round(own.high, 2) + 0.0:.2f})"
        message = f"twenty texts, {max(tokens)} tokens: rank correlation of index and repetition {rho}{between}; other figures are means over the texts"
        return Frame(progress, message, metrics, data | {"study": picture.study(found, rows, STUDY, tokens)})


def snapshot(trace: Trace) -> Trace:
    """A trace that later steps do not change; its arrays are never written to again."""
    kept = copy.copy(trace)
    for name in ("ids", "entropy", "after", "before", "rows", "nll", "temperature", "acted"):
        setattr(kept, name, list(getattr(trace, name)))
    return kept
