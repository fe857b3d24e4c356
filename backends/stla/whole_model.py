"""All blocks of the bundled model, one after another, and the perplexity after each way of rounding (card 4.6).

``python -m backends.stla.whole_model --methods full rtn stla`` measures and writes ``static/data/stla/whole_model.json``; a method that is in the file
already is measured anew. It takes minutes to an hour on one core, so the lab shows the stored table, with its date and settings.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from backends.runtime import device, folders, language_model, threads
from backends.runtime.models import Models
from backends.stla import blocks, windows
from backends.stla.block import METHODS, Setting, quantise
from backends.stla.rounding import Learning

FILE = folders.ROOT / "static" / "data" / "stla" / "whole_model.json"
CALIBRATION_TOKENS, DAMPING = 4096, 0.1  # with fewer tokens and less damping H is learned by heart, and RTN wins on another text


def table(file: Path = FILE) -> dict[str, Any] | None:
    """What was measured: {model, texts, setting, rows: [{method, perplexity, seconds or None, blocks, date, device}]}; None without the file."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def measure(model: Any, ids: torch.Tensor, judged: torch.Tensor, method: str, setting: Setting, count: int, say: Callable[[str], None]) -> tuple[float, float]:
    """Perplexity with the first ``count`` blocks rounded, each with inputs as the rounded blocks before it make them; and the seconds."""
    began = time.perf_counter()
    calibrated, told = blocks.enter(model, ids), blocks.enter(model, judged)
    exact = calibrated
    for number, block in enumerate(blocks.layers_of(model)):
        used = block
        if number < count and method != "full":
            used = quantise(block, calibrated, method, setting, exact=exact).block
            say(f"{method}: block {number + 1} of {count}, {time.perf_counter() - began:.0f} s")
            calibrated = blocks.pass_on(used, calibrated, lambda: None)  # re-run with the rounded weights
            if setting.asymmetric_correction:
                exact = blocks.pass_on(block, exact, lambda: None)
        told = blocks.pass_on(used, told, lambda: None)
    return blocks.perplexity(model, told, judged, lambda: None), time.perf_counter() - began


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m backends.stla.whole_model", description="Measures the whole model and stores the table.")
    parser.add_argument("--methods", nargs="+", choices=["full", *METHODS], default=["full", *METHODS])
    parser.add_argument("--blocks", type=int, default=1000, help="how many blocks are rounded; all without one")
    parser.add_argument("--bits", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--file", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    threads.configure()
    setting = Setting(bits=options.bits, damping=DAMPING, learning=Learning(options.iterations, dtype=torch.float32))
    decoder = language_model.load(Models(print, lambda: None))
    ids, judged = windows.calibration(decoder.tokenizer, CALIBRATION_TOKENS, np.random.default_rng(0)), windows.evaluation(decoder.tokenizer)
    count = min(options.blocks, len(blocks.layers_of(decoder.model)))
    for method in options.methods:
        found, seconds = measure(decoder.model, ids, judged, method, setting, count, lambda text: print(text, flush=True))
        row = {
            "method": method,
            "perplexity": found,
            "seconds": round(seconds, 1),
            "blocks": 0 if method == "full" else count,
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "device": device.describe(),
        }
        kept = table(options.file) or {"rows": []}
        rows = [r for r in kept["rows"] if r["method"] != method] + [row]
        rows.sort(key=lambda r: ["full", *METHODS].index(r["method"]))
        whole = {
            "model": decoder.description,
            "calibration": f"{CALIBRATION_TOKENS} tokens of the Constitution of the United States",
            "evaluation": f"{judged.numel()} tokens of the King James Version" + (", which was also calibrated on" if windows.overlap(ids, judged) else ""),
            "setting": setting.words(),
            "rows": rows,
        }
        options.file.parent.mkdir(parents=True, exist_ok=True)
        options.file.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
        print(f"{method}: perplexity {found:.2f}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
