"""That every table of Spark's stays what it was when it is encrypted, re-keyed, decrypted or relocated."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from ags1 import KeyMetadata, iceberg
from ags1.errors import Ags1Error, KeyAccessError, UnsupportedError
from ags1.iceberg import open_table
from ags1.iceberg.catalogs import CatalogTable, catalog_table
from ags1.kms import MemoryKms
from tests.iceberg.canonical import sorted_rows
from tests.iceberg.conversions import ENCRYPTED, LINEAGE, PLAINTEXT, beginning_with, read_rows, writable
from tests.iceberg.spark_tables import DEFINITIONS
from tests.iceberg.warehouse import SparkReader, SparkTable, SparkTables

CONVERTED = [each.name for each in DEFINITIONS if not {"no snapshot", "unsupported files"} & set(each.features)]
COPIED = (
    "events", "events_plain", "events_avro", "types", "evolution_avro", "deletes", "deletes_avro", "vector_removed",
    "branches", "fixed_partitions", "added",
)  # fmt: skip
NOW = datetime.timedelta(0)


def _check(table: SparkTable, made: CatalogTable, kms: MemoryKms, spark: SparkReader) -> None:
    """Compare with what Spark read of the table when it made it."""
    assert table.current is not None
    assert read_rows(made, kms) == sorted_rows(table.current.rows)
    for name, rows in table.refs.items():
        assert read_rows(made, kms, ref=name) == sorted_rows(rows.rows)
    location = made.load().metadata_location
    if "encrypted" in table.features:
        assert read_rows(made, kms, [*table.current.columns, *LINEAGE]) == sorted_rows(table.lineage.rows)
        columns = "*, " + ", ".join(LINEAGE)
        assert spark.read(Path(location.removeprefix("file://")), columns=columns)[1] == sorted_rows(table.lineage.rows)
    else:
        assert spark.read(Path(location.removeprefix("file://")))[1] == sorted_rows(table.current.rows)


@pytest.mark.parametrize("name", CONVERTED)
def test_new_keys_for_all_files_change_no_row_no_row_id_and_no_ref(
    name: str, spark_tables: SparkTables, spark_reader: SparkReader, tmp_path: Path, table_kms: MemoryKms
) -> None:
    table = spark_tables[name]
    made = writable(table, tmp_path)
    if "encrypted" in table.features:
        iceberg.rekey_table(made, key_id="keyB", data_keys=True, kms=table_kms)
    else:
        iceberg.encrypt_table(made, key_id="keyB", kms=table_kms)
    _check(table, made, table_kms, spark_reader)
    assert not beginning_with(tmp_path, PLAINTEXT)
    assert iceberg.open_table(made.load().metadata_location, table_kms).verify(snapshot_id=None).ok


@pytest.mark.parametrize("name", COPIED)
def test_a_copy_at_another_place_and_its_plaintext_have_the_same_rows(
    name: str, spark_tables: SparkTables, spark_reader: SparkReader, tmp_path: Path, table_kms: MemoryKms
) -> None:
    table = spark_tables[name]
    key_id = table.document["properties"].get("encryption.key-id", "keyA")
    place = tmp_path / "copy"
    report = iceberg.relocate_table(writable(table, tmp_path / "old"), str(place), key_id=key_id, kms=table_kms)
    made = catalog_table(None, str(place))
    assert not beginning_with(place, PLAINTEXT)
    assert report.metadata_location.startswith(str(place))
    iceberg.decrypt_table(made, kms=table_kms, expire=True)
    _check(table, made, table_kms, spark_reader)
    assert not beginning_with(place, ENCRYPTED)
    assert not iceberg.clean(made, kms=table_kms, older_than=NOW).paths


@pytest.mark.parametrize("name", ["events", "deletes_avro", "branches"])
def test_old_keys_open_nothing_after_new_keys_and_expiry(
    name: str, spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms
) -> None:
    source, place = writable(spark_tables[name], tmp_path / "old"), tmp_path / "copy"
    iceberg.relocate_table(source, str(place), kms=table_kms)
    made = catalog_table(None, str(place))
    rows = read_rows(made, table_kms)
    old = _keys_of(made, table_kms)
    before = {path for path in place.rglob("*") if path.is_file()}
    report = iceberg.rekey_table(made, data_keys=True, kms=table_kms, data_key_length=32)
    assert "the old keys STILL open data" in str(report)
    iceberg.expire_snapshots(made, kms=table_kms)
    left = [path for path in place.rglob("*") if path.is_file() and not path.name.endswith(".json")]
    assert not before & set(left)
    assert not [path for path in left for key in old if _opens(path, key)]
    assert read_rows(made, table_kms) == rows
    # Their key encryption keys are gone, too.
    fields = made.load().document.fields
    assert {each["encrypted-by-id"] for each in fields["encryption-keys"]} - {fields["properties"]["encryption.key-id"]}
    assert len(fields["encryption-keys"]) == 1 + len(fields["snapshots"])


def _keys_of(table: CatalogTable, kms: MemoryKms) -> list[KeyMetadata]:
    from ags1.iceberg.walk.table_walk import walk

    opened = open_table(table.load().metadata_location, kms, allow_plaintext=True)
    files = walk(opened.metadata_location, opened.io, "all")
    return [each.known.key_metadata for each in files if each.known.key_metadata is not None]


def _opens(path: Path, key: KeyMetadata) -> bool:
    import ags1
    from ags1 import parquet

    try:
        if path.read_bytes()[:4] == b"PARE":
            parquet.inspect(path, parquet.DecryptionConfig.for_iceberg(key))
        else:
            ags1.decrypt(path.read_bytes(), key.encryption_key, aad_prefix=key.aad_prefix or b"")
    except Ags1Error:
        return False
    return True


def test_nothing_is_written_for_a_table_with_orc_files(
    spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms
) -> None:
    made = writable(spark_tables["orc"], tmp_path)
    before = sorted(tmp_path.rglob("*"))
    plan = iceberg.plan_conversion(made, key_id="keyA", kms=table_kms)
    assert not plan.ok
    assert "orc" in str(plan)
    with pytest.raises(UnsupportedError, match=r"files of the format orc .* write these rows again as Parquet"):
        iceberg.encrypt_table(made, key_id="keyA", kms=table_kms)
    assert sorted(tmp_path.rglob("*")) == before


def test_enabling_touches_no_file_and_says_what_is_left(
    spark_tables: SparkTables, spark_reader: SparkReader, tmp_path: Path, table_kms: MemoryKms
) -> None:
    table = spark_tables["events_plain"]
    made = writable(table, tmp_path)
    report = iceberg.encrypt_table(made, key_id="keyA", kms=table_kms, steps=("enable",))
    assert report.files == 0
    assert made.load().document.fields["properties"]["encryption.key-id"] == "keyA"
    _check(table, made, table_kms, spark_reader)
    # Afterwards the files are converted by the same call.
    report = iceberg.encrypt_table(made, key_id="keyA", kms=table_kms)
    assert report.files
    assert "NOT all encrypted yet" in str(report)
    assert not beginning_with(tmp_path, PLAINTEXT)
    # And there is nothing left to do.
    location = made.load().metadata_location
    again = iceberg.encrypt_table(made, key_id="keyA", kms=table_kms)
    assert again.files == 0
    assert made.load().metadata_location == location


def test_a_plan_writes_nothing_and_says_what_would_be_done(
    spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms
) -> None:
    made = writable(spark_tables["events_plain"], tmp_path)
    before = sorted(tmp_path.rglob("*"))
    plan = iceberg.plan_conversion(made, key_id="keyA", kms=table_kms)
    assert plan.ok
    assert plan.files["data"]
    assert plan.files["position deletes"]
    assert plan.refs == ["main"]
    for part in ("upgraded from format version 2 to 3", "stay in plaintext until they are expired", "traces"):
        assert part in str(plan)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_master_key_that_is_not_there_is_one_problem_however_many_files_there_are(
    spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms
) -> None:
    made = writable(spark_tables["events_plain"], tmp_path)
    plan = iceberg.plan_conversion(made, key_id="misspelt", kms=table_kms)
    assert sum(plan.files.values()) > 1
    assert len(plan.problems) == 1
    with pytest.raises(KeyAccessError, match="misspelt"):
        iceberg.encrypt_table(made, key_id="misspelt", kms=table_kms)


def test_another_master_key_alone_moves_no_file(
    spark_tables: SparkTables, spark_reader: SparkReader, tmp_path: Path, table_kms: MemoryKms
) -> None:
    table = spark_tables["events"]
    made = writable(table, tmp_path)
    report = iceberg.rekey_table(made, key_id="keyB", kms=table_kms)
    assert report.files == 0
    assert not (tmp_path / "data").exists()
    only = MemoryKms({"keyB": b"1123456789012345"})
    _check(table, made, only, spark_reader)


def test_a_plaintext_table_is_not_decrypted_and_has_no_keys_to_change(
    spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms
) -> None:
    made = writable(spark_tables["events_plain"], tmp_path)
    with pytest.raises(ValueError, match="is not encrypted"):
        iceberg.decrypt_table(made, kms=table_kms)
    with pytest.raises(ValueError, match="is not encrypted"):
        iceberg.plan_conversion(made, decrypt=True, kms=table_kms)
    for call in (iceberg.rekey_table, iceberg.plan_conversion):
        with pytest.raises(ValueError, match="is not encrypted: use `encrypt_table`"):
            call(made, data_keys=True, kms=table_kms)
    assert made.load().document.fields["format-version"] == 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda table, kms: iceberg.encrypt_table(table, key_id="keyB", kms=kms), "use `rekey_table`"),
        (lambda table, kms: iceberg.rekey_table(table, kms=kms), "give another master key"),
        (lambda table, kms: iceberg.rekey_table(table, data_key_length=16, kms=kms), "data_keys=True"),
        (lambda table, kms: iceberg.encrypt_table(table, key_id="keyA", kms=kms, steps=("all",)), "steps must be of"),
    ],
)
def test_calls_that_make_no_sense_are_refused(
    call: object, message: str, spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms
) -> None:
    made = writable(spark_tables["events"], tmp_path)
    with pytest.raises(ValueError, match=message):
        call(made, table_kms)  # type: ignore[operator]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metadata"]
