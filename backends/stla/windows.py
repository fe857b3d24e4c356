"""The texts as token windows: one is calibrated on, another is judged on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from backends.contract import InputError
from backends.runtime import texts

WINDOW = 256  # tokens of one calibration window
JUDGED = (4, 256)  # windows and their tokens, for perplexity


def calibration(tokenizer: Any, tokens: int, rng: np.random.Generator) -> torch.Tensor:
    """Windows of the Constitution that do not overlap, drawn at random; (tokens / 256, 256). Raises InputError where it is too short."""
    ids = _ids(tokenizer, texts.constitution().text)
    shift = int(rng.integers(WINDOW))
    there, count = (len(ids) - shift) // WINDOW, tokens // WINDOW
    if count > there:
        raise InputError("calibration_tokens", f"the text has {len(ids)} tokens", f"choose at most {WINDOW * there}")
    starts = shift + WINDOW * np.sort(rng.choice(there, size=count, replace=False))
    return torch.as_tensor(ids[starts[:, None] + np.arange(WINDOW)])


def evaluation(tokenizer: Any) -> torch.Tensor:
    """The first windows of the King James text, another text than the calibration's; (4, 256)."""
    windows, length = JUDGED
    return torch.as_tensor(_ids(tokenizer, texts.king_james().text)[: windows * length].reshape(windows, length))


def overlap(calibrated: torch.Tensor, judged: torch.Tensor, run: int = 32) -> bool:
    """True when a stretch of ``run`` tokens stands in both: a perplexity would then be that of a text already seen."""
    seen, asked = ({tuple(part) for row in ids.tolist() for part in zip(*(row[i:] for i in range(run)), strict=False)} for ids in (calibrated, judged))
    return bool(seen & asked)


def _ids(tokenizer: Any, text: str) -> np.ndarray:
    return np.asarray(tokenizer(text, verbose=False)["input_ids"], np.int64)
