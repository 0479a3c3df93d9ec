"""Random CSV, JSON and names of directories, read by ``spark.read`` and by the data source over the same bytes.

Many files or lines share one query of Spark's. A difference is an AssertionError that shows the record, as short as it
can be made without Spark.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ags1.spark.source._directories import constant, escaped, inferred, values_of
from ags1.spark.source._options import SourceOptions
from ags1.spark.source.decoders import decoder_for
from ags1.spark.source.decoders._json_values import scanned
from tests.spark.source_files import END, options, plain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CORRUPT = "_corrupt_record"
ZONES = ("UTC", "Europe/Berlin", "America/New_York")

# -- values ----------------------------------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    return text.split()


NUMBERS = words(
    "0 1 -1 +7 007 127 128 -128 200 255 256 32768 2147483647 2147483648 -2147483649 9223372036854775807 "
    "9223372036854775808 123456789012345678901234567890 99999999999999999999999999999999999999 1e5 1E-3 1.5E1 10E0 1.0 "
    "-2.50 .5 5. 1.25 -0.005 0.125 999.995 1e400 -1e400 1e-400 3.4e39 1d 2.5f 0x1F 0x1p3 1_000 1,5 NaN nan Inf -Inf "
    "Infinity -Infinity +Infinity INF -INF inf 1L --1 1e 12345678.9 1234567890.123456789"
)
FLAGS = words("true false TRUE False tRuE t f yes no 1 0 truee")
DAYS = words(
    "2024-01-01 2024-02-29 2023-02-29 2024-1-5 2024-01 2024 02024-01-01 12024-01-01 +2024-01-01 -0044-03-15 0001-01-01 "
    "1582-10-10 9999-12-31 2024-13-01 2024-00-10 20240101 01/02/2024 2024-01-01T 2024-01-01x 2024-01-01T99 1582-10-04"
)
CLOCKS = (
    "00:00:00", "12:34:56", "12:34:56.7", "12:34:56.123456", "12:34:56.123456789", "12:34:56.", "23:59:60", "24:00:00",
    "1:2:3", "10:15", "10", "02:30:00", "01:30:00", "12:34",
)  # fmt: skip
SUFFIXES = (
    *("", "", "", "", "Z", "+01:00", "-0800", "+05", "+5:30", " +02:00", "UTC", "GMT+1", " Europe/Paris", "PST", "EST"),
    *("+25:00", "z", " America/New_York", "+01:00:30", "+18:00", "-18:01", "x"),
)
WORDS = ("", " ", "  ", "abc", "é€😀", "a b", " a", "a ", "null", "NULL", "\u0661", "\u00a0", "\t", "x\x7f", "NA")


def a_moment(chance: random.Random) -> str:
    day = f"{chance.randint(1800, 2199)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
    # And changes of the clocks.
    day = chance.choice((day, day, day, "2024-03-31", "2024-10-27", "2024-03-10", "2024-11-03", chance.choice(DAYS)))
    return day + chance.choice("TTT ") + chance.choice(CLOCKS) + chance.choice(SUFFIXES)


def a_text(chance: random.Random) -> str:
    kind = chance.randrange(8)
    if kind == 0:
        return chance.choice(DAYS)
    if kind <= 2:
        return a_moment(chance)
    if kind == 3:
        return chance.choice(FLAGS)
    if kind == 4:
        return chance.choice(WORDS)
    text = chance.choice(NUMBERS)
    return f"{chance.choice(' +-')}{text}{chance.choice(' 0')}" if chance.random() < 0.1 else text


# -- CSV -------------------------------------------------------------------------------------------------------------

CSV_TYPES = (
    "b tinyint, s smallint, i int, l bigint, f float, d double, z boolean, c decimal(5,2), e decimal(38,10), day date, "
    "at timestamp, local timestamp_ntz, t string, o binary"
)


def csv_lines(chance: random.Random, count: int, alphabet: Sequence[str]) -> list[str]:
    """Lines of a few characters, most of which mean something."""
    return ["".join(chance.choices(alphabet, k=chance.randint(1, 12))) for _ in range(count)]


def csv_values(chance: random.Random, count: int, columns: int) -> list[str]:
    """Lines with one value in every column, some with too many or too few."""
    lines = []
    for _ in range(count):
        text = a_text(chance).replace(",", ";")
        text = f'"{text}"' if chance.random() < 0.2 else text
        width = columns + (chance.choice((-1, 1)) if chance.random() < 0.05 else 0)
        lines.append(",".join([text] * width))
    return lines


def csv_columns(chance: random.Random, columns: int, rows: int) -> str:
    """A text whose columns each have values of few kinds, for inference."""
    pools = [
        *(NUMBERS[:12], NUMBERS, NUMBERS[:16], FLAGS[:5], DAYS[:3], DAYS, WORDS, ["2024-01-01 10:00:00", "2024", "5"]),
        *(["2024-01-01", "2024-01-02 10:00:00"], ["1.5", "7"], ["NaN", "1"], ["12:30:00", "x"], ["1", "true"]),
    ]
    made = []
    for _ in range(columns):
        pool = chance.choice(pools)
        few = [each.replace(",", ";") for each in chance.sample(list(pool), min(len(pool), chance.randint(1, 3)))]
        made.append([chance.choice([*few, ""]) for _ in range(rows)])
    return "".join(",".join(row) + "\n" for row in zip(*made, strict=True))


# -- JSON ------------------------------------------------------------------------------------------------------------

JSON_TYPES = (
    "b tinyint, i int, l bigint, f float, d double, z boolean, c decimal(5,2), day date, at timestamp, "
    "local timestamp_ntz, t string, o binary, a array<int>, st struct<x: int, y: string, w: struct<q: double>>, "
    "m map<string, int>, sa array<struct<x: int, at: timestamp>>, ss array<string>, ms map<string, struct<x: int>>"
)
JSON_NAMES = ["b", "i", "l", "f", "d", "z", "c", "day", "at", "local", "t", "o", "a", "st", "m", "sa", "ss", "ms", "no"]
# Fields that Arrow's parser can read too.
JSON_PLAIN = (
    "i int, l bigint, d double, g decimal(38,10), z boolean, day date, at timestamp, t string, a array<int>, "
    "st struct<x: int, y: string>"
)
JSON_PLAIN_NAMES = ["i", "l", "d", "g", "z", "day", "at", "t", "a", "st"]
ODD = (
    "01",
    "1.",
    "+1",
    "-",
    "nul",
    "True",
    "'x'",
    "'it\"s'",
    '"\\x"',
    '"\\u12"',
    '"a\tb"',
    "[1,]",
    '{"x":1,}',
    "{x:1}",
    '"\\\'"',
    "// c",
)


def a_json_value(chance: random.Random, depth: int = 0) -> str:
    kind = chance.randrange(11 if depth < 3 else 8)
    if kind == 0:
        return "null"
    if kind == 1:
        return chance.choice(("true", "false"))
    if kind <= 3:
        return chance.choice(
            ("0", "1", "-1", "127", "200", "300", "2147483648", "1704067200", "9223372036854775807", "1.5", "2.50",
               "9223372036854775808", "1e3", "1e30", "1E400", "1234567890123456789012345678901", "-0.0", "1.005",
               "123456789012345678901234567890.5", "NaN", "Infinity", "-Infinity", "+INF", "-INF")
        )  # fmt: skip
    if kind <= 7:
        text = a_text(chance)
        if chance.random() < 0.2:
            text = chance.choice(
                ("", "NaN", "-INF", "aGk=", "a Gk=", "aGk", "\ud800", "\U0001f600", 'q"\\/\n', "1,000.5")
            )
        return json.dumps(text, ensure_ascii=chance.random() < 0.5 or "\ud800" in text)
    if kind == 8:
        return "[" + ", ".join(a_json_value(chance, depth + 1) for _ in range(chance.randrange(4))) + "]"
    names = chance.sample(("x", "y", "w", "q", "at", "k", ""), k=chance.randrange(4))
    return "{" + ",".join(f'"{name}" :{a_json_value(chance, depth + 1)}' for name in names) + "}"


def a_json_record(chance: random.Random, names: Sequence[str]) -> str:
    chosen = chance.sample(list(names), chance.randint(0, 4))
    # After base64 that is cut, Spark's parser goes on anywhere.
    octets = ('"aGk="', '"aGkK\\n aGk= "', '"a Gk="', '"a?k="', '""', "5", "null", "[1]")
    fields = [f'"{name}":{chance.choice(octets) if name == "o" else a_json_value(chance)}' for name in chosen]
    return "{" + chance.choice((",", ", ")).join(fields) + "}"


def json_lines(chance: random.Random, count: int, names: Sequence[str] = JSON_NAMES, odd: float = 0.2) -> list[str]:
    lines = []
    for _ in range(count):
        line = a_json_record(chance, names)
        if chance.random() < odd:
            kind = chance.randrange(6)
            if kind == 0:
                line = line[: chance.randrange(len(line))]
            elif kind == 1:
                line = f"[{line}, {a_json_record(chance, names)}]" if chance.random() < 0.7 else "[]"
            elif kind == 2:
                line += chance.choice((" ", "x", line, ",", "}"))
            elif kind == 3:
                line = f'{{"{chance.choice("tdz")}":{chance.choice(ODD)},"i":1}}'
            elif kind == 4:
                line = chance.choice(("null", "5", '"s"', "[null]", "[1]", f"[{line}, 5]", " ", "\t", "true"))
            else:
                line = line.replace('"', "'")
        lines.append(line)
    return lines


def wide_json(chance: random.Random, names: Sequence[str], count: int) -> list[str]:
    """Records with every field; a field's values are of one or two kinds."""
    pools = {name: [a_json_value(chance) for _ in range(chance.randint(1, 2))] for name in names}
    return ["{" + ",".join(f'"{name}":{chance.choice(pools[name])}' for name in names) + "}" for _ in range(count)]


