"""A person's CSV file as named columns, with limits, and every fault named with its line.

Encoding and delimiter are found from the bytes and reported. A file is read as UTF-8, else as UTF-16 when it says so, else as
Windows-1252. Numbers may have a decimal point or, where the delimiter is no comma, a decimal comma. Excel's first line
``sep=;`` is honoured, and an unnamed column that only counts the rows is left out.
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
_THREE_DIGITS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")  # 7.431: a decimal or a thousands separator
_MARKED = re.compile(r"[+-]?\d*[.,]\d+(?:[eE][+-]?\d+)?")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:(?:[., '\u2019\u00a0\u202f]\d{3})+(?:[.,]\d+)?)")
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[ ]*(?=\r|\n|\Z)', re.IGNORECASE)
_JSON = re.compile(r'\s*(?:\{\s*["}]|\[\s*["{\[\]\d-])')
_MARKUP = re.compile(r"\s*<(?:!doctype|!--|\?xml|html|head|body|table|div|svg)", re.IGNORECASE)
_SIGNATURES = {
    b"PK\x03\x04": "an Excel workbook or a zip file",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"\x1f\x8b": "a gzip file",
    b"%PDF": "a PDF file",
    b"PAR1": "a Parquet file",
}
_QUOTES = "'\"`\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"
_CURRENCIES = "$\u20ac\u00a3\u00a5\u20b9"
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
    """A parsed file. lines: (rows,) line of the file on which each row ends; delimiter, decimal, encoding: as found; notes: doubts in plain words."""

    columns: dict[str, Column]
    lines: np.ndarray
    delimiter: str
    decimal: str
    encoding: str
    notes: tuple[str, ...] = ()

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
        if column.kind == "text":
            problem, remedy = self._text(column, role)
            raise InputError(field, problem, remedy)
        row = int(bad[0])
        where, cell = f"line {self.lines[row]}, {role} {quoted(name)}", column.cells[row]
        if column.kind == "empty":
            raise InputError(field, f"{where}: the column holds nothing", "choose a column of numbers")
        more = f" ({bad.size} such cells)" if bad.size > 1 else ""
        raise InputError(field, f"{where}: {_fault(cell)}{more}", _change(cell, self.delimiter) or "put a number there or delete the line")

    def first_text(self) -> tuple[str, str] | None:
        """(problem, remedy) of the first column that holds text: its first cell that is no number; None where there is none."""
        return next((self._text(column, "column") for column in self.columns.values() if column.kind == "text"), None)

    def _text(self, column: Column, role: str) -> tuple[str, str]:
        row = next(i for i, cell in enumerate(column.cells) if math.isnan(column.numbers[i]) and not _missing(cell))
        cell = column.cells[row]
        problem = f"line {self.lines[row]}, {role} {quoted(column.name)}: the column holds text, such as {quoted(cell)}"
        return problem, _change(cell, self.delimiter) or "choose a column of numbers"


def read_table(upload: Upload, field: str, *, min_rows: int = 1, min_columns: int = 2) -> Table:
    """Parses the file. At most 10 MB, 100,000 rows and 200 columns; the first line names the columns.

    Raises InputError for ``field``, with the line, on: an empty file, only a header, too few or too many rows or columns, NUL bytes,
    a line with another number of cells than the header, an open quote, a name that is used twice, a number in place of a name,
    a huge cell, another kind of file.
    """
    content = upload.read(field)
    if len(content) > UPLOAD_LIMIT_BYTES:
        raise InputError(field, f"{upload.name} has {len(content):,} bytes", f"keep it below {UPLOAD_LIMIT_BYTES:,} bytes")
    text, encoding = _decode(content, field)
    if not text.strip():
        raise InputError(field, f"{upload.name} is empty", "give a file with a line of column names and one row a line")
    for pattern, kind in ((_JSON, "JSON"), (_MARKUP, "HTML or XML")):
        if pattern.match(text):
            raise InputError(field, f"line 1: this is {kind}, not a table", "save the table as CSV")
    text, delimiter = _separator(text, field)
    header, lines, rows = _parse(text, delimiter, field)
    if not rows:
        raise InputError(field, f"line {header.line}: the file has column names but no rows", "add rows below the names")
    if len(rows) < min_rows:
        raise InputError(field, f"the file has {len(rows)} rows (lines {lines[0]} to {lines[-1]})", f"give at least {min_rows}")
    by_column = list(zip(*rows, strict=True))
    decimal = "," if delimiter != "," and _has_decimal_comma(by_column) else "."
    columns = [_column(name, cells, decimal) for name, cells in zip(header.names, by_column, strict=True)]
    for column in columns:
        if column.kind == "number" and not math.isnan(_number(column.name, decimal)):
            raise _looks_like_data(column.name, header.line, field)
    counting = [column for column in columns if column.name in header.unnamed and _counts(column)]
    kept = {column.name: column for column in columns if column not in counting}
    notes = [f"the unnamed {column.name} only counts the rows and is left out" for column in counting]
    if len(kept) < min_columns:
        besides = " besides the row numbers" if counting else ": no comma, semicolon, tab or bar separates its cells" if len(kept) == 1 else ""
        found = "one column" if len(kept) == 1 else f"{len(kept)} columns"
        raise InputError(field, f"line {header.line}: the file has {found}{besides}", f"give at least {min_columns} columns")
    notes += _ambiguous(list(kept.values()), decimal)
    return Table(kept, np.array(lines), DELIMITERS[delimiter], "comma" if decimal == "," else "point", encoding, tuple(notes))


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


def _missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING


def _fault(cell: str) -> str:
    bare = cell.strip()
    if _missing(cell):
        return "the cell is empty" if not bare else f"the cell says {quoted(bare)}, which is no number"
    if _is_formula(bare):
        return f"{quoted(bare)} is a formula, not a number"
    return f"{quoted(bare)} is {'infinite or too large' if _NUMBER.fullmatch(bare) else 'not a number'}"


def _is_formula(bare: str) -> bool:
    return bare.startswith(("=", "@")) or (bare[:1] in ("+", "-") and bare[1:2].isalpha() and not bare[1:].lower().startswith("inf"))


def _change(cell: str, delimiter: str) -> str | None:
    """What to change in a cell that is nearly a number; None where it is not."""
    bare = cell.strip()
    if not any(c.isdigit() for c in bare) or _NUMBER.fullmatch(bare) or _is_formula(bare):
        return None
    if bare.endswith("%"):
        return "write the numbers without the percent sign"
    if any(c in _CURRENCIES for c in bare):
        return "write the numbers without the currency sign"
    if bare[0] in _QUOTES or bare[-1] in _QUOTES:
        return "write the numbers without these quotes"
    if delimiter == "comma" and _DECIMAL_COMMA.fullmatch(bare) and not _THREE_DIGITS.fullmatch(bare):
        return "write decimal points, or separate the cells by semicolons"
    if _GROUPED.fullmatch(bare):
        return "write the numbers without thousands separators"
    if _DECIMAL_COMMA.fullmatch(bare) or _DECIMAL_POINT.fullmatch(bare):
        return "write all numbers with the same decimal mark"
    if bare[0].isdigit() and bare[-1].isalpha() and " " in bare:
        return "write the numbers without their unit"
    return None


def _decode(content: bytes, field: str) -> tuple[str, str]:
    """(text, name of the encoding)."""
    for signature, kind in _SIGNATURES.items():
        if content.startswith(signature):
            raise InputError(field, f"this is {kind}, not a CSV file", "open it and save the table as CSV in UTF-8")
    wide = _wide(content)
    if wide:
        raise InputError(field, f"line 1: the file is {wide}", "save it as CSV in UTF-8")
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


def _wide(content: bytes) -> str | None:
    """The name of an encoding of 2 or 4 bytes a character that is not read, as the zero bytes show it."""
    if content.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "in UTF-32"
    head = np.frombuffer(content[: 4 * (min(len(content), 4000) // 4)], dtype=np.uint8).reshape(-1, 4) == 0
    if len(head) == 0 or content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return None
    zero = head.mean(axis=0)  # share of zero bytes at each place of a group of four
    if np.sort(zero)[1] > 0.7:
        return "in UTF-32"
    even, odd = min(zero[[0, 2]]), min(zero[[1, 3]])
    return "in UTF-16 without a byte order mark" if max(even, odd) > 0.7 else None


def _line_of(text: str, position: int) -> int:
    return len(text[:position].replace("\r\n", "\n").replace("\r", "\n").split("\n"))


def _reader(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line on which the row ends, cells) of each row that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True)
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield reader.line_num, cells


def _separator(text: str, field: str) -> tuple[str, str]:
    """(text, delimiter): Excel's line ``sep=;`` decides and is blanked, so that the line numbers stay; else the cells decide."""
    told = _SEPARATOR_LINE.match(text)
    if told is None:
        return text, _sniff(text)
    if told[1] not in DELIMITERS:
        raise InputError(field, f"line 1: the cells are separated by {quoted(told[1])}", "separate them by a comma, a semicolon, a tab or a bar")
    return text[told.end() :], told[1]


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


