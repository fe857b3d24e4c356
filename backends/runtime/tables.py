"""A person's CSV file as named columns, with limits, and every fault named with its line.

Encoding and delimiter are found from the bytes and reported. A file is read as UTF-8, else as UTF-16 when it says so, else as
Windows-1252. Numbers may have a decimal point or, where the delimiter is no comma, a decimal comma.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from backends.contract import UPLOAD_LIMIT_BYTES, InputError, Upload

Kind = Literal["number", "text", "empty"]

MAX_ROWS = 100_000
MAX_COLUMNS = 200
MAX_NAME = 100
LARGEST = 1e100  # squares of larger numbers leave the range of floats
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
SNIFF_LINES = 50
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "-", "?"})
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?")
_DECIMAL_POINT = re.compile(r"[+-]?\d*\.\d+(?:[eE][+-]?\d+)?")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?inf(?:inity)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Column:
    """One column as it stands in the file: its cells as text, and numbers (rows,), NaN where a cell is no number.

    kind: "number" when at least half of the cells that are not missing are numbers; missing: how many cells are.
    """

    name: str
    cells: tuple[str, ...]
    numbers: np.ndarray
    kind: Kind
    missing: int


@dataclass(frozen=True, slots=True)
class Table:
    """A parsed file. lines: (rows,) line of the file on which each row ends; delimiter, decimal, encoding: as found."""

    columns: dict[str, Column]
    lines: np.ndarray
    delimiter: str
    decimal: str
    encoding: str

    @property
    def rows(self) -> int:
        return len(self.lines)

    def numeric_names(self) -> list[str]:
        """The names of the columns of numbers, in the order of the file."""
        return [c.name for c in self.columns.values() if c.kind == "number"]

    def numbers(self, name: str, field: str, role: str = "column") -> np.ndarray:
        """The column as floats (rows,), all of them at most 1e100 in size.

        Raises InputError for ``field`` when there is no such column, it holds text, or a cell is missing, above 1e100 or no number.
        """
        column = self.columns.get(name)
        if column is None:
            raise InputError(field, f"the file has no column {quoted(name)}", "choose one of " + listed(list(self.columns)))
        bad = np.flatnonzero(~(np.abs(column.numbers) <= LARGEST))
        if bad.size == 0:
            return column.numbers
        row = int(bad[0])
        where, cell = f"line {self.lines[row]}, {role} {quoted(name)}", column.cells[row]
        if column.kind != "number":
            held = "nothing" if column.kind == "empty" else f"text, such as {quoted(cell)}"
            raise InputError(field, f"{where}: the column holds {held}", "choose a column of numbers")
        more = f" ({bad.size} such cells)" if bad.size > 1 else ""
        raise InputError(field, f"{where}: {_fault(cell)}{more}", "put a number there or delete the line")


def read_table(upload: Upload, field: str, *, min_rows: int = 1, min_columns: int = 2) -> Table:
    """Parses the file. At most 10 MB, 100,000 rows and 200 columns; the first line names the columns.

    Raises InputError for ``field``, with the line, on: an empty file, only a header, too few or too many rows or columns, NUL bytes,
    a line with another number of cells than the header, an open quote, a name that is used twice, numbers in place of names.
    """
    content = upload.read(field)
    if len(content) > UPLOAD_LIMIT_BYTES:
        raise InputError(field, f"{upload.name} has {len(content):,} bytes", f"keep it below {UPLOAD_LIMIT_BYTES:,} bytes")
    text, encoding = _decode(content, field)
    if not text.strip():
        raise InputError(field, f"{upload.name} is empty", "give a file with a line of column names and one row a line")
    delimiter = _sniff(text)
    header, lines, rows = _parse(text, delimiter, field)
    if len(header) < min_columns:
        found = "one column: no comma, semicolon, tab or bar separates its cells" if len(header) == 1 else f"{len(header)} columns"
        raise InputError(field, f"line 1: the file has {found}", f"give at least {min_columns} columns")
    if not rows:
        raise InputError(field, "line 1: the file has column names but no rows", "add rows below the names")
    if len(rows) < min_rows:
        raise InputError(field, f"the file has {len(rows)} rows", f"give at least {min_rows}")
    by_column = list(zip(*rows, strict=True))
    decimal = "," if delimiter != "," and _has_decimal_comma(by_column) else "."
    columns = {name: _column(name, cells, decimal) for name, cells in zip(header, by_column, strict=True)}
    return Table(columns, np.array(lines), DELIMITERS[delimiter], "comma" if decimal == "," else "point", encoding)


def split_names(text: str) -> list[str]:
    """Column names from CSV text; quotes protect a comma.

    >>> split_names('age, "height, cm"')
    ['age', 'height, cm']
    """
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    return [name.strip() for row in reader for name in row if name.strip()]


def quoted(cell: str) -> str:
    """A cell or name as a message may show it: at most 40 characters, nothing unprintable."""
    shown = cell if len(cell) <= 40 else cell[:37] + "..."
    return "'" + "".join(c if c.isprintable() else "?" for c in shown) + "'"


def listed(names: Sequence[str]) -> str:
    """Names as a remedy may show them: the first 8."""
    return ", ".join(quoted(name) for name in names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _fault(cell: str) -> str:
    bare = cell.strip()
    if bare.lower() in MISSING:
        return "the cell is empty" if not bare else f"the cell says {quoted(bare)}, which is no number"
    if bare.startswith(("=", "@")) or (bare[0] in "+-" and bare[1:2].isalpha() and not bare[1:].lower().startswith("inf")):
        return f"{quoted(bare)} is a formula, not a number"
    return f"{quoted(bare)} is {'infinite or too large' if _NUMBER.fullmatch(bare) else 'not a number'}"


def _decode(content: bytes, field: str) -> tuple[str, str]:
    if content.startswith(codecs.BOM_UTF8):
        encodings = [("utf-8-sig", "UTF-8 with a byte order mark")]
    elif content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encodings = [("utf-16", "UTF-16")]
    else:
        encodings = [("utf-8", "UTF-8"), ("cp1252", "Windows-1252"), ("latin-1", "Latin-1")]
    for codec, shown in encodings:
        try:
            text = content.decode(codec)
        except UnicodeDecodeError:
            continue
        nul = text.find("\0")
        if nul >= 0:
            raise InputError(field, f"line {_line_of(text, nul)}: the file holds a NUL byte", "save it as plain CSV in UTF-8")
        return text, shown
    raise InputError(field, f"the file is not valid {encodings[0][1]}", "save it as CSV in UTF-8")


def _line_of(text: str, position: int) -> int:
    return len(text[:position].replace("\r\n", "\n").replace("\r", "\n").split("\n"))


def _reader(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line on which the row ends, cells) of each row that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True)
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield reader.line_num, cells


def _sniff(text: str) -> str:
    """The delimiter that gives most rows the header's number of cells; a comma only when no other one does as well."""
    head = "\n".join(text[:200_000].splitlines()[: SNIFF_LINES + 1])
    best, best_score = ",", 0.0
    for delimiter in (";", "\t", "|", ","):
        counts: list[int] = []
        with contextlib.suppress(csv.Error):  # a quote may be cut by the sniffed part, or be broken; parsing will say so
            counts.extend(len(cells) for _, cells in _reader(head, delimiter))
        if not counts or counts[0] < 2:
            continue
        score = sum(c == counts[0] for c in counts) / len(counts)
        if score > best_score:
            best, best_score = delimiter, score
    return best


