"""Thirteen CSV files that people really bring, and worse; shared by the tests of every face that takes a table.

Each has at least 60 rows where it has rows at all. ``fault`` is a part of the message that is due, None where the file is fine.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class HostileFile:
    name: str
    content: bytes
    fault: str | None


def _rows(n: int = 80) -> list[tuple[float, float]]:
    rng = np.random.default_rng(7)
    x = rng.uniform(1, 9, n)
    return [(round(float(a), 3), round(float(b), 3)) for a, b in zip(x, 2 * x + rng.normal(size=n), strict=True)]


def _lines(header: str, delimiter: str = ",", decimal: str = ".") -> list[str]:
    return [header, *(delimiter.join(str(v).replace(".", decimal) for v in row) for row in _rows())]


def _file(lines: list[str], codec: str = "utf-8") -> bytes:
    return ("\n".join(lines) + "\n").encode(codec)


def _with(line: int, text: str) -> list[str]:
    lines = _lines("x,y")
    lines[line - 1] = text
    return lines


def hostile_files() -> list[HostileFile]:
    """The thirteen files."""
    quoted = ['"x, first","y ""second"""', *(f'"{a}","{b}"' for a, b in _rows())]
    return [
        HostileFile("semicolon.csv", _file(_lines("x;y", ";")), None),
        HostileFile("tab.tsv", _file(_lines("x\ty", "\t")), None),
        HostileFile("bom.csv", codecs.BOM_UTF8 + _file(_lines("x,y")), None),
        HostileFile("latin1.csv", _file(_lines("höhe,größe"), "latin-1"), None),
        HostileFile("decimal_comma.csv", _file(_lines("x;y", ";", ",")), None),
        HostileFile("one_column.csv", _file([line.split(",")[0] for line in _lines("x,y")]), "one column"),
        HostileFile("empty.csv", b"", "empty"),
        HostileFile("header_only.csv", b"x,y\n", "no rows"),
        HostileFile("nan.csv", _file(_with(5, "1.5,NaN")), "line 5"),
        HostileFile("million_rows.csv", b"x,y\n" + b"1,2\n" * 1_000_000, "line 100002"),
        HostileFile("quotes.csv", _file(quoted), None),
        HostileFile("formula.csv", _file(_with(9, '1.5,"=SUM(A1:A9)"')), "line 9"),
        HostileFile("nul.csv", _file(_with(12, "1.5,\x002")), "line 12"),
    ]
