"""The loop of section 4.5: read, take the signals, hand them out, only then draw on. One text or a batch of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from backends.contract import InputError
from backends.fatigue_index import reading, signals
from backends.fatigue_index.treatments import Context, Treatment, erd_temperature, treated
from backends.runtime.language_model import Decoder
from backends.runtime.text_sampling import draw

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class Slice:
    """The prompt tokens whose attention is summed: ``prefix`` of them from ``start`` on; first: with token 0."""

    prefix: int = 64
    start: int = 0
    drop_first: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """How texts are written. temperature: 0 takes the likeliest token. top_p: of the nucleus. seed: text i draws from (seed, i).

    treatment: of one text only; slice: the attention that SCA watches; self_check: the tokens that PAUSE inserts.
    """

    max_new: int = 100
    temperature: float = 1.0
    top_p: float = 0.95
    seed: int = 0
    treatment: Treatment = "none"
    slice: Slice = field(default_factory=Slice)
    self_check: tuple[int, ...] = ()


@dataclass(slots=True)
class Trace:
    """What was measured of one text, one entry a step; step t is read before its token is drawn.

    ids: drawn tokens. entropy: E_t (nats). after, before: D_t by the state after and before the final norm (before stays empty where the
    library does not show it). rows: (L_p,) each, head mean of the last layer's attention to the prompt. nll: of the drawn token (nats).
    temperature: with which it was drawn. acted: tokens written when a treatment read the context anew, and how many it dropped.
    ended: by an end token. seconds: of the work so far.
    """

    prompt: tuple[int, ...]
    ids: list[int] = field(default_factory=list)
    entropy: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    rows: list[Array] = field(default_factory=list)
    nll: list[float] = field(default_factory=list)
    temperature: list[float] = field(default_factory=list)
    acted: list[tuple[int, int]] = field(default_factory=list)
    ended: bool = False
    seconds: float = 0.0

    def attention(self, of: Slice) -> Array:
        """A_t over this slice, (T,); the heads are already averaged."""
        rows = np.reshape(np.asarray(self.rows, float), (len(self.rows), 1, len(self.prompt)))
        return signals.attention_to_prompt(rows, len(self.prompt), of.prefix, start=of.start, drop_first=of.drop_first)


def generate(decoder: Decoder, prompts: Sequence[Sequence[int]], plan: Plan, check: Callable[[], None] = lambda: None) -> Iterator[list[Trace]]:
    """Writes on after each prompt; after each step yields the traces so far (the same objects, which grow), before the next forward pass.

    prompts: lists of token ids. check: called at least once a pass, may raise to stop. Raises InputError: a prompt that is empty or too
    long, logits that are not numbers (naming the step), a model whose attention cannot be seen, a treatment of several texts.
    """
    _validate(decoder, prompts, plan)
    began = time.perf_counter()
    traces = [Trace(tuple(int(i) for i in row)) for row in prompts]
    generators = [torch.Generator().manual_seed(int(np.random.SeedSequence([plan.seed, i]).generate_state(1)[0])) for i in range(len(prompts))]
    width = max(map(len, prompts))
    # Room for what PAUSE inserts; a context that is read anew begins a cache of its own.
    capacity = width + plan.max_new * (1 + len(plan.self_check))
    pads = [width - len(row) for row in prompts]
    reader = reading.begin(decoder.model, pads, capacity, width)
    at = reading.read_prompts(reader, prompts, decoder.device, check)
    anchors = (at.after, at.before)
    alive = list(range(len(prompts)))
    temperature, rested = plan.temperature, 0
    context = Context(traces[0].prompt, (), 0)
    ends = end_tokens(decoder)
    for step in range(plan.max_new):
        entropy = _entropy(at.logits, step)
        if plan.treatment == "erd":
            temperature = erd_temperature(temperature, float(entropy[0]))
        drawn = draw(at.logits.float().cpu(), temperature, plan.top_p, [generators[i] for i in alive])
        _record([traces[i] for i in alive], at, anchors, entropy, drawn, temperature)
        going = [place for place, (i, token) in enumerate(zip(alive, drawn, strict=True)) if token not in ends]
        for i, token in zip(alive, drawn, strict=True):
            traces[i].ended, traces[i].seconds = token in ends, time.perf_counter() - began
        yield traces
        if not going or step + 1 == plan.max_new:
            return
        check()
        if len(going) < len(alive):
            reader.keep(going)
            anchors = (anchors[0][going], None if anchors[1] is None else anchors[1][going])
            alive, drawn = [alive[p] for p in going], [drawn[p] for p in going]
        rested += 1
        context = Context(context.prompt, (*context.tail, drawn[0]), step + 1)
        anew = treated(plan.treatment, context, float(traces[0].attention(plan.slice)[-1]), rested, plan.self_check)
        if anew is None:
            at = reader.read(torch.tensor(drawn, device=decoder.device)[:, None])
        else:
            traces[0].acted.append((step + 1, len(context.ids) - len(anew.ids)))
            context, rested = anew, 0
            reader = reading.begin(decoder.model, [0], capacity, width)
            at = reading.read_prompts(reader, [context.ids], decoder.device, check)


def _validate(decoder: Decoder, prompts: Sequence[Sequence[int]], plan: Plan) -> None:
    if not prompts or not all(len(row) for row in prompts):
        raise InputError("prompt", "the prompt is empty", "write a few words")
    if plan.treatment != "none" and len(prompts) > 1:
        raise InputError("treatment", f"{len(prompts)} texts are written at once, which are not treated", "choose none")
    limit = int(getattr(decoder.model.config, "max_position_embeddings", 0) or 1 << 30)
    longest, new = max(map(len, prompts)), plan.max_new + len(plan.self_check) * (plan.max_new // 50)
    if longest + new > limit:
        raise InputError("prompt", f"a prompt of {longest:,} tokens and {new:,} after it pass the model's {limit:,}", "shorten it, or write fewer tokens")


def _entropy(logits: torch.Tensor, step: int) -> Array:
    try:
        return signals.entropy(logits.double().cpu().numpy())
    except ValueError:
        raise InputError("model", f"the logits of step {step} are not numbers", "choose another model or another prompt") from None


def _record(
    traces: Sequence[Trace], at: reading.Reading, anchors: tuple[Array, Array | None], entropy: Array, drawn: Sequence[int], temperature: float
) -> None:
    """Adds one step to the traces of the rows that are read."""
    rows = at.rows.mean(1)
    after = signals.drift(at.after, anchors[0])
    before = None if at.before is None or anchors[1] is None else signals.drift(at.before, anchors[1])
    chosen = torch.tensor(list(drawn), device=at.logits.device)
    nll = torch.nn.functional.cross_entropy(at.logits.float(), chosen, reduction="none").cpu().numpy()
    for place, trace in enumerate(traces):
        trace.ids.append(drawn[place])
        trace.entropy.append(float(entropy[place]))
        trace.after.append(float(after[place]))
        if before is not None:
            trace.before.append(float(before[place]))
        trace.rows.append(rows[place, : len(trace.prompt)])
        trace.nll.append(float(nll[place]))
        trace.temperature.append(temperature)


def end_tokens(decoder: Decoder) -> set[int]:
    """The tokens that end a text: the model's own and the tokenizer's."""
    stated = getattr(decoder.model.generation_config, "eos_token_id", None)
    listed = stated if isinstance(stated, list) else [stated]
    return {int(token) for token in (*listed, decoder.tokenizer.eos_token_id) if token is not None}
