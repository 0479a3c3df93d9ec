"""CSV and JSON are read as ``spark.read`` reads them: random texts of every form, rows and inferred schemas."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from tests.spark.like_spark import (
    CORRUPT,
    CSV_TYPES,
    JSON_NAMES,
    JSON_PLAIN,
    JSON_PLAIN_NAMES,
    JSON_TYPES,
    a_json_record,
    compare_rows,
    compare_schemas,
    csv_columns,
    csv_lines,
    csv_values,
    json_lines,
    wide_json,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = f"a string, b string, c string, {CORRUPT} string"
SEED = 26


def text_of(lines: list[str], ending: str = "\n") -> bytes:
    return "".join(line + ending for line in lines).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"escape": '"', "mode": "DROPMALFORMED"},
        {"nullValue": "a", "emptyValue": "b", "comment": "#", "header": True, "enforceSchema": True},
        {"ignoreLeadingWhiteSpace": True, "ignoreTrailingWhiteSpace": True, "sep": ";", "quote": "'"},
    ],
)
def test_values_of_csv(spark: SparkSession, tmp_path: Path, given: dict[str, Any]) -> None:
    chance = random.Random(SEED)
    alphabet = ["a", "b", '"', '"', ",", ",", "\\", " ", "#", "é", "'", ";", "\t", "a,b,c", '"a","b"', ',"']
    files = [text_of(csv_lines(chance, 1500, alphabet), ending) for ending in ("\n", "\r\n")]
    assert compare_rows(spark, tmp_path / "files", files, TEXTS, "csv", **given) > 1000


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_types_of_csv(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    chance = random.Random(f"{SEED}{zone}")
    width = CSV_TYPES.count(", ")
    files = [text_of(csv_values(chance, 800, width)), text_of(csv_values(chance, 30, width))]
    ddl = f"{CSV_TYPES}, {CORRUPT} string"
    assert compare_rows(spark, tmp_path / "files", files, ddl, "csv", timeZone=zone) > 500


def test_values_of_csv_over_several_lines(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    alphabet = ["a", '"', '"', ",", "\\", " ", "\n", "\n", "\r\n", "\r", '"a\nb"', ',"x"\n']
    files = ["".join(chance.choices(alphabet, k=chance.randint(1, 14))).encode() for _ in range(200)]
    compare_rows(spark, tmp_path / "files", files, "a string, b string, c string", "csv", multiLine=True)


def test_the_schema_of_csv(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    file = csv_columns(chance, 400, 6)
    compare_schemas(spark, tmp_path / "a", [file.encode()], "csv", inferSchema=True)
    names = "a,A,,b,b,c,NULL," + ",".join(f"x{index}" for index in range(393))
    late = file + file.splitlines()[0] + ",extra\nx\n" + names + "\n"
    given = {"inferSchema": True, "header": True, "nullValue": "NULL"}
    compare_schemas(spark, tmp_path / "b", [f"\n{names}\n{late}".encode()], "csv", **given)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
def test_types_of_json(spark: SparkSession, tmp_path: Path, zone: str) -> None:
    chance = random.Random(f"{SEED}{zone}")
    files = [text_of(json_lines(chance, 1000)), text_of(json_lines(chance, 30, odd=1), "\r\n")]
    mode = "DROPMALFORMED" if zone == "Europe/Berlin" else "PERMISSIVE"
    ddl = f"{JSON_TYPES}, {CORRUPT} string"
    assert compare_rows(spark, tmp_path / "files", files, ddl, "json", timeZone=zone, mode=mode) > 100


def test_types_of_json_that_arrow_reads_too(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    # A file each: Arrow's parser refuses all lines of a block if it refuses one.
    files = [text_of(json_lines(chance, 1, JSON_PLAIN_NAMES, odd=0)) for _ in range(300)]
    compare_rows(spark, tmp_path / "files", files, f"{JSON_PLAIN}, {CORRUPT} string", "json")


def test_documents_of_json(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    files = []
    for _ in range(200):
        records = [a_json_record(chance, JSON_NAMES) for _ in range(chance.randint(0, 2))]
        text = f"[{', '.join(records)}]" if chance.random() < 0.6 else "\n".join(json_lines(chance, 2))
        files.append(text.replace(", ", ",\n").encode("utf-8", "surrogatepass"))
    compare_rows(spark, tmp_path / "files", files, f"{JSON_TYPES}, {CORRUPT} string", "json", multiLine=True)


def test_the_schema_of_json(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    names = [f"f{index}" for index in range(200)]
    wide = text_of(wide_json(chance, names, 5))
    assert compare_schemas(spark, tmp_path / "a", [wide], "json") != "struct<>"
    late = text_of([*wide_json(chance, names, 2), '{"late":1,"f0":5}', '{"f1":', "[]", '[{"more":true}]', "null"])
    assert "late" in compare_schemas(spark, tmp_path / "b", [wide, late], "json", primitivesAsString=True)