# -- both ------------------------------------------------------------------------------------------------------------


def write(directory: Path, files: Iterable[bytes], ending: str) -> list[bytes]:
    """Write files whose names are in order."""
    directory.mkdir(parents=True)
    kept = list(files)
    for number, data in enumerate(kept):
        (directory / f"{number:05}.{ending}").write_bytes(data)
    return kept


def comparable(kind: pa.DataType) -> pa.DataType:
    """A type whose values Python has, whatever they are: numbers for days and times."""
    types = pa.types
    if types.is_date(kind):
        return pa.int32()
    if types.is_timestamp(kind) or types.is_duration(kind):
        return pa.int64()
    if types.is_list(kind):
        return pa.list_(comparable(kind.value_type))
    if types.is_map(kind):
        return pa.map_(kind.key_type, comparable(kind.item_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(each.name, comparable(each.type)) for each in kind])
    return kind


def values(table: pa.Table) -> list[str]:
    """The rows, as texts that are the same for the same values, NaN included."""
    columns = [
        table.column(name).cast(comparable(table.schema.field(name).type)).to_pylist() for name in table.column_names
    ]
    columns = [
        [dict(each) if isinstance(each, list) and each and isinstance(each[0], tuple) else each for each in column]
        for column in columns
    ]
    rows = zip(*columns, strict=True) if columns else [()] * table.num_rows
    return [repr(dict(zip(table.column_names, row, strict=True))) for row in rows]


