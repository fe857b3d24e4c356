"""The treatments of the companion paper (Chatsparent): what is done to a text that tires. Each reads its context anew; no cache is edited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Treatment = Literal["none", "sca", "par", "erd", "pause"]
SCA_BELOW = 0.010  # tau_A
SCA_TAIL, SCA_REST = 64, 16  # tokens kept, and tokens between two rebuilds: reconstructed
CADENCE, PAR_TAIL = 50, 128
ERD_RATE, ERD_TARGET, ERD_LEAST, ERD_MOST = 0.1, 4.4, 0.5, 1.5  # eta, H* (nats) and the range of T: reconstructed
SELF_CHECK = "\n(A short check: am I still doing what was asked? The request again:)\n"  # its words are reconstructed


def erd_temperature(temperature: float, entropy: float) -> float:
    """T <- clip(T + eta (H* - E), .5, 1.5): sharper where the next token is too open, softer where it is too sure."""
    return min(max(temperature + ERD_RATE * (ERD_TARGET - entropy), ERD_LEAST), ERD_MOST)


@dataclass(frozen=True, slots=True)
class Context:
    """What the model reads: the prompt, then ``tail`` (generated and inserted tokens). step: how many were generated."""

    prompt: tuple[int, ...]
    tail: tuple[int, ...]
    step: int

    @property
    def ids(self) -> tuple[int, ...]:
        return self.prompt + self.tail


def treated(kind: Treatment, context: Context, attention: float, rested: int, self_check: tuple[int, ...]) -> Context | None:
    """The context from which the next token is read where the treatment acts now, else None.

    attention: A_t of this step. rested: steps since it acted last, or since the start. self_check: the tokens that PAUSE inserts.
    """
    if kind == "sca" and attention < SCA_BELOW and rested >= SCA_REST:
        return Context(context.prompt, context.tail[-SCA_TAIL:], context.step)
    if kind == "par" and context.step % CADENCE == 0:
        return Context(context.prompt, context.tail[-PAR_TAIL:], context.step)
    if kind == "pause" and context.step % CADENCE == 0:
        return Context(context.prompt, context.tail + self_check, context.step)
    return None