def _parse(text: str, delimiter: str, field: str) -> tuple[list[str], list[int], list[list[str]]]:
    lines: list[int] = []
    rows: list[list[str]] = []
    header: list[str] = []
    reached = 0
    try:
        for line, cells in _reader(text, delimiter):
            reached = line
            if not header:
                header = _header(cells, line, field)
                continue
            if len(cells) != len(header):
                more = f"line {line}: {len(cells)} cells, but {len(header)} column names ({DELIMITERS[delimiter]} taken as the delimiter)"
                raise InputError(field, more, "make every line as long as the first")
            if len(rows) == MAX_ROWS:
                raise InputError(field, f"line {line}: more than {MAX_ROWS:,} rows", f"keep at most {MAX_ROWS:,} rows")
            lines.append(line)
            rows.append(cells)
    except csv.Error as error:
        problem = "a quoted cell does not end" if "unexpected end" in str(error) else str(error)
        raise InputError(field, f"line {reached + 1}: {problem}", 'close the quote, and write a quote inside a cell as ""') from None
    return header, lines, rows


def _header(cells: list[str], line: int, field: str) -> list[str]:
    if len(cells) > MAX_COLUMNS:
        raise InputError(field, f"line {line}: {len(cells):,} columns", f"keep at most {MAX_COLUMNS}")
    names = [cell.strip() or f"column {number}" for number, cell in enumerate(cells, 1)]
    if all(_NUMBER.fullmatch(name.replace(",", ".")) for name in names):
        raise InputError(field, f"line {line}: numbers stand where the names of the columns are expected", "add a first line with a name for each column")
    seen: set[str] = set()
    for name in names:
        if len(name) > MAX_NAME:
            raise InputError(field, f"line {line}: the column name {quoted(name)} has {len(name)} characters", f"keep names below {MAX_NAME}")
        if name in seen:
            raise InputError(field, f"line {line}: the column name {quoted(name)} is used twice", "give each column its own name")
        seen.add(name)
    return names


def _has_decimal_comma(columns: list[tuple[str, ...]]) -> bool:
    cells = [cell.strip() for column in columns for cell in column[:1000]]
    comma = sum(_DECIMAL_COMMA.fullmatch(cell) is not None for cell in cells)
    return comma > sum(_DECIMAL_POINT.fullmatch(cell) is not None for cell in cells)


def _number(cell: str, decimal: str) -> float:
    bare = cell.strip()
    if decimal == ",":
        bare = bare.replace(",", ".", 1) if "." not in bare else "two marks"
    return float(bare) if _NUMBER.fullmatch(bare) else math.nan


def _column(name: str, cells: tuple[str, ...], decimal: str) -> Column:
    numbers = np.array([_number(cell, decimal) for cell in cells])
    missing = sum(cell.strip().lower() in MISSING for cell in cells)
    present = len(cells) - missing
    kind: Kind = "empty" if present == 0 else "number" if 2 * np.count_nonzero(~np.isnan(numbers)) >= present else "text"
    return Column(name, cells, numbers, kind, missing)
