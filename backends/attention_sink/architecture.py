"""The parts of a loaded decoder that the trace needs, found by name, and a private view of the shared model."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch

from backends.contract import InputError

FUSED = ("query_key_value", "qkv_proj", "c_attn", "Wqkv", "att_proj", "qkv")
FUSED_MLP = ("gate_up_proj", "dense_h_to_4h", "c_fc", "fc1")
SUPPORTED = "use a decoder with separate q, k, v and o projections and a gated MLP, as Llama, Qwen2 and Mistral have them"


@dataclass(frozen=True)
class Architecture:
    """A causal language model with its layers. heads: H; width: H d_k, the input of o_proj; groups: H / H_kv; neurons: of one MLP."""

    model: Any
    layers: tuple[Any, ...]
    heads: int
    groups: int
    width: int
    hidden: int
    neurons: int
    vocabulary: int
    device: torch.device
    notes: tuple[str, ...] = ()

    @property
    def base(self) -> Any:
        """The decoder without its vocabulary head."""
        return self.model.model

    @property
    def head(self) -> Any:
        """The map from the last hidden state to logits."""
        return self.model.get_output_embeddings()


def inspect(model: Any) -> Architecture:
    """The parts of ``model``; raises InputError naming the part that is not supported."""
    kind = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
    names = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()} if isinstance(model, torch.nn.Module) else set()
    if not names:
        raise _refused(f"a {type(model).__name__} is not a loaded language model")
    fused = next((name for name in FUSED if name in names), None)
    if fused:
        raise _refused(f"{kind} has fused query, key and value weights ({fused})")
    layers = getattr(getattr(model, "model", None), "layers", None)
    if layers is None or not len(layers):
        raise _refused(f"{kind} has no model.layers")
    for number, layer in enumerate(layers):
        _require(layer, "self_attn", ("q_proj", "k_proj", "v_proj", "o_proj"), kind, number, "attention projection")
        _require(layer, "mlp", ("gate_proj", "up_proj", "down_proj"), kind, number, "gated MLP part")
    first = layers[0]
    config = model.config
    heads = int(config.num_attention_heads)
    return Architecture(
        model=model,
        layers=tuple(layers),
        heads=heads,
        groups=heads // int(getattr(config, "num_key_value_heads", None) or heads),
        width=int(first.self_attn.o_proj.weight.shape[1]),
        hidden=int(config.hidden_size),
        neurons=int(first.mlp.down_proj.weight.shape[1]),
        vocabulary=int(model.get_input_embeddings().weight.shape[0]),
        device=model.get_input_embeddings().weight.device,
    )


def _require(layer: Any, part: str, inner: tuple[str, ...], kind: str, number: int, what: str) -> None:
    block = getattr(layer, part, None)
    if block is None:
        raise _refused(f"{kind} has no {part} in layer {number}")
    missing = [name for name in inner if not hasattr(block, name)]
    if missing:
        other = next((name for name in FUSED_MLP if hasattr(block, name)), None)
        raise _refused(f"{kind} lacks the {what} {missing[0]} in layer {number}" + (f" (it has {other})" if other else ""))


def _refused(problem: str) -> InputError:
    return InputError("model", problem, SUPPORTED)


def private_view(model: Any) -> Architecture:
    """Modules of one's own over the same weights (0.1 s, no memory): hooks set on it reach no other visitor's run.

    The view computes its attention eagerly, because the fused implementations return no weights; a note says so where it is a change.
    Raises InputError for a model that is not supported.
    """
    inspect(model)
    weights = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    view = copy.deepcopy(model, weights)
    before = model.config._attn_implementation
    view.eval()
    view.set_attn_implementation("eager")
    note = () if before == "eager" else (f"the model's {before} attention returns no weights: eager attention is used here",)
    return replace(inspect(view), notes=note)
