"""Columns of DataFrames against Spark itself: types, streams, SQL functions, and Spark's own AES functions."""

from __future__ import annotations

import datetime
import decimal
import os
import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pa = pytest.importorskip("pyarrow")

import ags1  # noqa: E402
import ags1.spark  # noqa: E402
from ags1 import arrow  # noqa: E402
from ags1.errors import AlreadyEncryptedError  # noqa: E402
from tests.checks import KEY, flip  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = """
    id bigint not null, text string, data binary, flag boolean, tiny tinyint, whole int, real double,
    money decimal(20, 3), day date, moment timestamp, local timestamp_ntz, gap interval day to second,
    person struct<name: string, tags: array<string>, born: struct<day: date, place: string>>,
    scores map<string, array<double>>, never array<struct<a: int, b: boolean>> not null, plain map<string, string>,
    word string collate UNICODE_CI
"""
MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456)


def rows() -> list[tuple[Any, ...]]:
    first = (
        1, "ä", b"\0\xff", True, -7, 1 << 30, -0.0, decimal.Decimal("-12345.678"),
        datetime.date(1582, 10, 4), MOMENT, MOMENT, datetime.timedelta(days=3, microseconds=1),
        {"name": "Ada", "tags": ["x", None, ""], "born": {"day": datetime.date(1815, 12, 10), "place": None}},
        {"a": [1.5, None], "b": [], "c": None}, [{"a": 1, "b": None}, None], {"k": "v"}, "W",
    )  # fmt: skip
    second = (2, *[None] * 13, [], None, None)
    third = (3, "", b"", False, 127, 0, float("inf"), decimal.Decimal(0), *first[8:])
    return [first, second, third]


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(rows(), SCHEMA)


@pytest.fixture
def keys(tmp_path: Path, kms_url: str) -> dict[str, Any]:
    return {"kms": kms_url, "keys": tmp_path / "keys"}


def fetched(frame: DataFrame) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: row.id)


@pytest.mark.parametrize("form", ["ags1", "gcm"])
def test_the_decrypted_data_frame_equals_the_first_one(frame: DataFrame, keys: dict[str, Any], form: Any) -> None:
    columns = {name: "lake" for name in frame.columns if name not in ("id", "plain")}
    sealed = ags1.spark.encrypt_columns(frame, columns, **keys, form=form, row_key="id")
    assert {each.dataType.simpleString() for each in sealed.schema if each.name in columns} == {"binary"}
    plain = ags1.spark.decrypt_columns(sealed, columns, **keys, form=form, row_key="id")
    assert plain.schema == frame.schema
    assert fetched(plain) == fetched(frame)
    shown = str(fetched(sealed))
    assert "Ada" not in shown


def test_a_column_may_have_the_name_of_a_path_to_another(spark: SparkSession, keys: dict[str, Any]) -> None:
    frame = spark.createDataFrame(
        [(1, ("field",), "column", "é")], "id int, a struct<b: string>, `a.b` string, ```` string"
    )
    columns = {"a.b": "lake", "`": "lake"}
    sealed = ags1.spark.encrypt_columns(frame, columns, **keys, row_key="id")
    assert tuple(sealed.first())[:2] == tuple(frame.first())[:2]
    plain = ags1.spark.decrypt_columns(sealed, columns, **keys, row_key="id")
    assert (plain.schema, plain.collect()) == (frame.schema, frame.collect())


NAMES = [
    "a", "a", "a", "A", "b", "a.b", "A.b", "`", "é", "É", "ß", "ẞ", "\N{GREEK SMALL LETTER SIGMA}", "ς", "İ", "i",
    "a_error", "a_error", "A_ERROR",
]  # fmt: skip


def spark_finds(frame: DataFrame, name: str) -> int | None:
    """The position of the column that Spark's analyzer takes for a name, None if there is none or are several."""
    from pyspark.errors import AnalysisException

    plan = frame._jdf.queryExecution().analyzed()
    resolver = frame.sparkSession._jsparkSession.sessionState().conf().resolver()
    try:
        found = plan.resolveQuoted(f"`{name.replace('`', '``')}`", resolver)
    except AnalysisException:
        return None
    if found.isEmpty():
        return None
    output = [plan.output().apply(index).exprId() for index in range(len(frame.columns))]
    return output.index(found.get().exprId())


