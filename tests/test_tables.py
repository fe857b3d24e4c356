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
        ("1.5,2\n3,4\n", "line 1 looks like data: '1.5'"),
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
    for name, said in (("t", "holds text, such as 'x'"), ("e", "holds nothing"), ("zzz", "no column 'zzz'")):
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


@pytest.mark.parametrize(
    ("content", "said", "remedy"),
    [
        ("a,b\n1,12%\n2,13%\n", "line 2, column 'b': the column holds text, such as '12%'", "percent sign"),
        ("a,b\n1,\n2,$13\n", "line 3, column 'b': the column holds text, such as '$13'", "currency sign"),
        ("a,b\n1,'12'\n2,'13'\n", "such as ''12''", "quotes"),
        ('a,b\n1,"1,5"\n2,"2,25"\n', "such as '1,5'", "decimal points"),
        ('a,b\n1,"1,500"\n2,"2,250"\n', "such as '1,500'", "thousands separators"),
        ('a;b\n1;"1.500,5"\n2;"2.250,5"\n', "such as '1.500,5'", "thousands separators"),
        ("a,b\n1,1 500\n2,2 250\n", "such as '1 500'", "thousands separators"),
        ("a,b\n1,12 kg\n2,13 kg\n", "such as '12 kg'", "unit"),
        ("a,b\n1,12\n2,13\n3,14%\n", "line 4, column 'b': '14%' is not a number", "percent sign"),
        ("a,b\n1,x\n2,y\n", "such as 'x'", "choose a column of numbers"),
    ],
)
def test_a_column_of_text_says_what_to_change(content: str, said: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(content).numbers("b", "csv")
    assert said in caught.value.problem
    assert remedy in caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said", "remedy"),
    [
        ("a,b\n1,5,2,5\n", "line 2: 4 cells, but 2 column names", "decimal commas"),
        ("12,b\n1,2\n3,4\n", "line 1 looks like data: '12'", "line of names"),
        ("1,1\n1,2\n", "line 1 looks like data: '1'", "line of names"),
        ("x;1,5\n1;2,5\n", "line 1 looks like data: '1,5'", "line of names"),
        ("a,b\n1," + "9" * 200_000 + "\n", "line 2: a cell has more than 131,072 characters", "shorten"),
        ('{"a": [1, 2]}', "JSON, not a table", "CSV"),
        ('[{"a": 1, "b": 2}]', "JSON, not a table", "CSV"),
        ("<!DOCTYPE html>\n<html>", "HTML or XML, not a table", "CSV"),
        (b"PK\x03\x04" + bytes(100), "Excel workbook", "CSV"),
        ("a,b\n1,2\n".encode("utf-16-le"), "UTF-16 without a byte order mark", "UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-be"), "UTF-16 without a byte order mark", "UTF-8"),
        ("a,b\n1,2\n".encode("utf-32"), "UTF-32", "UTF-8"),
        ("a,b\n1,2\n".encode("utf-32-be"), "UTF-32", "UTF-8"),
        ("sep=#\na#b\n1#2\n", "separated by '#'", "semicolon"),
        ("sep=;\na;b\n1;2\n3\n", "line 4: 1 cells", "as long as the first"),
        ("sep=;\na;b\n", "line 2: the file has column names but no rows", "rows"),
        (",b\n0,5\n1,6\n", "one column besides the row numbers", "2 columns"),
        ('a,b\n1,"2"3\n', "line 2: a quote stands inside a cell", "quote"),
    ],
)
def test_other_faults_of_the_file_name_their_cause(content: str | bytes, said: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(content)
    assert said in caught.value.problem
    assert remedy in caught.value.remedy
    assert "\n" not in str(caught.value)


def test_a_file_that_is_too_short_says_its_lines() -> None:
    with pytest.raises(InputError, match=r"has 2 rows \(lines 2 to 4\)"):
        parse("a,b\n1,2\n\n3,4\n", min_rows=3)


def test_the_line_of_excel_names_the_delimiter() -> None:
    table = parse("sep=;\r\na;b,c\r\n1,5;2\r\n")
    assert (table.delimiter, table.lines.tolist()) == ("semicolon", [3])
    assert table.numbers("a", "csv").tolist() == [1.5]
    assert list(parse('"sep=|"\na|b\n1|2\n').columns) == ["a", "b"]
    assert list(parse("sep=\t\na\tb\n1\t2\n").columns) == ["a", "b"]


@pytest.mark.parametrize("head", ["", "Unnamed: 0"])
@pytest.mark.parametrize("first", [0, 1])
def test_row_numbers_without_a_name_are_left_out(head: str, first: int) -> None:
    rows = "".join(f"{first + i},{i * i},{3 - i}\n" for i in range(5))
    table = parse(f"{head},a,b\n{rows}")
    assert list(table.columns) == ["a", "b"]
    assert "only counts the rows" in table.notes[0]
    kept = parse(f"i,a,b\n{rows}")
    assert (list(kept.columns), kept.notes) == (["i", "a", "b"], ())
    assert list(parse(",a,b\n3,1,2\n9,1,2\n").columns) == ["column 1", "a", "b"]


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ("a;b\n7.431;1\n8.902;2\n", "column 'a': 7.431 is read as 7.431, with a decimal point"),
        ("a;b\n7,431;1\n8,902;2\n", "column 'a': 7,431 is read as 7.431, with a decimal comma"),
        ("a;b\n-7.431;x\n;y\n", "column 'a': -7.431 is read as -7.431"),
        ("a;b\n7.431;0.5\n8.902;2\n", None),
        ("a;b\n7.431;1\n0.902;2\n", None),
        ("a;b\n7431.125;1\n8.902;2\n", None),
        ("a;b\n7.43;1\n8.902;2\n", None),
        ("a;b\n7.431;1\n8;2\n", None),
        ("a;b\n7;1\n8;2\n", None),
    ],
)
def test_a_mark_that_may_separate_thousands_is_told(content: str, note: str | None) -> None:
    notes = parse(content).notes
    if note is None:
        assert notes == ()
        return
    assert len(notes) == 1
    assert note in notes[0]
    assert "thousands" in notes[0]
