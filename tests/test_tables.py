"""A person's CSV file: what is understood, and that each fault names its line."""

from __future__ import annotations

import codecs

import numpy as np
import pytest

from backends.contract import UPLOAD_LIMIT_BYTES, InputError, Upload
from backends.runtime import tables
from backends.runtime.datasets import diabetes, engel
from backends.runtime.tables import Table, read_table, split_names
from tests.hostile_csv import HostileFile, hostile_files


def parse(content: str | bytes, **options: int) -> Table:
    return read_table(Upload.of("t.csv", content if isinstance(content, bytes) else content.encode()), "csv", **options)


@pytest.mark.parametrize("file", hostile_files(), ids=lambda file: file.name)
def test_hostile_files_are_read_or_named(file: HostileFile) -> None:
    def numbers() -> list[np.ndarray]:
        table = parse(file.content)
        return [table.numbers(name, "csv") for name in table.columns]

    if file.fault is None:
        columns = numbers()
        assert len(columns) == 2
        assert all(len(column) == 80 for column in columns)
        np.testing.assert_allclose(columns[1], 2 * columns[0], atol=5)
        return
    with pytest.raises(InputError) as caught:
        numbers()
    assert caught.value.field == "csv"
    assert file.fault in caught.value.problem


@pytest.mark.parametrize(
    ("content", "delimiter", "decimal", "encoding"),
    [
        ("a,b\n1.5,2\n", "comma", "point", "UTF-8"),
        ("a;b\n1,5;2\n", "semicolon", "comma", "UTF-8"),
        ("a;b\n1,5;2,25\n0,5;1,5\n", "semicolon", "comma", "UTF-8"),
        ("a\tb\n1,5\t2\n", "tab", "comma", "UTF-8"),
        ("a|b\r\n1.5|2\r\n", "bar", "point", "UTF-8"),
        ("a,b\r1.5,2\r", "comma", "point", "UTF-8"),
        ('"a","b"\n"1.5","2"\n', "comma", "point", "UTF-8"),
        (codecs.BOM_UTF8 + b"a,b\n1.5,2\n", "comma", "point", "UTF-8 with a byte order mark"),
        ("a,b\n1.5,2\n".encode("utf-16"), "comma", "point", "UTF-16"),
        ("a,größe\n1.5,2\n".encode("cp1252"), "comma", "point", "Windows-1252"),
    ],
)
def test_what_is_found_is_told(content: str | bytes, delimiter: str, decimal: str, encoding: str) -> None:
    table = parse(content)
    assert (table.delimiter, table.decimal, table.encoding) == (delimiter, decimal, encoding)
    first = next(iter(table.columns))
    assert first == "a"
    assert table.numbers(first, "csv")[0] == 1.5


def test_blank_lines_and_quoted_line_breaks_keep_the_line_numbers() -> None:
    table = parse('a,b\n\n1,2\n"3\n",4\n;\n5,x\n'.replace(";\n", ",\n"))
    assert table.lines.tolist() == [3, 5, 7]
    assert table.numbers("a", "csv").tolist() == [1, 3, 5]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("   \n\n", "empty"),
        ("a,b\n1,2\n3\n", "line 3: 1 cells, but 2 column names"),
        ("a,b\n1,2\n3,4,5\n", "line 3: 3 cells, but 2 column names"),
        ('a,b\n1,2\n"3,4\n', "line 3: a quoted cell does not end"),
        ("a,a\n1,2\n", "line 1: the column name 'a' is used twice"),
        ("1.5,2\n3,4\n", "line 1: numbers stand where the names"),
        (f"{'a' * 101},b\n1,2\n", "has 101 characters"),
        (",".join(f"c{i}" for i in range(201)) + "\n", "line 1: 201 columns"),
        ("a,b\n1,2\n3,4\n5,6\n", "3 rows"),
        (codecs.BOM_UTF16_LE + b"a\xff\xdf", "not valid UTF-16"),
        (b"\x00\x01\x02\x03" * 40, "NUL byte"),
    ],
)
def test_faults_of_the_file(content: str | bytes, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(content, min_rows=4 if said == "3 rows" else 1)
    assert said in caught.value.problem
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("", "line 4, column 'b': the cell is empty"),
        ("NaN", "'NaN', which is no number"),
        ("inf", "infinite or too large"),
        ("1e200", "infinite or too large"),
        ("=1+2", "a formula"),
        ("@SUM(1)", "a formula"),
        ("-cmd", "a formula"),
        ("12 kg", "'12 kg' is not a number"),
        ("ä" * 100, "..."),
    ],
)
def test_faults_of_a_cell_name_line_and_column(cell: str, said: str) -> None:
    table = parse(f"a,b\n1,2\n2,3\n3,{cell}\n4,5\n5,6\n")
    with pytest.raises(InputError) as caught:
        table.numbers("b", "target")
    assert caught.value.field == "target"
    assert "line 4" in caught.value.problem
    assert said in caught.value.problem
    assert table.numbers("a", "csv").tolist() == [1, 2, 3, 4, 5]  # a fault in a column that is not used does not matter


def test_kinds_of_columns() -> None:
    table = parse("n,t,e,mixed\n1,x,,1\n2,y,,z\n3,4,,5\n")
    assert {name: column.kind for name, column in table.columns.items()} == {"n": "number", "t": "text", "e": "empty", "mixed": "number"}
    assert table.columns["e"].missing == 3
    assert table.numeric_names() == ["n", "mixed"]
    for name, said in (("t", "holds text"), ("e", "holds nothing"), ("zzz", "no column 'zzz'")):
        with pytest.raises(InputError, match=said):
            table.numbers(name, "csv")


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse("a,b\n" + "1,2\n" * 1000).rows == 1000
    monkeypatch.setattr(tables, "MAX_ROWS", 10)
    with pytest.raises(InputError, match="line 12: more than 10 rows"):
        parse("a,b\n" + "1,2\n" * 11)
    monkeypatch.setattr(tables, "UPLOAD_LIMIT_BYTES", 10)
    with pytest.raises(InputError, match="has 16 bytes"):
        parse("a,b\n" + "1,2\n" * 3)
    assert UPLOAD_LIMIT_BYTES == 10_000_000
    with pytest.raises(InputError, match="does not carry it"):
        read_table(Upload(name="t.csv", sha256="0" * 64), "csv")


def test_names_in_one_line() -> None:
    assert split_names(' a , "b, c",, d ') == ["a", "b, c", "d"]
    assert split_names("") == []
    assert split_names("a\nb\r\nc\rd") == ["a", "b", "c", "d"]


def test_data_sets() -> None:
    food, sugar = engel(), diabetes()
    assert len(food.columns[food.target]) == 235
    assert food.features == ["income"]
    assert len(sugar.columns[sugar.target]) == 442
    assert len(sugar.features) == 10
    assert food.columns["income"].mean() == pytest.approx(982.473, abs=1e-3)
