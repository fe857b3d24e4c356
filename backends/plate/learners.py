"""Ways to learn the new task from the same start: PLATE, its data-free peers, and two references that keep old data."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from backends.plate.layer import Plan, attach
from backends.plate.networks import loss_of
from backends.plate.tasks import Data

LORA_ALPHA = 2  # alpha = 2 r
_INJECTING = threading.Lock()
OSF_SHARE = 2  # the upper 1/2 of the singular directions is fenced off


@dataclass
class Learner:
    """A body and a new head to be trained from here on; nothing in it refers to the old task unless ``keeps`` says so.

    adapted: the modules by name whose weight changes, to read what changed. penalty: what is added to the loss.
    rehearsal: old samples with the old head, drawn beside each batch. keeps: old data that it holds, in words.
    """

    body: nn.Module
    head: nn.Module
    adapted: dict[str, nn.Module] = field(default_factory=dict)
    penalty: Callable[[], torch.Tensor] | None = None
    rehearsal: tuple[Data, nn.Module] | None = None
    keeps: str = ""

    @property
    def parameters(self) -> list[nn.Parameter]:
        """What the optimiser moves."""
        return [p for module in (self.body, self.head) for p in module.parameters() if p.requires_grad]

    @property
    def trainable(self) -> int:
        """Numbers trained in the body."""
        return sum(p.numel() for p in self.body.parameters() if p.requires_grad)

    def loss(self, x: torch.Tensor, y: torch.Tensor, step_seed: int) -> torch.Tensor:
        """Of one batch of the new task. x: (b, d); y: (b,); step_seed: of the rehearsal's draw."""
        loss = loss_of(self.head(self.body(x)), y)
        if self.penalty is not None:
            loss = loss + self.penalty()
        if self.rehearsal is not None:
            data, old_head = self.rehearsal
            some = torch.from_numpy(np.random.default_rng(step_seed).integers(len(data.y), size=len(y)))
            loss = loss + loss_of(old_head(self.body(data.x[some])), data.y[some])
        return loss


def linears(body: nn.Module) -> dict[str, nn.Linear]:
    """The linear layers by name, in order."""
    return {name: module for name, module in body.named_modules() if isinstance(module, nn.Linear)}


def head_only(body: nn.Module, head: nn.Module) -> Learner:
    """The body stays as it is."""
    return Learner(copy.deepcopy(body).requires_grad_(False), copy.deepcopy(head))


def full(body: nn.Module, head: nn.Module) -> Learner:
    """All weights of the linear layers move; biases and all else stay."""
    body = copy.deepcopy(body).requires_grad_(False)
    for layer in linears(body).values():
        layer.weight.requires_grad_(True)
    return Learner(body, copy.deepcopy(head), dict(linears(body)))


def plate(body: nn.Module, head: nn.Module, plans: Mapping[str, Plan], scale: float) -> Learner:
    """Rows and directions as planned from the weights; only A moves."""
    body = copy.deepcopy(body)
    adapters = attach(body, dict(plans), scale)
    return Learner(body, copy.deepcopy(head), dict(adapters))


def library(say: Callable[[str], None]) -> Any:
    """The peft library, whose import takes seconds."""
    say("loading the peft library")
    import peft

    return peft


def _inject(config: Any, body: nn.Module) -> nn.Module:
    """The library's adapters in the body, which is changed. It draws their start from the global generator: that is put back.

    One at a time, or a second thread would put back a state in between. The library's own way around it, layers without memory,
    patches torch for all threads of the process while it lasts.
    """
    from peft import inject_adapter_in_model

    with _INJECTING, torch.random.fork_rng(devices=[]):
        return inject_adapter_in_model(config, body)