@dataclass(frozen=True, slots=True)
class _Header:
    """names: of all columns; unnamed: those that the file leaves blank (or that pandas has named so); line: where it stands."""

    names: tuple[str, ...]
    unnamed: frozenset[str]
    line: int


def _parse(text: str, delimiter: str, field: str) -> tuple[_Header, list[int], list[list[str]]]:
    lines: list[int] = []
    rows: list[list[str]] = []
    header = _Header((), frozenset(), 1)
    reached = 0
    try:
        for line, cells in _reader(text, delimiter):
            reached = line
            if not header.names:
                header = _header(cells, line, field)
                continue
            if len(cells) != len(header.names):
                more = f"line {line}: {len(cells)} cells, but {len(header.names)} column names ({DELIMITERS[delimiter]} taken as the delimiter)"
                split = delimiter == "," and len(cells) > len(header.names) and all(cell.strip().lstrip("+-").isdigit() for cell in cells)
                remedy = (
                    "if the numbers have decimal commas, write points or separate the cells by semicolons" if split else "make every line as long as the first"
                )
                raise InputError(field, more, remedy)
            if len(rows) == MAX_ROWS:
                raise InputError(field, f"line {line}: more than {MAX_ROWS:,} rows", f"keep at most {MAX_ROWS:,} rows")
            lines.append(line)
            rows.append(cells)
    except csv.Error as error:
        where = f"line {reached + 1}"
        if "field larger" in str(error):
            raise InputError(field, f"{where}: a cell has more than {csv.field_size_limit():,} characters", "shorten it, or close its quote") from None
        problem = "a quoted cell does not end" if "unexpected end" in str(error) else "a quote stands inside a cell"
        raise InputError(field, f"{where}: {problem}", 'close the quote, and write a quote inside a cell as ""') from None
    return header, lines, rows


