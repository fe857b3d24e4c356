"""Text from a language model: one ``sample`` over two engines, llama.cpp on packed weights and transformers in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from backends.contract import InputError
from backends.runtime import model_files
from backends.runtime.models import Models

if TYPE_CHECKING:
    import torch

    from backends.runtime.language_model import Decoder

Engine = Literal["auto", "llama.cpp", "transformers"]
Check = Callable[[], None]
Emit = Callable[[int, str], None]

PREFILL_TOKENS = 128  # of all prompts of a batch in one forward pass: about half a second on one core, between two looks at Stop


@dataclass(frozen=True, slots=True)
class Sample:
    """What was written after one prompt. finish: "stop" (end of text, or a stop string, which is cut off) or "length"."""

    text: str
    tokens: int
    finish: Literal["stop", "length"]


def sample(
    source: Decoder | str,
    prompts: Sequence[str],
    *,
    models: Models,
    max_new: int = 128,
    temperature: float = 0.8,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Sequence[str] = (),
    batch: int = 8,
    emit: Emit | None = None,
    check: Check = lambda: None,
    engine: Engine = "auto",
) -> list[Sample]:
    """Continues each prompt; the answer has the order of the prompts.

    source: a loaded decoder, or a model's name. max_new: tokens at most. temperature: 0 takes the likeliest token. top_p: the
    smallest set of tokens of at least this probability is drawn from, after the temperature. seed: prompt i draws from a stream
    of (seed, i), so that equal prompts differ and equal calls agree. stop: strings that end a text. emit(i, piece): the text of
    prompt i as it grows, called in this thread. check: called between steps, may raise to stop.
    engine: "llama.cpp" reads the packed weights of a model that has a GGUF file, one prompt after another, so that a text does
    not depend on its neighbours; "transformers" computes in float32, ``batch`` prompts together (measured with 16: 1.4 times the
    tokens of llama.cpp); "auto" is llama.cpp where it can be. The two differ by rounding: greedy texts agree until two tokens are
    nearly equally likely.
    Raises InputError: empty or too long prompt, value out of range, model that the engine cannot run.
    """
    _validate(prompts, max_new, temperature, top_p, batch, stop)
    name = source if isinstance(source, str) else source.name
    packed = model_files.gguf(name) if engine != "transformers" else None
    seeds = [int(np.random.SeedSequence([seed, i]).generate_state(1)[0]) for i in range(len(prompts))]
    texts = [_Text(stop, None if emit is None else partial(emit, i)) for i in range(len(prompts))]
    if packed is not None:
        from backends.runtime import llama_cpp

        pool = llama_cpp.load(models, name, packed)
        for prompt, one, text in zip(prompts, seeds, texts, strict=True):
            with pool.stream(prompt, max_new, temperature, top_p, one, check) as pieces:
                text.take(pieces)
        return [text.sample() for text in texts]
    if engine == "llama.cpp":
        raise InputError("engine", f"{name} has no GGUF file, which llama.cpp needs", "use the engine transformers")
    if isinstance(source, str):
        from backends.runtime import device, language_model

        source = language_model.load(models, source, device.default())
    for start in range(0, len(prompts), batch):
        part = slice(start, start + batch)
        _generate(source, prompts[part], texts[part], max_new, temperature, top_p, seeds[part], check)
    return [text.sample() for text in texts]


def _validate(prompts: Sequence[str], max_new: int, temperature: float, top_p: float, batch: int, stop: Sequence[str]) -> None:
    for number, prompt in enumerate(prompts):
        if not prompt:
            raise InputError("prompt", f"prompt {number} is empty", "write at least one character")
    for field, value, held, remedy in (
        ("max_new", max_new, max_new >= 1, "choose at least 1"),
        ("temperature", temperature, 0 <= temperature < float("inf"), "choose 0 or more"),
        ("top_p", top_p, 0 < top_p <= 1, "choose above 0, at most 1"),
        ("batch", batch, batch >= 1, "choose at least 1"),
        ("stop", stop, not isinstance(stop, str) and all(stop), "give a list of strings that are not empty"),
    ):
        if not held:
            raise InputError(field, f"{value!r} is out of range", remedy)


class _Text:
    """A growing text that ends at a stop string; what may be the beginning of one is held back from ``emit``."""

    def __init__(self, stop: Sequence[str], emit: Callable[[str], None] | None) -> None:
        self.stop, self.emit = tuple(stop), emit
        self.text, self.tokens, self.emitted = "", 0, 0
        self.finish: Literal["stop", "length"] = "length"

    def add(self, piece: str, tokens: int = 1) -> bool:
        """Takes the next piece of ``tokens`` tokens; True when a stop string ended the text."""
        self.tokens += tokens
        longest = max(map(len, self.stop), default=0)
        searched = max(0, len(self.text) - longest)
        self.text += piece
        found = [at for at in (self.text.find(s, searched) for s in self.stop) if at >= 0]
        if found:
            self.text = self.text[: min(found)]
            self.end("stop")
            return True
        self._send(len(self.text) - self._held())
        return False

    def end(self, finish: Literal["stop", "length"]) -> None:
        self.finish = finish
        self._send(len(self.text))

    def take(self, pieces: Iterator[tuple[str, int, Literal["stop", "length"] | None]]) -> None:
        """Reads (piece, tokens, finish) until the text ends."""
        for piece, tokens, finish in pieces:
            if self.add(piece, tokens):
                return
            if finish is not None:
                return self.end(finish)

    def sample(self) -> Sample:
        return Sample(self.text, self.tokens, self.finish)

    def _held(self) -> int:
        return max((n for s in self.stop for n in range(1, len(s)) if self.text.endswith(s[:n])), default=0)

    def _send(self, until: int) -> None:
        if self.emit is not None and until > self.emitted:
            self.emit(self.text[self.emitted : until])
        self.emitted = max(self.emitted, until)


def _generate(
    decoder: Decoder, prompts: Sequence[str], texts: Sequence[_Text], max_new: int, temperature: float, top_p: float, seeds: Sequence[int], check: Check
) -> None:
    """Greedy or drawn tokens in float32. Not the library's ``generate``: that draws from the global random state, which other runs
    share, and neither looks at Stop while it reads the prompts nor lets finished texts leave the batch."""
    import torch
    from tokenizers.decoders import DecodeStream

    from backends.runtime import token_loop

    model, backend = decoder.model, decoder.tokenizer.backend_tokenizer
    ids = [decoder.tokenizer(prompt).input_ids for prompt in prompts]
    limit = int(getattr(model.config, "max_position_embeddings", 0) or 1 << 30)
    width = max(map(len, ids))
    if width + max_new > limit:
        raise too_long(width, max_new, limit)
    ends = _end_tokens(decoder)
    streams = [DecodeStream(skip_special_tokens=True) for _ in ids]
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    pads = [width - len(row) for row in ids]
    tokens = torch.tensor([[0] * pad + row for pad, row in zip(pads, ids, strict=True)], device=decoder.device)  # the prompts end in one column
    alive = list(range(len(ids)))
    loop = token_loop.begin(model, pads, width + max_new)
    step = max(1, PREFILL_TOKENS // len(ids))
    for start in range(0, width, step):
        check()
        logits = loop.read(tokens[:, start : start + step])
    for count in range(1, max_new + 1):
        drawn = draw(logits.float().cpu(), temperature, top_p, [generators[i] for i in alive])
        going = []
        for place, (i, token) in enumerate(zip(alive, drawn, strict=True)):
            if token in ends:
                texts[i].end("stop")
            elif not texts[i].add(streams[i].step(backend, token) or ""):
                if count < max_new:
                    going.append(place)
                else:
                    texts[i].end("length")
        if not going:
            return
        if len(going) < len(alive):
            loop.keep(going)
            alive, drawn = [alive[p] for p in going], [drawn[p] for p in going]
        check()
        logits = loop.read(torch.tensor(drawn, device=decoder.device)[:, None])


def draw(logits: torch.Tensor, temperature: float, top_p: float, generators: Sequence[torch.Generator]) -> list[int]:
    """One token a row of ``logits`` (rows, vocabulary), each from its own generator: softmax(logits / temperature), cut to the nucleus.

    >>> import torch
    >>> draw(torch.tensor([[0.0, 3.0, 1.0]]), 0.0, 1.0, [torch.Generator()])
    [1]
    """
    import torch

    if temperature == 0:
        return [int(i) for i in logits.argmax(-1)]
    probabilities = torch.softmax(logits / temperature, -1)
    if top_p < 1:
        ordered, order = probabilities.sort(dim=-1, descending=True)
        ordered[ordered.cumsum(-1) - ordered >= top_p] = 0  # keeps the token that crosses top_p
        probabilities = torch.zeros_like(probabilities).scatter_(-1, order, ordered)
    return [int(torch.multinomial(row, 1, generator=g)) for row, g in zip(probabilities, generators, strict=True)]


def too_long(length: int, max_new: int, limit: int) -> InputError:
    """The error for a prompt of ``length`` tokens that leaves no room for ``max_new`` more."""
    return InputError("prompt", f"a prompt of {length} tokens with {max_new} new ones passes the model's limit of {limit}", "shorten it")


def _end_tokens(decoder: Decoder) -> set[int]:
    """The tokens that end a text, as llama.cpp takes them too: the model's own and the tokenizer's <|endoftext|>."""
    stated: Any = decoder.model.generation_config.eos_token_id
    ends = {decoder.tokenizer.eos_token_id, decoder.tokenizer.get_vocab().get("<|endoftext|>")}
    ends.update(stated if isinstance(stated, list) else [stated])
    return {int(token) for token in ends if token is not None}
