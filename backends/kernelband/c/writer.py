"""Lines of C with their indentation, and the innermost loop that every kernel shares: lanes, partial accumulators, remainder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from backends.kernelband.c.schedule import Schedule

# body(index, suffix) gives the statements of one iteration; suffix tells the partial accumulators apart.
Body = Callable[[str, str], Sequence[str]]
IDENTITY = {"+": "0.0f", "max": "-INFINITY"}

# Cephes' single-precision polynomial, 2 ulp: unlike libm's expf it can be done on all lanes at once.
# Numbers below -87 are cut off as unsigned integers, in which they are the largest: a comparison of floats keeps gcc from using lanes.
EXP = """typedef union { float value; unsigned bits; } both;

static inline float exp_lane(float given) {
    both x0 = {given};
    x0.bits = x0.bits < 0xC2AE0000u ? x0.bits : 0xC2AE0000u;
    const float x = x0.value;
    const float whole = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
    const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    both power;
    power.bits = (unsigned)((int)whole + 127) << 23;
    return y * power.value;
}
"""


class Writer:
    """Collects C text."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 1

    def line(self, *texts: str) -> None:
        self._lines += ["    " * self._depth + text for text in texts]

    def pragma(self, text: str) -> None:
        if text:
            self._lines.append(f"#pragma {text}")

    @contextlib.contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        self.line(f"{head} {{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    @contextlib.contextmanager
    def loop(self, name: str, low: str, high: str, step: str = "1", pragma: str = "") -> Iterator[None]:
        self.pragma(pragma)
        advance = f"++{name}" if step == "1" else f"{name} += {step}"
        with self.block(f"for (long {name} = {low}; {name} < {high}; {advance})"):
            yield

    @contextlib.contextmanager
    def tiles(self, name: str, low: str, high: str, size: int, schedule: Schedule, pragma: str = "") -> Iterator[tuple[str, str]]:
        """A loop over blocks of ``size``; yields the bounds of one block. Size 0: no loop, the whole range."""
        if not size:
            yield low, high
            return
        with self.loop(f"{name}0", low, high, str(size), pragma):
            end = f"{name}0 + {size}"
            self.line(f"const long {name}1 = {end} < {high} ? {end} : {high};" if schedule.remainder else f"const long {name}1 = {end};")
            yield f"{name}0", f"{name}1"

    def inner(self, name: str, low: str, high: str, body: Body, schedule: Schedule, reductions: Sequence[tuple[str, str]] = (), *, lanes: bool = True) -> None:
        """The innermost loop. reductions: (operator, accumulator) that ``body`` adds to. lanes False: the loop cannot be done on lanes.

        With ``unroll`` the range is cut into as many streams, each with its own accumulators, so that no addition waits for the one before.
        """
        simd = schedule.simd if lanes else 0
        if schedule.unroll == 1 or not lanes:
            with self.loop(name, low, high, pragma=_simd(simd, reductions)):
                self.line(*body(name, ""))
            return
        suffixes = ["", *(str(k) for k in range(1, schedule.unroll))]
        with self.block():
            after = "" if low == "0" else f"{_paren(low)} + "
            self.line(f"const long part = {high if low == '0' else f'({high} - {_paren(low)})'} / {schedule.unroll};")
            for operator, accumulator in reductions:
                self.line("float " + ", ".join(f"{accumulator}{k} = {IDENTITY[operator]}" for k in suffixes[1:]) + ";")
            split = [(operator, ", ".join(accumulator + k for k in suffixes)) for operator, accumulator in reductions]
            with self.loop(name, low, f"{after}part", pragma=_simd(simd, split)):
                for k, suffix in enumerate(suffixes):
                    self.line(*body(name if k == 0 else f"({name} + {k} * part)" if k > 1 else f"({name} + part)", suffix))
            if schedule.remainder:
                with self.loop(name, f"{after}{schedule.unroll} * part", high):
                    self.line(*body(name, ""))
            for operator, accumulator in reductions:
                for suffix in suffixes[1:]:
                    self.line(_combine(operator, accumulator, accumulator + suffix))

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _combine(operator: str, accumulator: str, value: str) -> str:
    """The statement that adds ``value`` to the accumulator of a reduction."""
    return f"{accumulator} += {value};" if operator == "+" else f"{accumulator} = {value} > {accumulator} ? {value} : {accumulator};"


def _simd(lanes: int, reductions: Sequence[tuple[str, str]]) -> str:
    clauses = "".join(f" reduction({operator}: {names})" for operator, names in reductions)
    return f"omp simd simdlen({lanes}){clauses}" if lanes else ""


def _paren(text: str) -> str:
    return text if text.isalnum() else f"({text})"