def ours(data: bytes, schema: pa.Schema, chosen: SourceOptions, cut: int | None = None) -> list[str]:
    """The rows of a file by the decoder, cut in two at a place."""
    decoder = decoder_for(chosen)
    file = plain(data, 1 << 16, "00000")
    places = [(0, END)] if cut is None else [(0, cut), (cut, END)]
    batches = [batch for start, end in places for batch in decoder.read(file, start, end, schema, None)]
    return values(pa.Table.from_batches(batches, schema))


def arrow_schema(given: Any) -> pa.Schema:
    """The schema in Arrow of a schema of Spark's, or of its text."""
    from pyspark.sql.types import StructType

    from ags1.spark.source._reader import arrow_schema

    return arrow_schema(StructType.fromDDL(given) if isinstance(given, str) else given)


def theirs(spark: SparkSession, directory: Path, ddl: str, decode: str, given: dict[str, Any]) -> list[list[str]]:
    """The rows of each file by Spark."""
    reader = spark.read.format(decode).schema(ddl).options(**given)
    frame = reader.load(str(directory)).selectExpr("*", "_metadata.file_name AS file__name")
    table = frame.toArrow()
    files = [int(name.partition(".")[0]) for name in table.column("file__name").to_pylist()]
    schema = arrow_schema(ddl)
    rows = values(table.drop_columns(["file__name"]).cast(schema))
    found: list[list[str]] = [[] for _ in range(sum(1 for each in directory.iterdir() if each.suffix != ".crc"))]
    for number, row in zip(files, rows, strict=True):
        found[number].append(row)
    return found