@pytest.mark.parametrize("case_sensitive", [True, False])
def test_names_are_found_as_spark_finds_them_and_what_it_refuses_writes_no_key(
    spark: SparkSession, keys: dict[str, Any], case_sensitive: bool
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.caseSensitive", case_sensitive)
    draw = random.Random(22)
    rows = session.createDataFrame([tuple("abcdef")])
    counted = dict.fromkeys(("refused", "error column refused", "done"), 0)
    for _ in range(60):
        names = draw.choices(NAMES, k=draw.randint(1, 5))
        names += names[:1] * draw.choice([0, 0, 1])
        frame = rows.select(rows.columns[: len(names)]).toDF(*names)
        asked = draw.sample([*names[1:], names[0].swapcase(), draw.choice(NAMES)], draw.randint(1, min(3, len(names))))
        wanted, row_key = dict.fromkeys(asked[:2], "lake"), asked[2] if asked[2:] else None
        found = [spark_finds(frame, each) for each in (*wanted, *asked[2:])]
        if None in found or len(set(found)) < len(found):
            before = list(Path(keys["keys"]).rglob("run.json"))
            with pytest.raises(ValueError, match=r"there (is no|are \d) column|column .* twice|is encrypted itself"):
                ags1.spark.encrypt_columns(frame, wanted, **keys, row_key=row_key)
            assert list(Path(keys["keys"]).rglob("run.json")) == before
            counted["refused"] += 1
            continue
        sealed = ags1.spark.encrypt_columns(frame, wanted, **keys, row_key=row_key)
        positions = [each for each in found if each is not None]
        expected = ["binary" if at in positions[: len(wanted)] else "string" for at in range(len(names))]
        assert [(each.name, each.dataType.simpleString()) for each in sealed.schema] == list(
            zip(names, expected, strict=True)
        )
        plain = ags1.spark.decrypt_columns(sealed, wanted, **keys, row_key=row_key)
        assert plain.schema == frame.schema
        errors = [f"{names[at]}_error" for at in positions[: len(wanted)]]
        wider = rows.select(rows.columns[: len(names)] + rows.columns[: len(errors)]).toDF(*names, *errors)
        if any(spark_finds(wider, each) is None for each in errors):
            with pytest.raises(ValueError, match="on_error='null' adds a column"):
                ags1.spark.decrypt_columns(sealed, wanted, **keys, row_key=row_key, on_error="null")
            counted["error column refused"] += 1
            continue
        nulled = ags1.spark.decrypt_columns(sealed, wanted, **keys, row_key=row_key, on_error="null")
        assert nulled.columns == wider.columns
        if len(set(names)) < len(names) and counted["done"] < 2:
            counted["done"] += 1
            assert plain.collect() == frame.collect()
            assert [tuple(each) for each in nulled.collect()] == [(*frame.first(), *[None] * len(errors))]
    assert all(counted.values()), counted


def test_a_frame_that_spark_cannot_give_to_tasks_is_refused_before_a_key_is_written(
    frame: DataFrame, keys: dict[str, Any]
) -> None:
    for expression in ("interval 1 month", "make_interval(1, 2, 3)", "array()"):
        wider = frame.selectExpr("text", f"{expression} AS other")
        with pytest.raises(TypeError, match=r"column 'other' has the type .*, which Spark does not give to Arrow"):
            ags1.spark.encrypt_columns(wider, {"text": "lake"}, **keys)
    assert not os.path.exists(keys["keys"])


def test_a_column_is_not_encrypted_twice_by_mistake(frame: DataFrame, keys: dict[str, Any], tmp_path: Path) -> None:
    columns = {"text": "lake"}
    sealed = ags1.spark.encrypt_columns(frame, {**columns, "data": "lake"}, **keys)
    sealed.write.parquet(str(tmp_path / "stored"))
    stored = frame.sparkSession.read.parquet(str(tmp_path / "stored"))
    for each in (sealed, sealed.select("id", "text").where("id > 1"), stored):
        with pytest.raises(AlreadyEncryptedError, match=r"column 'text' is encrypted already; .*withMetadata\('text'"):
            ags1.spark.encrypt_columns(each, columns, **keys)
    # Of a column that was decrypted, and of others, the metadata says nothing; and who wants it twice can have it.
    ags1.spark.encrypt_columns(ags1.spark.decrypt_columns(stored, columns, **keys), columns, **keys)
    ags1.spark.encrypt_columns(stored, {"word": "lake"}, **keys)
    twice = ags1.spark.encrypt_columns(stored.withMetadata("data", {}), {"data": "lake2"}, **keys)
    once = ags1.spark.decrypt_columns(twice, {"data": "lake2"}, **keys)
    assert [row.data for row in fetched(once)] == [row.data for row in fetched(stored)]


def test_a_frame_that_is_evaluated_twice_is_encrypted_twice_and_both_are_right(
    frame: DataFrame, keys: dict[str, Any], tmp_path: Path
) -> None:
    sealed = ags1.spark.encrypt_columns(frame, {"text": "lake"}, **keys).repartition(2)
    for name in ("a", "b"):
        sealed.write.parquet(str(tmp_path / name))
    session = frame.sparkSession
    stored = [session.read.parquet(str(tmp_path / name)) for name in ("a", "b")]
    values = [{bytes(row.text) for row in each.collect() if row.text is not None} for each in stored]
    assert not values[0] & values[1]
    assert not {each[:18] for each in values[0]} & {each[:18] for each in values[1]}
    both = ags1.spark.decrypt_columns(stored[0].union(stored[1]), {"text": "lake"}, **keys)
    assert sorted(row.text or "" for row in both.collect()) == sorted(2 * ["ä", "", ""])


def test_metadata_of_fields_may_be_lost_on_the_way(frame: DataFrame, keys: dict[str, Any], tmp_path: Path) -> None:
    from pyspark.sql import functions

    sealed = ags1.spark.encrypt_columns(frame.select("id", "text"), {"text": "lake"}, **keys)
    sealed.withColumn("text", functions.hex("text")).write.csv(str(tmp_path / "csv"), nullValue="-")
    read = frame.sparkSession.read.csv(str(tmp_path / "csv"), schema="id bigint, text string", nullValue="-")
    again = ags1.spark.decrypt_columns(read.withColumn("text", functions.unhex("text")), {"text": "lake"}, **keys)
    assert fetched(again) == fetched(frame.select("id", "text"))


def test_nulls_of_an_outer_join_are_nulls(frame: DataFrame, keys: dict[str, Any]) -> None:
    text = frame.selectExpr("id", "'text' AS text", "struct(id AS of) AS inner")
    assert not text.schema["text"].nullable
    columns = {"text": "lake", "inner": "lake"}
    sealed = ags1.spark.encrypt_columns(text, columns, **keys)
    joined = frame.sparkSession.range(5).join(sealed, "id", "left")
    plain = ags1.spark.decrypt_columns(joined, columns, **keys)
    assert sorted(row.id for row in plain.where("text IS NULL AND inner IS NULL").collect()) == [0, 4]
    assert ags1.spark.decrypt_columns(sealed, columns, **keys).schema == text.schema


def test_damage_names_the_column_and_the_row_and_is_null_where_that_is_asked_for(
    frame: DataFrame, keys: dict[str, Any]
) -> None:
    sealed = ags1.spark.encrypt_columns(frame.select("id", "text", "whole"), {"text": "lake", "whole": "lake2"}, **keys)
    broken = [(row.id, row.text, row.whole and bytearray(flip(bytes(row.whole), 50))) for row in fetched(sealed)]
    damaged = frame.sparkSession.createDataFrame(broken, sealed.schema).coalesce(1)
    columns = {"text": "lake", "whole": "lake2"}
    with pytest.raises(Exception, match=r"AuthenticationError: column 'whole', row 0 of partition 0: the tag does not"):
        ags1.spark.decrypt_columns(damaged, columns, **keys).collect()
    plain = fetched(ags1.spark.decrypt_columns(damaged, columns, **keys, on_error="null"))
    assert plain[0].asDict().keys() == {"id", "text", "whole", "text_error", "whole_error"}
    assert [row.whole for row in plain] == [None, None, None]
    assert [row.text for row in plain] == ["ä", None, ""]
    assert [row.whole_error is not None for row in plain] == [True, False, True]
    assert [row.text_error for row in plain] == [None, None, None]
    with pytest.raises(ags1.AuthenticationError, match="under the master key 'lake', and 'lake2' is expected"):
        ags1.spark.decrypt_columns(sealed, {"text": "lake2"}, **keys, on_error="null")


def test_arguments_that_make_no_sense_are_refused_before_anything_is_written(
    frame: DataFrame, keys: dict[str, Any]
) -> None:
    encrypt, decrypt = ags1.spark.encrypt_columns, ags1.spark.decrypt_columns
    for call, error, message in (
        (lambda: encrypt(frame, {"none": "lake"}, **keys), ValueError, "no column 'none'"),
        (lambda: encrypt(frame, {}, **keys), TypeError, "a mapping of names to master keys"),
        (lambda: encrypt(frame, ["text"], **keys), TypeError, "a mapping of names to master keys"),
        (lambda: encrypt(frame, {"text": "lake"}, **keys, form="GCM"), ValueError, "form must be"),
        (lambda: encrypt(frame, {"text": "lake"}, **keys, row_key="text"), ValueError, "is encrypted itself"),
        (lambda: encrypt(frame, {"text": "lake"}, **keys, row_key="none"), ValueError, "no column 'none'"),
        (lambda: encrypt(frame, {"text": "lake"}, keys=keys["keys"], kms=KEY), TypeError, "kms must be a URL"),
        (lambda: encrypt(frame, {"text": "nobody"}, **keys), ags1.KeyAccessError, "nobody"),
        (lambda: encrypt(frame, {"text": "lake", "data": 5}, **keys), TypeError, "key of column 'data' must be a str"),
        (lambda: encrypt(frame, {"text": "lake", "TEXT": "lake"}, **keys), ValueError, "the column 'text' twice"),
        (lambda: encrypt(frame, {"text": "lake"}, **keys, row_key="TEXT"), ValueError, "is encrypted itself"),
        (lambda: encrypt([], {"text": "lake"}, **keys), TypeError, "df must be a DataFrame"),
        (lambda: encrypt(frame.selectExpr("null AS v"), {"v": "lake"}, **keys), TypeError, "cannot be encrypted"),
        (lambda: decrypt(frame, {"text": "lake"}, **keys), TypeError, "is not binary but string"),
        (lambda: decrypt(frame, {"data": "lake"}, **keys), FileNotFoundError, "there is no key table"),
        (lambda: decrypt(frame, {"data": "lake"}, **keys, on_error="skip"), ValueError, "on_error must be"),
        (lambda: decrypt(frame, {"data": "lake"}, **keys, types={"text": "string"}), ValueError, "not decrypted: text"),
        (
            lambda: decrypt(frame, {"data": "lake"}, **keys, types={"data": "int", "DATA": "int"}),
            ValueError,
            "types has the column 'data' twice",
        ),
    ):
        with pytest.raises(error, match=message):
            call()
    assert not os.path.exists(keys["keys"]) or not list(Path(keys["keys"]).rglob("*.json"))


# -- streams -------------------------------------------------------------------------------------------------


def test_a_stream_is_encrypted_goes_on_after_a_restart_and_is_decrypted_as_a_stream(
    spark: SparkSession, keys: dict[str, Any], tmp_path: Path
) -> None:
    source, vault, plain = (str(tmp_path / name) for name in ("source", "vault", "plain"))

    def run(target: str, frame: DataFrame) -> None:
        stream = frame.writeStream.format("parquet").option("checkpointLocation", f"{target}.checkpoint")
        stream.trigger(availableNow=True).start(target).awaitTermination()

    def encrypt() -> None:
        frame = spark.readStream.schema("id bigint, text string").option("maxFilesPerTrigger", 1).parquet(source)
        run(vault, ags1.spark.encrypt_columns(frame, {"text": "lake"}, **keys, row_key="id", form="gcm"))

    for start in (0, 100):
        for part in (0, 50):
            frame = spark.range(start + part, start + part + 50, numPartitions=1)
            frame.selectExpr("id", "'text ' || id AS text").write.mode("append").parquet(source)
        encrypt()
    sealed = spark.read.parquet(vault)
    assert sealed.count() == 200
    # A record for all starts of the query, a data key for each micro-batch.
    assert len({bytes(row.text)[:6] for row in sealed.collect()}) == 1
    assert len({bytes(row.text)[:18] for row in sealed.collect()}) == 4
    following = spark.readStream.schema(sealed.schema).parquet(vault)
    run(plain, ags1.spark.decrypt_columns(following, {"text": "lake"}, **keys, row_key="id", form="gcm"))
    found = spark.read.parquet(plain).collect()
    assert sorted((row.id, row.text) for row in found) == [(number, f"text {number}") for number in range(200)]


# -- SQL -----------------------------------------------------------------------------------------------------


def test_a_key_table_that_is_not_there_is_told_from_one_without_a_key(
    frame: DataFrame, keys: dict[str, Any], tmp_path: Path
) -> None:
    sealed = ags1.spark.encrypt_columns(frame, {"text": "lake"}, **keys)
    with pytest.raises(FileNotFoundError, match=r"there is no key table: `keys` is where .*: '.*/misspelt'"):
        ags1.spark.decrypt_columns(sealed, {"text": "lake"}, kms=keys["kms"], keys=tmp_path / "misspelt")
    with pytest.raises(ValueError, match=r"/keys has no key of the column 'data', to say its type: give types="):
        ags1.spark.decrypt_columns(frame, {"data": "lake"}, **keys)


def test_views_encrypt_and_decrypt_only_where_that_is_asked_for(
    spark: SparkSession, frame: DataFrame, keys: dict[str, Any]
) -> None:
    session = spark.newSession()
    session.createDataFrame(rows(), SCHEMA).createOrReplaceTempView("people")
    ags1.spark.register_columns(session, **keys, key_ids=["lake", "lake2"], form="gcm")
    with pytest.raises(Exception, match="ags1_decrypt"):
        session.sql("SELECT ags1_decrypt(data, 'lake') FROM people").collect()
    session.sql(
        "CREATE TEMPORARY VIEW sealed AS SELECT id, ags1_encrypt(text, 'lake', 'text', id) AS text, "
        "ags1_encrypt(data, 'lake2') AS data FROM people"
    )
    assert "Ada" not in str(session.table("sealed").collect())
    ags1.spark.register_columns(session, **keys, key_ids=["lake", "lake2"], form="gcm", decrypt=True)
    plain = session.sql(
        "SELECT id, cast(ags1_decrypt(text, 'lake', 'text', id) AS string) AS text, "
        "ags1_decrypt(data, 'lake2') AS data FROM sealed"
    )
    assert fetched(plain) == fetched(frame.select("id", "text", "data"))
    # The functions of data frames read the same values.
    types = {"text": "string"}
    again = ags1.spark.decrypt_columns(
        session.table("sealed").drop("data"), {"text": "lake"}, **keys, form="gcm", row_key="id", types=types
    )
    assert fetched(again) == fetched(frame.select("id", "text"))
    kept = ags1.spark.encrypt_columns(frame.select("id", "text"), {"text": "lake"}, **keys, form="gcm")
    spark_rows = session.createDataFrame(kept.collect(), kept.schema)
    spark_rows.createOrReplaceTempView("kept")
    assert fetched(session.sql("SELECT id, cast(ags1_decrypt(text, 'lake', 'text') AS string) AS text FROM kept")) == (
        fetched(frame.select("id", "text"))
    )
    with pytest.raises(Exception, match=r"AuthenticationError: column 'text', row \d of partition"):
        session.sql("SELECT ags1_decrypt(text, 'lake', 'text', id + 1) FROM sealed").collect()


def test_a_filter_is_below_a_decryption_where_the_page_says_so(
    spark: SparkSession, frame: DataFrame, keys: dict[str, Any], tmp_path: Path
) -> None:
    session = spark.newSession()
    columns = {"text": "lake"}
    sealed = ags1.spark.encrypt_columns(frame.select("id", "text"), columns, **keys)
    sealed.write.parquet(str(tmp_path / "stored"))
    stored = session.read.parquet(str(tmp_path / "stored"))

    def plan(frame: DataFrame) -> list[str]:
        """The steps of a query that matter here, from the top."""
        text = frame._jdf.queryExecution().executedPlan().toString()
        return re.findall(r"\b(MapInArrow|ArrowEvalPython|Filter)\b(?!s)", text)

    assert plan(ags1.spark.decrypt_columns(stored.where("id = 1"), columns, **keys)) == ["MapInArrow", "Filter"]
    # If Spark learns to move it, the page says less.
    assert plan(ags1.spark.decrypt_columns(stored, columns, **keys).where("id = 1")) == ["Filter", "MapInArrow"]
    ags1.spark.register_columns(session, **keys, key_ids=["lake"], decrypt=True)
    stored.createOrReplaceTempView("stored")
    session.sql("CREATE TEMPORARY VIEW opened AS SELECT id, ags1_decrypt(text, 'lake', 'text') AS text FROM stored")
    assert plan(session.table("opened").where("id = 1")) == ["ArrowEvalPython", "Filter"]
    assert plan(session.table("opened").select("id")) == []


def test_the_sql_function_is_marked_as_not_deterministic(spark: SparkSession, keys: dict[str, Any]) -> None:
    session = spark.newSession()
    ags1.spark.register_columns(session, **keys, key_ids=["lake"])
    # Twice the same call in one query: Spark computes equal deterministic expressions once.
    query = "SELECT ags1_encrypt('a', 'lake') AS one, ags1_encrypt('a', 'lake') AS two FROM range(3)"
    found = [bytes(value) for row in session.sql(query).collect() for value in row]
    assert len(set(found)) == 6
    with pytest.raises(TypeError, match="key_ids must be"):
        ags1.spark.register_columns(session, **keys, key_ids="lake")


# -- Spark's own functions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [128, 192, 256])
@pytest.mark.parametrize("aad", [b"", b"people/name"])
def test_sparks_own_functions_read_what_is_made_and_the_other_way_round(
    spark: SparkSession, bits: int, aad: bytes
) -> None:
    from pyspark.sql import functions

    key = KEY[: bits // 8]
    values = [b"", b"one", bytes(5000), "ä".encode()]
    sealed = arrow.encrypt_array(pa.array(values), key, aad_prefixes=aad, form="gcm").to_pylist()
    secret, extra, gcm, default = (functions.lit(each) for each in (key, aad, "GCM", "DEFAULT"))
    ours = spark.createDataFrame(list(enumerate(sealed)), "id int, v binary")
    read = ours.select("id", functions.aes_decrypt("v", secret, gcm, default, extra).alias("v"))
    assert [bytes(row.v) for row in fetched(read)] == values
    theirs = spark.createDataFrame(list(enumerate(values)), "id int, v binary")
    nonce = functions.lit(b"")
    made = theirs.select("id", functions.aes_encrypt("v", secret, gcm, default, nonce, extra).alias("v"))
    array = pa.array([bytes(row.v) for row in fetched(made)], pa.binary())
    assert [len(each) - 28 for each in array.to_pylist()] == [len(each) for each in values]
    assert arrow.decrypt_array(array, key, aad_prefixes=aad, form="gcm").to_pylist() == values
    with pytest.raises(ags1.AuthenticationError):
        arrow.decrypt_array(array, key, aad_prefixes=aad + b"?", form="gcm")