def lora(body: nn.Module, head: nn.Module, rank: int, generator: torch.Generator) -> Learner:
    """LoRA of the peft library, alpha = 2 r, on the linear layers; its usual start, drawn from this generator."""
    from peft import LoraConfig

    body = copy.deepcopy(body)
    names = list(linears(body))
    config = LoraConfig(r=rank, lora_alpha=LORA_ALPHA * rank, target_modules=names, lora_dropout=0.0)
    body = _inject(config, body)
    for name in names:
        layer: Any = body.get_submodule(name)
        d_in, d_out = layer.lora_A["default"].in_features, layer.lora_B["default"].out_features
        start = torch.empty(rank, d_in).uniform_(-(d_in**-0.5), d_in**-0.5, generator=generator)
        layer.lora_A["default"].weight = nn.Parameter(start)
        layer.lora_B["default"].weight = nn.Parameter(torch.zeros(d_out, rank))
    return Learner(body, copy.deepcopy(head), {name: body.get_submodule(name) for name in names})


def osf(body: nn.Module, head: nn.Module) -> Learner:
    """Orthogonal subspace fine-tuning of the peft library: the upper half of each layer's singular directions is fenced off."""
    from peft import OSFConfig

    body = copy.deepcopy(body)
    layers = linears(body)
    names = list(layers)
    ranks = {name: min(layer.weight.shape) // OSF_SHARE for name, layer in layers.items()}
    body = _inject(OSFConfig(target_modules=names, rank_pattern=ranks), body)
    return Learner(body, copy.deepcopy(head), {name: body.get_submodule(name) for name in names})


def ewc(body: nn.Module, head: nn.Module, fisher: Mapping[str, torch.Tensor], strength: float) -> Learner:
    """Elastic weight consolidation: full fine-tuning, each weight held by how much the old data's likelihood leans on it.

    fisher: layer name -> (d_out, d_in), of ``fisher_diagonal``. The penalty is strength / 2 * sum F (w - w_old)^2.
    """
    learner = full(body, head)
    layers = linears(learner.body)
    start = {name: layer.weight.detach().clone() for name, layer in layers.items()}

    def penalty() -> torch.Tensor:
        parts = [(fisher[name] * (layer.weight - start[name]) ** 2).sum() for name, layer in layers.items()]
        return strength / 2 * torch.stack(parts).sum()

    learner.penalty, learner.keeps = penalty, "the Fisher information of old data"
    return learner


def fisher_diagonal(body: nn.Module, head: nn.Module, old: Data) -> dict[str, torch.Tensor]:
    """Diagonal Fisher information of each linear layer's weight, a mean over the old data and over the model's own answers.

    A sample's gradient is the outer product of what flows back and what came in, so the mean of its square needs no loop over samples.
    Returns layer name -> (d_out, d_in).
    """
    inputs: dict[str, torch.Tensor] = {}
    outputs: dict[str, torch.Tensor] = {}
    layers = linears(body)

    def keep(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, given: tuple[torch.Tensor, ...], out: torch.Tensor) -> None:
            inputs[name], outputs[name] = given[0].detach(), out

        return hook

    handles = [layer.register_forward_hook(keep(name)) for name, layer in layers.items()]
    try:
        with torch.enable_grad():
            logits = head(body(old.x.clone().requires_grad_(True)))
    finally:
        for handle in handles:
            handle.remove()
    classes = max(2, logits.shape[1])
    log_p = nn.functional.log_softmax(logits if logits.shape[1] > 1 else torch.cat([torch.zeros_like(logits), logits], dim=1), dim=1)
    found = {name: torch.zeros_like(layer.weight) for name, layer in layers.items()}
    for c in range(classes):
        flows = torch.autograd.grad(log_p[:, c].sum(), list(outputs.values()), retain_graph=c < classes - 1)
        weight = log_p[:, c].detach().exp()[:, None] / len(old.y)
        for name, flow in zip(outputs, flows, strict=True):
            found[name] += (weight * flow**2).T @ inputs[name] ** 2
    return found


def replay(body: nn.Module, head: nn.Module, kept: Data, old_head: nn.Module) -> Learner:
    """Full fine-tuning with as many old samples beside each batch, answered by the old head."""
    learner = full(body, head)
    learner.rehearsal = kept, copy.deepcopy(old_head).requires_grad_(False)
    learner.keeps = f"{len(kept.y)} old samples"
    return learner