def compare_rows(
    spark: SparkSession, directory: Path, files: Iterable[bytes], ddl: str, decode: str, **given: Any
) -> int:
    """Compare the rows of files with a schema; return how many there are."""
    kept = write(directory, files, decode)
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    expected = theirs(spark, directory, ddl, decode, texts)
    chosen, schema = options(decode=decode, **given), arrow_schema(ddl)
    differences = []
    for data, wanted in zip(kept, expected, strict=True):
        found = ours(data, schema, chosen, len(data) // 2)
        if decode == "json":
            wanted = _of_valid_records(wanted)
            found = _of_valid_records(found)
        if found != wanted:
            differences.append(_difference(data, found, wanted))
    assert not differences, f"{decode} {texts}: {len(differences)} of {len(kept)} files differ:\n" + "\n".join(
        differences[:12]
    )
    return sum(map(len, expected))


def _of_valid_records(rows: list[str]) -> list[str]:
    """Rows of which only the text is left where it is no JSON: Spark's parser may keep some of its fields."""
    kept = []
    for row in rows:
        before, found, text = row.rpartition(f"'{CORRUPT}': ")
        try:
            valid = not found or text == "None}" or scanned(ast.literal_eval(text[:-1])) is not Ellipsis
        except ValueError:
            valid = False
        kept.append(before + found + text if valid else found + text)
    return kept


def _difference(data: bytes, found: list[str], wanted: list[str]) -> str:
    lines = data.decode("utf-8", "replace").splitlines()
    shown = [repr(data)] if len(data) < 200 else []
    shown += [f"{len(found)} rows and not {len(wanted)}"] if len(found) != len(wanted) else []
    for index, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one != other and len(shown) < 12:
            shown += [f"row {index}, ours and Spark's:", f"  {one}", f"  {other}"]
            shown += [f"  the line {lines[index]!r}"] if len(lines) == len(wanted) == len(found) else []
    return "\n  ".join(shown)


def compare_schemas(spark: SparkSession, directory: Path, files: Iterable[bytes], decode: str, **given: Any) -> str:
    """Compare the schemas that are inferred; return Spark's."""
    from pyspark.sql.pandas.types import from_arrow_schema

    kept = write(directory, files, decode)
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}
    wanted = spark.read.format(decode).options(**texts).load(str(directory)).schema
    inferred = decoder_for(options(decode=decode, **given)).infer(plain(data, 1 << 16) for data in kept)
    found = from_arrow_schema(inferred, prefer_timestamp_ntz=True)
    ours_ = {each.name: each.dataType.simpleString() for each in found}
    theirs_ = {each.name: each.dataType.simpleString() for each in wanted}
    different = {
        name: (ours_.get(name), theirs_.get(name))
        for name in {**ours_, **theirs_}
        if ours_.get(name) != theirs_.get(name)
    }
    assert not different, f"ours and Spark's differ: {dict(list(different.items())[:12])}"
    assert list(ours_) == list(theirs_)
    return wanted.simpleString()


# -- what is compared ------------------------------------------------------------------------------------------------

