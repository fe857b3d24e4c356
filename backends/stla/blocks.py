"""Transformer blocks run one by one outside the model, and the second moments of what enters their linear maps (card 4.6).

The model is shared by all runs: nothing here changes its weights or leaves a hook on it. What is hooked or changed is a copy of one block.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backends.contract import InputError
from backends.stla.curvature import damped, layer_loss, quadratic

Check = Callable[[], None]
MATRICES = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
STAGES = (("q", "k", "v"), ("o",), ("gate", "up"), ("down",))  # linear maps of one stage read the same input
AT_ONCE = 512  # tokens of one chunk, about


class _Caught(BaseException):
    """Ends a forward pass at its first block; no library's ``except Exception`` can swallow it."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some windows of text between two blocks. hidden: (windows, T, d). more: what a block takes besides (masks, rotations)."""

    hidden: torch.Tensor
    more: Mapping[str, Any]

    def through(self, block: Any) -> Chunk:
        """The same after this block."""
        out = block(self.hidden, **self.more)
        return Chunk(out if isinstance(out, torch.Tensor) else out[0], self.more)


@dataclass(frozen=True, slots=True)
class Moments:
    """Of one input X, all float64. second: H = (2/n) X X^T, (C, C). drift: (2/n) (X_fp - X) X^T, gap: (2/n) (X_fp - X) (X_fp - X)^T, both (C, C), or
    None where X is X_fp. tokens: n."""

    second: torch.Tensor
    drift: torch.Tensor | None
    gap: torch.Tensor | None
    tokens: int

    def loss(self, weights: torch.Tensor, quantised: torch.Tensor, damping: float) -> float:
        """(2/n) |W X_fp - Q X|^2, plus what the damping adds, which makes it L(Q) where X is X_fp; (R, C) each."""
        original, second = damped(weights, self.second, damping)
        found = layer_loss(original, quantised, second)
        if self.drift is None or self.gap is None:
            return found
        return found + float(2 * ((original @ self.drift) * (original - quantised)).sum() + quadratic(original, self.gap).sum())


def layers_of(model: Any) -> Any:
    """The blocks of a decoder of Llama's shape. Raises InputError where they are not there or hold no nn.Linear."""
    layers = getattr(getattr(model, "model", None), "layers", None)
    if layers is None or not len(layers):
        raise InputError("layer", f"a {type(model).__name__} has no blocks that can be quantised", "use a decoder such as Llama, Qwen2 and Mistral")
    linear_of(layers[0], "q")
    return layers


def linear_of(block: Any, matrix: str) -> torch.nn.Linear:
    """A linear map of a block, by its short name. Raises InputError for the tied output head, an unknown name, or what is no nn.Linear."""
    if matrix not in MATRICES:
        tied = "the output head shares its weights with the embeddings, which stay in floating point" if matrix in ("head", "lm_head") else "it is unknown"
        raise InputError("matrix", f"{matrix} cannot be quantised: {tied}", f"choose one of {', '.join(MATRICES)}")
    found = block
    for part in MATRICES[matrix].split("."):
        found = getattr(found, part, None)
    if not isinstance(found, torch.nn.Linear):
        raise InputError("matrix", f"{MATRICES[matrix]} is no nn.Linear in this model", "use a decoder with separate q, k, v, o, gate, up and down maps")
    return found


def weight_of(block: Any, matrix: str) -> torch.Tensor:
    """W in float64, (R, C), a copy."""
    return linear_of(block, matrix).weight.detach().to(torch.float64).contiguous()


def own_copy(block: Any) -> Any:
    """Modules of one's own over the same weights: hooks on it, or weights set on it, reach nobody else."""
    return copy.deepcopy(block, {id(tensor): tensor for tensor in (*block.parameters(), *block.buffers())})


def set_weight(block: Any, matrix: str, weights: torch.Tensor) -> None:
    """Gives a block of one's own (``own_copy``) other weights."""
    linear = linear_of(block, matrix)
    linear.weight = torch.nn.Parameter(weights.to(linear.weight), requires_grad=False)


@torch.inference_mode()
def enter(model: Any, ids: torch.Tensor) -> list[Chunk]:
    """What enters the first block, in chunks of about 512 tokens. ids: (windows, T)."""
    view = own_copy(model)
    caught: list[Chunk] = []

    def catch(_: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        hidden = args[0] if args else kwargs["hidden_states"]
        caught.append(Chunk(hidden, {k: v for k, v in kwargs.items() if k != "hidden_states"}))
        raise _Caught

    layers_of(view)[0].register_forward_pre_hook(catch, with_kwargs=True)
    for some in ids.split(max(1, AT_ONCE // ids.shape[1])):
        try:
            view.model(input_ids=some.to(model.device), use_cache=False)
        except _Caught:
            continue
    return caught


@torch.inference_mode()
def pass_on(block: Any, chunks: Sequence[Chunk], check: Check) -> list[Chunk]:
    """All chunks after this block."""
    out = []
    for chunk in chunks:
        check()
        out.append(chunk.through(block))
    return out


@torch.inference_mode()
def moments(
    block: Any, chunks: Sequence[Chunk], stages: Sequence[Sequence[str]], check: Check, exact: tuple[Any, Sequence[Chunk]] | None = None
) -> list[Moments]:
    """H of each stage's input over all chunks. exact: the block and chunks of the full-precision model, for the drift; none where they are the same.

    Raises InputError when an activation is not finite.
    """
    probe, reference = own_copy(block), own_copy(exact[0]) if exact else None
    seen: dict[str, torch.Tensor] = {}
    for who, module in (("own", probe), ("exact", reference)):
        if module is not None:
            for stage in stages:
                key = f"{who} {stage[0]}"
                linear_of(module, stage[0]).register_forward_pre_hook(lambda _, args, key=key: seen.__setitem__(key, args[0].flatten(0, 1)))
    sums: list[list[torch.Tensor]] = [[] for _ in stages]
    tokens = 0
    for number, chunk in enumerate(chunks):
        check()
        chunk.through(probe)
        if exact is not None and reference is not None:
            exact[1][number].through(reference)
        tokens += chunk.hidden.shape[0] * chunk.hidden.shape[1]
        for index, stage in enumerate(stages):
            check()
            x = seen[f"own {stage[0]}"]
            if not bool(torch.isfinite(x).all()):
                raise InputError("layer", f"what enters {stage[0]} is not finite", "choose another layer or more bits")
            found = [(x.T @ x).double()]
            if reference is not None:
                off = seen[f"exact {stage[0]}"] - x
                found += [(off.T @ x).double(), (off.T @ off).double()]
            sums[index] = [a + b for a, b in zip(sums[index], found, strict=True)] if sums[index] else found
    scale = 2 / tokens
    if reference is None:
        return [Moments(second * scale, None, None, tokens) for (second,) in sums]
    return [Moments(second * scale, drift * scale, gap * scale, tokens) for second, drift, gap in sums]


@torch.inference_mode()
def perplexity(model: Any, chunks: Sequence[Chunk], ids: torch.Tensor, check: Check) -> float:
    """exp of the mean loss of each next token. chunks: what leaves the last block, of windows ids (windows, T)."""
    total, count, row = 0.0, 0, 0
    for chunk in chunks:
        states = model.model.norm(chunk.hidden)
        for state in states:
            for part, told in zip(state[:-1].split(128), ids[row, 1:].split(128), strict=True):
                check()
                total += float(torch.nn.functional.cross_entropy(model.lm_head(part).float(), told.to(part.device), reduction="sum"))
            count += len(state) - 1
            row += 1
    return float(torch.exp(torch.tensor(total / count, dtype=torch.float64)))