def _header(cells: list[str], line: int, field: str) -> _Header:
    if len(cells) > MAX_COLUMNS:
        raise InputError(field, f"line {line}: {len(cells):,} columns", f"keep at most {MAX_COLUMNS}")
    names = tuple(cell.strip() or f"column {number}" for number, cell in enumerate(cells, 1))
    seen: set[str] = set()
    for name in names:
        if len(name) > MAX_NAME:
            raise InputError(field, f"line {line}: the column name {quoted(name)} has {len(name)} characters", f"keep names below {MAX_NAME}")
        if name in seen:
            if _NUMBER.fullmatch(name):
                raise _looks_like_data(name, line, field)
            raise InputError(field, f"line {line}: the column name {quoted(name)} is used twice", "give each column its own name")
        seen.add(name)
    unnamed = frozenset(name for name, cell in zip(names, cells, strict=True) if not cell.strip() or cell.strip().startswith("Unnamed:"))
    return _Header(names, unnamed, line)


def _looks_like_data(name: str, line: int, field: str) -> InputError:
    return InputError(field, f"line {line} looks like data: {quoted(name)} stands where the name of a column is expected", "add a line of names above it")


def _counts(column: Column) -> bool:
    """Whether the cells are 0, 1, 2, ... or 1, 2, 3, ..."""
    first = column.numbers[0]
    return bool(first in (0.0, 1.0) and np.array_equal(column.numbers, first + np.arange(len(column.numbers))))


def _ambiguous(columns: list[Column], decimal: str) -> list[str]:
    """A note where 7.431 may be 7431: no number of the file says what its mark means."""
    marked = {column.name: [cell.strip() for cell in column.cells if _MARKED.fullmatch(cell.strip())] for column in columns if column.kind == "number"}
    if not all(_THREE_DIGITS.fullmatch(cell) for cells in marked.values() for cell in cells):
        return []
    doubtful = [c for c in columns if c.kind == "number" and marked[c.name] and len(marked[c.name]) == np.count_nonzero(~np.isnan(c.numbers))]
    word = "comma" if decimal == "," else "point"
    return [
        f"column {quoted(c.name)}: {marked[c.name][0]} is read as {_number(marked[c.name][0], decimal):.3f}, with a decimal {word}; "
        "if the mark separates thousands, take it out"
        for c in doubtful[:3]
    ]


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
    missing = sum(_missing(cell) for cell in cells)
    present = len(cells) - missing
    kind: Kind = "empty" if present == 0 else "number" if 2 * np.count_nonzero(~np.isnan(numbers)) >= present else "text"
    return Column(name, cells, numbers, kind, missing)