TEXTS = f"a string, b string, c string, {CORRUPT} string"
DIALECTS: tuple[dict[str, Any], ...] = (
    {},
    {"escape": '"', "mode": "DROPMALFORMED"},
    {"nullValue": "a", "emptyValue": "b", "comment": "#", "header": True, "enforceSchema": True},
    {"ignoreLeadingWhiteSpace": True, "ignoreTrailingWhiteSpace": True, "sep": ";", "quote": "'"},
)
CSV_LETTERS = ["a", "b", '"', '"', ",", ",", "\\", " ", "#", "é", "'", ";", "\t", "a,b,c", '"a","b"', ',"', '\\"']
CSV_TEXT = ["a", '"', '"', ",", "\\", " ", "\n", "\n", '"a\nb"', ',"x"\n', '\n"é","\n\n",b\n', "\n\n"]
JSON_WITH_BAD = f"{JSON_TYPES}, {CORRUPT} string"


def text_of(lines: Iterable[str], ending: str = "\n") -> bytes:
    return "".join(line + ending for line in lines).encode("utf-8", "surrogatepass")


def csv_dialects(spark: SparkSession, directory: Path, chance: random.Random, number: int) -> None:
    """Which values a line has."""
    files = [text_of(csv_lines(chance, 600, CSV_LETTERS), ending) for ending in ("\n", "\r\n")]
    assert compare_rows(spark, directory, files, TEXTS, "csv", **DIALECTS[number % len(DIALECTS)])


def csv_documents(spark: SparkSession, directory: Path, chance: random.Random, _: int) -> None:
    """Values over several lines, with one kind of line ends in a file."""
    files = []
    for _number in range(100):
        text = "".join(chance.choices(CSV_TEXT, k=chance.randint(1, 14)))
        files.append(text.replace("\n", chance.choice(("\n", "\r\n"))).encode())
    compare_rows(spark, directory, files, "a string, b string, c string", "csv", multiLine=True)


def csv_types(spark: SparkSession, directory: Path, chance: random.Random, number: int) -> None:
    """Texts of every form as values of every type."""
    width = CSV_TYPES.count(", ") + 1
    files = [text_of(csv_values(chance, 300, width)), text_of(csv_values(chance, 30, width))]
    ddl = f"{CSV_TYPES}, {CORRUPT} string"
    assert compare_rows(spark, directory, files, ddl, "csv", timeZone=ZONES[number % len(ZONES)])


def csv_schemas(spark: SparkSession, directory: Path, chance: random.Random, number: int) -> None:
    """Types that are inferred, from a file with a header that comes twice, and a longer line."""
    text = csv_columns(chance, 200, 6)
    if number % 2:
        compare_schemas(spark, directory, [text.encode()], "csv", inferSchema=True)
        return
    names = "a,A,,b,b,c,NULL," + ",".join(f"x{index}" for index in range(193))
    text = f"\n{names}\n{text}{text.splitlines()[0]},more\nx\n{names}\n"
    given = {"inferSchema": True, "header": True, "nullValue": "NULL"}
    compare_schemas(spark, directory, [text.encode()], "csv", **given)


def json_types(spark: SparkSession, directory: Path, chance: random.Random, number: int) -> None:
    """Records of every form, many of them bad."""
    files = [text_of(json_lines(chance, 400)), text_of(json_lines(chance, 30, odd=1), "\r\n")]
    mode = ("PERMISSIVE", "DROPMALFORMED", "PERMISSIVE")[number % 3]
    zone = ZONES[number % len(ZONES)]
    assert compare_rows(spark, directory, files, JSON_WITH_BAD, "json", timeZone=zone, mode=mode)


def json_of_arrow(spark: SparkSession, directory: Path, chance: random.Random, number: int) -> None:
    """Records that Arrow's parser may read, a file each: it refuses all records of a block if it refuses one."""
    files = [text_of(json_lines(chance, 1, JSON_PLAIN_NAMES, odd=0)) for _ in range(100)]
    ddl = f"{JSON_PLAIN}, {CORRUPT} string"
    compare_rows(spark, directory, files, ddl, "json", timeZone=ZONES[number % len(ZONES)])


