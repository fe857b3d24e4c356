"""Calibrated constants (this lab's addition): the band and the drift scale measured on the model that is watched.

For the bundled model they are measured once and shipped; ``python -m backends.fatigue_index.calibration`` writes the file anew (a minute).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import torch

from backends.fatigue_index import signals
from backends.fatigue_index.generation import Plan, generate
from backends.fatigue_index.index import PAPER, Constants
from backends.fatigue_index.prompts import STUDY, encode
from backends.runtime import folders, language_model
from backends.runtime.texts import passages

FILE = folders.ROOT / "static" / "data" / "fatigue-calibration.json"
PROMPTS, FIRST_STEP, LAST_STEP = 4, 5, 20
KAPPA_FACTOR = 1.5
SKIPPED = 8  # first tokens of a passage: without context every model is unsure
BAND = (25, 75)  # percentiles
State = Literal["after", "before"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """low, high: quartiles of entropy (nats) on human prose. kappa_after, kappa_before: 1.5 times the median drift over steps 5 to 20 of
    four prompts, of the state after and before the final norm (None where the model does not show it). median: of that entropy."""

    low: float
    high: float
    median: float
    kappa_after: float
    kappa_before: float | None

    def constants(self, state: State, weights: Sequence[float] = PAPER.weights) -> Constants:
        """The index's constants: the weights and beta stay the paper's. Raises ValueError for a state that was not seen."""
        kappa = self.kappa_after if state == "after" else self.kappa_before
        if kappa is None:
            raise ValueError("this model does not show its state before the final norm")
        return Constants(weights, self.low, self.high, PAPER.beta, kappa)


def calibrate(decoder: language_model.Decoder, check: Callable[[], None] = lambda: None) -> Calibration:
    """Measures a model: prose by teacher forcing, drift by writing. check: called at least twice a second on the bundled model."""
    found = np.concatenate([_prose_entropy(decoder, passage.text, check)[SKIPPED:] for passage in passages()])
    low, median, high = (float(x) for x in np.percentile(found, (BAND[0], 50, BAND[1])))
    prompts = [encode(decoder, request).ids for request in STUDY[:PROMPTS]]
    *_, traces = generate(decoder, prompts, Plan(max_new=LAST_STEP + 1), check)
    kappas = [_kappa([getattr(trace, name) for trace in traces]) for name in ("after", "before")]
    if kappas[0] is None or not 0 < low < high:
        raise ValueError("the texts are too short, or too alike, to calibrate by")
    return Calibration(low, high, median, kappas[0], kappas[1])


def _kappa(drifts: list[list[float]]) -> float | None:
    late = np.concatenate([np.asarray(d[FIRST_STEP : LAST_STEP + 1], float) for d in drifts])
    return KAPPA_FACTOR * float(np.median(late)) if late.size else None


@torch.inference_mode()
def _prose_entropy(decoder: language_model.Decoder, text: str, check: Callable[[], None]) -> np.ndarray:
    """E at every position of a text that a person wrote, (T,)."""
    ids = torch.tensor([decoder.tokenizer(text).input_ids], device=decoder.device)
    check()
    return signals.entropy(decoder.model(ids).logits[0].float().cpu().numpy())


@functools.cache
def shipped() -> dict[str, Calibration]:
    """What was measured and is shipped, by the model's name."""
    return {name: Calibration(**values) for name, values in json.loads(FILE.read_text(encoding="utf-8"))["models"].items()}


def main() -> None:
    """Measures the bundled model and writes the file."""
    from backends.contract import ContextSpec
    from backends.runtime.context import RunContext

    decoder = language_model.load(RunContext(ContextSpec()).models)
    about = (
        "Constants of the calibrated Fatigue Index, measured by python -m backends.fatigue_index.calibration: quartiles of the entropy on the twenty "
        "passages of english-passages.txt, and 1.5 times the median drift over steps 5 to 20 of four prompts."
    )
    measured = {"about": about, "models": {decoder.name: asdict(calibrate(decoder))}}
    FILE.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
