"""A decoder read token by token: the library's weights, a cache of fixed size, and few calls a layer.

The forward pass of transformers spends a third of a one-token step on modules, masks and growing caches. Here nothing is made anew in
a step but the numbers themselves, and inner states can still be watched. For decoders of Llama's shape; ``fits`` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch

Part = Literal["hidden", "attention", "values", "activation"]
Watch = Callable[[int, Part, torch.Tensor], None]
KINDS = ("llama", "qwen2", "mistral")
ROTATIONS = ("default", "linear", "llama3", "yarn")  # the angles of the others change with the length of the text
FEW_ROWS = 32  # up to here numpy's BLAS multiplies by a matrix that is stored by columns in 0.75 of torch's time (AMD, one thread)


def by_columns(model: Any) -> None:
    """Stores the weights of all linear maps by columns: one token then reads them 1.4 times as fast, many tokens as fast as before.

    The numbers stay, and so do shapes, shared weights and what others hold of the model; on a GPU nothing is gained, nothing is done.
    """
    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and module.weight.device.type == "cpu":
            module.weight.data = module.weight.data.T.contiguous().T


def fits(model: Any) -> bool:
    """True for a decoder of Llama's shape without a sliding window."""
    config = model.config
    windowed = getattr(config, "sliding_window", None) is not None and getattr(config, "use_sliding_window", True)
    rotation = getattr(getattr(getattr(model, "model", None), "rotary_emb", None), "rope_type", None)
    return config.model_type in KINDS and not windowed and rotation in ROTATIONS


class _Map:
    """x W^T + b for x of two dimensions."""

    def __init__(self, module: Any) -> None:
        self.weight, self.bias = module.weight.detach(), module.bias
        turned = self.weight.T
        self.array = turned.numpy() if turned.is_contiguous() and turned.dtype == torch.float32 and turned.device.type == "cpu" else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.array is None or len(x) > FEW_ROWS:
            return torch.nn.functional.linear(x, self.weight, self.bias)
        product = torch.from_numpy(np.dot(x.numpy(), self.array))
        return product if self.bias is None else product.add_(self.bias)