def json_documents(spark: SparkSession, directory: Path, chance: random.Random, _: int) -> None:
    """A document in a file."""
    files = []
    for _number in range(100):
        records = [a_json_record(chance, JSON_NAMES) for _ in range(chance.randint(0, 2))]
        text = f"[{', '.join(records)}]" if chance.random() < 0.6 else "\n".join(json_lines(chance, 2))
        files.append(text.replace(", ", ",\n").encode("utf-8", "surrogatepass"))
    compare_rows(spark, directory, files, JSON_WITH_BAD, "json", multiLine=True)


def json_schemas(spark: SparkSession, directory: Path, chance: random.Random, number: int) -> None:
    """Types that are inferred, from several files; a field may come late."""
    names = [f"f{index}" for index in range(100)]
    early = text_of(wide_json(chance, names, 5))
    late = text_of([*wide_json(chance, names, 2), '{"late":1,"f0":5}', '{"f1":', "[]", '[{"more":true}]', "null"])
    files = [early, late][: 1 + number % 2]
    found = compare_schemas(spark, directory, files, "json", primitivesAsString=number % 4 > 1)
    assert ("late" in found) == bool(number % 2)


DIRECTORIES = [
    *(
        words("1 +4 007 0 \u0661"),
        words("2147483648 1 -9223372036854775808"),
        words("9223372036854775808 1 2147483648 1.5"),
    ),
    *(
        words("1e2 100 1E+2 1. 0e50 0.0 1e37 1e38"),
        words("1.5 2 .5 1d 2f NaN -Infinity Inf 0x1p3"),
        [" 1", "2 ", "1.5"],
    ),
    *(
        words("9" * 38 + " 5 1.5 " + "0" * 43 + "1"),
        words("2024-01-01 2024-02-29 2024-02-30 1582-10-10 0001-01-01"),
    ),
    *(["2024-01-01", "2024-03-31 02:30:00", "2024-10-27 02:30:00.5"], ["2024-01-01 10:00:00.000001", "2024-01-01"]),
    *(["2024-01-01 24:00:00", "1800-01-01 00:00:00", "9999-12-31 23:59:59", "1"], words("true TRUE a 1"), WORDS[2:]),
]
"""What directories may be named."""


def directories(spark: SparkSession, directory: Path, chance: random.Random, number: int) -> None:
    """Types and values of columns that are directories, found with their names in any case."""
    columns, null = 16, "__HIVE_DEFAULT_PARTITION__"
    picked = [chance.sample(pool, min(len(pool), 3)) for pool in chance.choices(DIRECTORIES, k=columns)]
    names = []
    for _ in range(4):
        texts = [null if chance.random() < 0.1 else escaped(chance.choice(few)) for few in picked]
        names.append(
            "".join(f"{'pP'[chance.randrange(2)]}{index}={text}/" for index, text in enumerate(texts)) + "f.txt"
        )
    for name in sorted(set(names)):
        (directory / name).parent.mkdir(parents=True)
        (directory / name).write_text("x")
    zone = ZONES[number % len(ZONES)]
    frame = spark.read.option("timeZone", zone).text(str(directory)).drop("value")
    kinds = inferred(sorted(set(names)))
    schema = pa.schema(kinds)
    # Spark has a type of its own for a column that is null everywhere.
    wanted = [pa.string() if pa.types.is_null(kind) else kind for kind in arrow_schema(frame.schema).types]
    assert schema.types == wanted, picked
    theirs = frame.toArrow()
    rows = []
    for name in set(names):
        found = {key.lower(): value for key, value in values_of(name).items()}
        row = [pa.array([constant(found[each.name.lower()], each, name, zone)], each.type) for each in schema]
        rows += values(pa.Table.from_arrays(row, schema=schema))
    assert sorted(rows) == sorted(values(theirs.rename_columns(schema.names).cast(schema))), picked


SCENARIOS = {
    "directories": (directories, len(ZONES)),
    "csv dialects": (csv_dialects, len(DIALECTS)),
    "csv documents": (csv_documents, 1),
    "csv types": (csv_types, len(ZONES)),
    "csv schemas": (csv_schemas, 2),
    "json types": (json_types, len(ZONES)),
    "json of arrow": (json_of_arrow, 1),
    "json documents": (json_documents, 1),
    "json schemas": (json_schemas, 2),
}
"""What is compared, and in how many forms."""
