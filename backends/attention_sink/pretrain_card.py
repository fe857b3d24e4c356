"""Writes MODEL_CARD.md beside the shipped weights from the logs, so that what it states is what was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from backends.attention_sink.pretrained import Shipped, shipped

SINK_THRESHOLD = 0.3  # the default of the page's onset threshold

TEXT = """\
# Small pre-training runs: plain softmax, head-wise RMSNorm, sigmoid attention

Trained in this lab for the page of the attention sink, by `python -m backends.attention_sink.pretrain ARM`. They are not the models of
the paper (arXiv 2605.06611: 152 M parameters, billions of tokens) and neither confirm nor refute its figures. This file is written from
the logs beside it.

## What was trained
- Decoder: Llama-style, {layers} layers, {heads} heads, width {width}, SwiGLU {ffn}, RoPE base {rope_base:,.0f}, RMSNorm, tied
  embeddings, {parameters:,} parameters (the head norm adds its gamma), block {block}, no BOS token.
- Recipe, the same for all arms: {steps:,} steps of {sequences} x {block} tokens ({trained_tokens:,} tokens, drawn from a training text of
  {training:,}), AdamW (0.9, 0.95), decay {decay} on matrices, clip {clip}, rate {peak_rate} after {warm_up} steps of warm-up, cosine to
  a tenth, fp32, one CPU thread, torch {torch}. One seed ({seed}): differences between the arms carry no interval.
- The head norm has {gammas} and the paper's initialisation. Sigmoid attention is not normalised.
- Shipped: `ARM.safetensors` (fp16) and `ARM.json` (size, recipe, loss of every ten steps, measured figures).

## On what
The King James Version (1611), 31,102 verses, one a line, without references: `corpus.txt.xz`. Source: Debian's package bible-kjv-text
4.38, printed whole by its reader. Its copyright file says that the copyright of this text is expired; in the United Kingdom printing it
is under the Crown's letters patent. Every twentieth chunk of 100 verses is held out ({validation:,} tokens). `tokenizer.json`: byte-level
BPE of {vocabulary:,} pieces, made of the training part.

## What was found, on {windows} held-out windows of {block} tokens with the shipped weights
| arm | training loss, last 100 steps | validation loss (nats) | highest S_0 of a layer | mean effective rank | highest dominance of token 0 | minutes |
|---|---|---|---|---|---|---|
{rows}

{findings}

S_0: mean attention on token 0 over heads and later queries (sigmoid weights are divided by the sum of their row first). Effective rank:
of a layer's output, mean over windows and layers. Minutes: wall time on a core that was shared with other work.

{by_layer}

## Use
To be looked at on the page and in tests; the text that these models write is of no use. Licence of the weights: Apache-2.0, as the code.
"""


def even_score(length: int) -> float:
    """S_0 where every query spreads its attention evenly over what it sees: the mean of 1 / (q + 1) over the queries 1 to T - 1.

    >>> round(even_score(128), 4)
    0.0349
    """
    return float(np.mean(1 / np.arange(2, length + 1)))


def finding(run: Shipped) -> str:
    """Did a sink form, and does the spread of the aggregated values fall with the position?"""
    sink, spread = run.curve["sink"], run.curve["spread"]
    best = int(np.argmax(sink))
    verdict = "a sink formed" if sink[best] > SINK_THRESHOLD else "no sink formed"
    ratio = float(np.mean(spread[:, 0] / spread[:, -1]))
    return (
        f"{run.arm}: {verdict}. The highest S_0 is {sink[best]:.3f} (layer {best}); even attention would give {even_score(spread.shape[1]):.3f}, "
        f"and {SINK_THRESHOLD} is what the page calls a sink. The values that position 0 aggregates spread {ratio:.1f} times as wide as those of the last."
    )


def _row(run: Shipped) -> str:
    curve = run.curve
    figures = (curve["loss"][-10:].mean(), run.validation_loss, curve["sink"].max())
    tail = (curve["rank"].mean(), curve["dominance"].max(), run.log["seconds"] / 60)
    return f"| {run.arm} | " + " | ".join([f"{x:.3f}" for x in figures] + [f"{x:.1f}" for x in tail]) + " |"


def _by_layer(runs: list[Shipped], figure: str, digits: int) -> str:
    return f"- {figure} by layer: " + "; ".join(f"{run.arm} {' '.join(f'{x:.{digits}f}' for x in run.curve[figure])}" for run in runs) + "."


def model_card(runs: list[Shipped]) -> str:
    """The text; raises ValueError without a run."""
    if not runs:
        raise ValueError("no arm is shipped, so there is nothing to describe")
    log = runs[0].log
    return TEXT.format(
        **log["size"],
        **log["recipe"],
        **log["corpus_tokens"],
        parameters=log["parameters"],
        trained_tokens=log["trained_tokens"],
        torch=log["torch"],
        windows=log["measured"]["windows"],
        gammas="one gamma for all heads" if log["size"]["shared_gamma"] else "one gamma a head",
        rows="\n".join(_row(run) for run in runs),
        findings="\n".join(f"- {finding(run)}" for run in runs),
        by_layer="\n".join(_by_layer(runs, figure, digits) for figure, digits in (("sink", 3), ("rank", 1), ("dominance", 1))),
    )


def write(folder: Path) -> Path:
    """Writes MODEL_CARD.md for the arms that lie in ``folder``; its path."""
    shipped.cache_clear()  # an arm was just added
    path = folder / "MODEL_CARD.md"
    path.write_text(model_card(list(shipped(folder).values())), encoding="utf-8")
    return path