class _Layer:
    """The weights of one layer, as the library holds them."""

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.first, self.second = layer.input_layernorm, layer.post_attention_layernorm
        self.q, self.k, self.v, self.o = (_Map(m) for m in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj))
        self.gate, self.up, self.down = (_Map(m) for m in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
        self.act: Callable[[torch.Tensor], torch.Tensor] = mlp.act_fn


class LibraryLoop:
    """The same over the library's own forward pass, for decoders of any shape; it cannot be watched."""

    def __init__(self, model: Any, pads: Sequence[int]) -> None:
        from transformers import DynamicCache

        self.model, self.cache = model, DynamicCache(config=model.config)
        self.pads, self.length = torch.tensor(list(pads), device=model.get_input_embeddings().weight.device), 0

    def keep(self, rows: Sequence[int]) -> None:
        """As ``TokenLoop.keep``."""
        chosen = torch.tensor(list(rows), device=self.pads.device)
        self.cache.batch_select_indices(chosen)
        self.pads = self.pads[chosen]

    @torch.inference_mode()
    def read(self, tokens: torch.Tensor) -> torch.Tensor:
        """As ``TokenLoop.read``."""
        self.length += tokens.shape[1]
        place = torch.arange(self.length, device=self.pads.device) - self.pads[:, None]
        seen, places = (place >= 0).long(), place.clamp_min(0)[:, -tokens.shape[1] :]
        answer = self.model(tokens, attention_mask=seen, position_ids=places, cache=self.cache, use_cache=True, logits_to_keep=1)
        return answer.logits[:, -1]  # type: ignore[no-any-return]


def begin(model: Any, pads: Sequence[int], capacity: int) -> TokenLoop | LibraryLoop:
    """The quick loop where the model fits, else the library's."""
    return TokenLoop(model, pads, capacity) if fits(model) else LibraryLoop(model, pads)


class TokenLoop:
    """B rows of text that grow together, each at its own position.

    pads: the empty places before each row's first token, so that all prompts end in one column. capacity: tokens and empty places of a
    row at most. The cache takes 2 L B H_kv capacity d_k numbers and is freed with this object. Raises ValueError where not ``fits``.
    """

    def __init__(self, model: Any, pads: Sequence[int], capacity: int) -> None:
        if not fits(model):
            raise ValueError(f"{model.config.model_type} has not the shape of Llama")
        config, base = model.config, model.model
        self.embed, self.norm, self.head, self.length = base.embed_tokens, base.norm, _Map(model.lm_head), 0
        self.layers = [_Layer(layer) for layer in base.layers]
        self.groups, self.width = int(config.num_key_value_heads), int(base.layers[0].self_attn.head_dim)
        self.repeats = int(config.num_attention_heads) // self.groups
        self.scale = self.width**-0.5
        weight = self.embed.weight
        self.pads, self.padded = torch.tensor(list(pads), device=weight.device), any(pads)
        shape = (len(self.layers), 2, len(self.pads), self.groups, capacity, self.width)
        self.cache = torch.empty(shape, dtype=weight.dtype, device=weight.device)
        cos, sin = base.rotary_emb(weight[:1], torch.arange(capacity, device=weight.device)[None])
        half = self.width // 2
        self.cos, self.sin = cos[0], torch.cat([-sin[0, :, :half], sin[0, :, half:]], -1)  # the halves swap places, and one its sign

    @property
    def rows(self) -> int:
        """B."""
        return len(self.pads)

    def keep(self, rows: Sequence[int]) -> None:
        """Goes on with these rows only."""
        chosen = torch.tensor(list(rows), device=self.pads.device)
        former, self.pads = self.cache[:, :, chosen, :, : self.length], self.pads[chosen]
        self.cache = former.new_empty(*self.cache.shape[:2], len(rows), *self.cache.shape[3:])  # what is not yet written takes no memory
        self.cache[:, :, :, :, : self.length] = former

    @torch.inference_mode()
    def read(self, tokens: torch.Tensor, watch: Watch | None = None) -> torch.Tensor:
        """Reads the next n tokens of each row, (B, n); returns the logits after the last one, (B, vocabulary).

        watch(layer, part, values) sees "hidden", the residual stream that enters the layer (B, n, d); "attention", the weights
        (B, H, n, length so far); "values", what enters W_O (B, n, H d_k); "activation", what enters W_down (B, n, neurons).
        Raises ValueError when the capacity is passed.
        """
        new = tokens.shape[1]
        until = self.length + new
        if until > self.cache.shape[4]:
            raise ValueError(f"{until} tokens pass the capacity of {self.cache.shape[4]}")
        place = torch.arange(self.length, until, device=self.pads.device)
        angle = (place - self.pads[:, None]).clamp_min(0).flatten()
        cos, sin = self.cos[angle, None], self.sin[angle, None]  # (B n, 1, d_k)
        mask = self._mask(place, until)
        h = self.embed(tokens.flatten())  # (B n, d) from here on

        def show(number: int, part: Part, values: torch.Tensor) -> None:
            if watch is not None:
                watch(number, part, values.view(self.rows, new, -1))

        for number, layer in enumerate(self.layers):
            show(number, "hidden", h)
            x = _normed(layer.first, h)
            q, k = (self._rotated(project(x), cos, sin) for project in (layer.q, layer.k))
            self.cache[number, 0, :, :, self.length : until] = k.view(self.rows, new, self.groups, self.width).transpose(1, 2)
            self.cache[number, 1, :, :, self.length : until] = layer.v(x).view(self.rows, new, self.groups, self.width).transpose(1, 2)
            values = self._attend(number, q, until, mask, watch)
            show(number, "values", values)
            h = layer.o(values).add_(h)
            x = _normed(layer.second, h)
            activation = layer.act(layer.gate(x)).mul_(layer.up(x))
            show(number, "activation", activation)
            h = layer.down(activation).add_(h)
        self.length = until
        return self.head(_normed(self.norm, h.view(self.rows, new, -1)[:, -1]))

    def _mask(self, place: torch.Tensor, until: int) -> torch.Tensor | None:
        """What is added to the scores, (B, 1, 1, n, until); None where every key may be seen."""
        if len(place) == 1 and not self.padded:
            return None
        key = torch.arange(until, device=place.device)
        hidden = (key > place[:, None]) | (key < self.pads[:, None, None])
        dtype = self.cache.dtype
        return torch.zeros((), dtype=dtype, device=place.device).masked_fill(hidden, torch.finfo(dtype).min)[:, None, None]

    def _rotated(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """RoPE by halves, as Llama has it: (B n, heads, d_k)."""
        x = x.view(len(x), -1, self.width)
        return torch.addcmul(x * cos, x.roll(self.width // 2, -1), sin)

    def _attend(self, number: int, q: torch.Tensor, until: int, mask: torch.Tensor | None, watch: Watch | None) -> torch.Tensor:
        """Each key-value head meets its query heads in one product; q (B n, H, d_k), gives (B n, H d_k)."""
        keys, values = self.cache[number, 0, :, :, :until], self.cache[number, 1, :, :, :until]
        grouped = (self.rows, self.groups, self.repeats, -1)
        q = q.view(self.rows, -1, self.groups, self.repeats, self.width).permute(0, 2, 3, 1, 4).reshape(self.rows, self.groups, -1, self.width)
        scores = (q * self.scale) @ keys.transpose(-1, -2)
        if mask is not None:
            scores = (scores.view(*grouped, until) + mask).view(scores.shape)
        weights = scores.softmax(-1, torch.float32).to(q.dtype)
        if watch is not None:
            watch(number, "attention", weights.view(*grouped, until).flatten(1, 2))
        return (weights @ values).view(*grouped, self.width).permute(0, 3, 1, 2, 4).reshape(-1, self.groups * self.repeats * self.width)


def _normed(module: Any, x: torch.Tensor) -> torch.Tensor:
    # Not torch's rms_norm: measured on a CPU it takes 0.14 ms for one token, ten times as long.
    return (x * x.square().mean(-1, keepdim=True).add_(module.variance_epsilon).rsqrt_()).mul_(module.weight)
