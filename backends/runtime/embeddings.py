"""Sentence embeddings: a small encoder, loaded once per process and shared by all runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backends.contract import InputError
from backends.runtime import model_files
from backends.runtime.models import Models

DEFAULT = "bundled:minilm"
LENGTH = 256  # tokens; the model was trained with no more, what follows is not read
BATCH = 32


@dataclass(frozen=True, slots=True)
class Encoder:
    """A loaded sentence encoder. width: of its vectors. description: name, size and precision in words."""

    name: str
    model: Any
    tokenizer: Any
    device: str
    description: str
    width: int
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def encode(self, texts: Sequence[str], check: Callable[[], None] = lambda: None) -> np.ndarray:
        """Unit vectors (texts, width) in float32: the mean of the last layer over a text's tokens, at most ``LENGTH`` of them.

        The inner product of two is their cosine. check: called between batches, may raise to stop.
        """
        import torch

        with self._lock:  # the tokenizer keeps its padding and truncation in one object for all threads
            rows = self.tokenizer(list(texts), truncation=True, max_length=LENGTH)["input_ids"] if texts else []
        vectors = np.zeros((len(rows), self.width), dtype=np.float32)
        by_length = sorted(range(len(rows)), key=lambda i: len(rows[i]))  # little padding within a batch
        for start in range(0, len(rows), BATCH):
            check()
            part = by_length[start : start + BATCH]
            longest = len(rows[part[-1]])
            ids = torch.tensor([rows[i] + [self.tokenizer.pad_token_id] * (longest - len(rows[i])) for i in part], device=self.device)
            mask = torch.tensor([[1] * len(rows[i]) + [0] * (longest - len(rows[i])) for i in part], device=self.device)
            with torch.inference_mode():
                hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
                mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
                vectors[part] = torch.nn.functional.normalize(mean, dim=1).cpu().numpy()
        return vectors


def load(models: Models, name: str = DEFAULT, device: str = "cpu") -> Encoder:
    """The encoder of this name on this device; raises InputError for another name than ``bundled:minilm``, or where it is not installed."""
    if name != DEFAULT:
        raise InputError("model", f"there is no sentence encoder {name}", f"use {DEFAULT}")
    return models.load(f"encoder {name} {device}", lambda say: _load(name, device, say))


def _load(name: str, device: str, say: model_files.Say) -> Encoder:
    package = model_files.BUNDLED[name]
    folder = model_files.folder(name, say)
    with model_files.ticking(say, f"loading {package.title}"):
        import torch
        from transformers import AutoModel, AutoTokenizer

        model_files.quiet()
        model = AutoModel.from_pretrained(folder, dtype=torch.float32, use_safetensors=True, local_files_only=True).eval().requires_grad_(False).to(device)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return Encoder(name, model, tokenizer, device, f"{package.title}, {package.weights}, computed in float32", int(model.config.hidden_size))
