"""Whatever was readable before a conversion is readable after it, or the plan refuses before anything is written."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, StringType, TimestampType, TimestamptzType

from ags1.errors import FormatError
from ags1.iceberg import EncryptedTable, decrypt_table, encrypt_table, load_table, plan_conversion, rekey_table
from ags1.kms import MemoryKms
from tests import checks
from tests.iceberg.avro_lake import data_file, optional
from tests.iceberg.delete_lake import DeleteLake

KMS = MemoryKms({"lake": bytes(16), "other": bytes(range(16))})
ALL = ("enable", "convert", "expire")
MAPPING = "schema.name-mapping.default"
SCHEMA = Schema(
    optional(1, "a", TimestampType()), optional(2, "b", TimestamptzType()), optional(3, "c", LongType()),
    optional(4, "d", StringType()), optional(5, "e", TimestampType()),
)  # fmt: skip
# What writers have stored below each column.
STORED = {
    "a": [pa.timestamp("ns"), pa.timestamp("us"), pa.timestamp("ms"), pa.timestamp("us", "UTC")],
    "b": [pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC"), pa.timestamp("ns")],
    "c": [pa.int64(), pa.int32(), pa.int16()],
    "d": [pa.string(), pa.large_string(), pa.null()],
    "e": [pa.date32(), pa.timestamp("ns")],
}
UNREADABLE = {"c": pa.string(), "a": pa.int64(), "d": pa.duration("s")}


def value(kind: pa.DataType, draw: random.Random) -> Any:
    if pa.types.is_null(kind) or draw.random() < 0.2:
        return None
    if pa.types.is_temporal(kind):
        return pa.scalar(draw.randrange(10_000), pa.int64() if kind.bit_width == 64 else pa.int32()).cast(kind)
    return draw.randrange(1 << 14) if pa.types.is_integer(kind) else str(draw.random())


class Files(DeleteLake):
    """A plaintext table of files in any form."""

    def add_columns(self, kinds: dict[str, pa.DataType], draw: random.Random, *, with_ids: bool) -> None:
        ids = {each.name: each.field_id for each in self.schemas[-1].fields}
        fields = [
            pa.field(name, kind, metadata={"PARQUET:field_id": str(ids[name])} if with_ids else None)
            for name, kind in kinds.items()
        ]
        columns = [pa.array([value(each.type, draw) for _ in range(30)], each.type) for each in fields]
        path = self.path(f"{len(self._manifests)}.parquet")
        pq.write_table(pa.table(columns, schema=pa.schema(fields)), path, row_group_size=10)
        file = data_file(path, FileFormat.PARQUET)
        file._data[4], file._data[5] = 30, Path(path).stat().st_size
        file.spec_id = 0
        self.add_file(file, 1)

    def load(self, *, mapped: bool = False) -> EncryptedTable:
        table = self.open()
        fields = dict(table.document.fields)
        if mapped:
            fields["properties"] = {MAPPING: create_mapping_from_schema(self.schemas[-1]).model_dump_json()}
        Path(table.metadata_location).unlink()
        return opened(self.directory, fields)


def opened(place: Path, fields: dict[str, Any] | None = None) -> EncryptedTable:
    if fields is not None:
        (place / "metadata").mkdir()
        (place / "metadata" / "v1.metadata.json").write_text(json.dumps(fields))
    return load_table(None, str(place), kms=KMS, allow_plaintext=True)


@checks.every("seed", range(12))
def test_tables_of_random_old_forms_keep_their_rows_through_conversions(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    place = tmp_path / str(seed)
    place.mkdir()
    lake = Files(place, SCHEMA)
    for _ in range(3):
        chosen = {name: draw.choice(kinds) for name, kinds in STORED.items()}
        lake.add_columns(chosen, draw, with_ids=draw.random() < 0.5)
    table = lake.load(mapped=True)
    rows = table.scan().to_arrow()
    assert rows.num_rows == 90
    encrypt_table(table, key_id="lake", steps=ALL)
    for change in (lambda each: rekey_table(each, key_id="other", data_keys=True, expire=True), decrypt_table):
        assert opened(place).scan().to_arrow() == rows
        change(opened(place))
    assert opened(place).scan().to_arrow() == rows


@checks.every("name", UNREADABLE)
def test_what_a_scan_cannot_read_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    place.mkdir()
    lake = Files(place, SCHEMA)
    usual = {each: kinds[0] for each, kinds in STORED.items()}
    lake.add_columns(usual, random.Random(1), with_ids=True)
    lake.add_columns({**usual, name: UNREADABLE[name]}, random.Random(1), with_ids=True)
    table = lake.load()
    with pytest.raises(FormatError, match=r"1\.parquet"):
        table.scan().to_arrow()
    before = sorted(place.rglob("*"))
    (problem,) = plan_conversion(table, key_id="lake").problems
    assert "1.parquet" in problem
    with pytest.raises(FormatError, match=r"1\.parquet"):
        encrypt_table(table, key_id="lake", steps=ALL)
    assert sorted(place.rglob("*")) == before


def test_a_partition_of_another_type_than_its_transform_gives_is_refused(tmp_path: Path) -> None:
    def spec(transform: Any) -> PartitionSpec:
        return PartitionSpec(PartitionField(source_id=4, field_id=1000, transform=transform, name="p"))

    lake = DeleteLake(tmp_path, SCHEMA, specs=[spec(IdentityTransform())])
    lake.add([{"d": "x"}], 1, partition=["x"])
    lake.specs = [spec(BucketTransform(4))]
    lake.open()
    table = load_table(None, str((tmp_path / "00001.metadata.json").rename(tmp_path / "v1.metadata.json")), kms=KMS)
    with pytest.raises(FormatError, match=r"Avro type string in the partition field 'p', and bucket\[4\] gives int"):
        encrypt_table(table, key_id="lake", steps=ALL)


def test_only_a_file_of_each_form_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ags1.iceberg.scan.probing import Probe

    lake = Files(tmp_path, SCHEMA)
    for seed in range(6):
        lake.add_columns({name: kinds[seed % 2] for name, kinds in STORED.items()}, random.Random(seed), with_ids=True)
    lake.add([{"c": 1}], 2, equality_ids=[3], schema=SCHEMA.select("c"))
    seen: list[str] = []
    real = Probe.read

    def read(self: Probe, entry: Any, manifest: Any) -> None:
        seen.append(entry.path)
        real(self, entry, manifest)

    monkeypatch.setattr(Probe, "read", read)
    assert plan_conversion(lake.load(), key_id="lake").problems == []
    assert len(seen) == 3


def test_nobody_is_kept_from_decrypting_what_is_not_read(tmp_path: Path) -> None:
    lake = Files(tmp_path, SCHEMA)
    lake.add_columns({"c": pa.int64()}, random.Random(1), with_ids=True)
    table = lake.load()
    encrypt_table(table, key_id="lake", steps=ALL)
    newest = Path(opened(tmp_path).metadata_location)
    newest.write_text(
        newest.read_text().replace('"c","required":false,"type":"long"', '"c","required":false,"type":"date"')
    )
    with pytest.raises(FormatError, match="column 'c' is int64 in the file and date in the table"):
        opened(tmp_path).scan().to_arrow()
    report = decrypt_table(opened(tmp_path))
    assert report.files == 1
    assert "column 'c' is int64" in "".join(report.notes)
