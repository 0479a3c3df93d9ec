"""Random plaintext tables as other writers leave them, and the rows that they have.

Data files in partitions of NaN and of both zeros, under two specs; position and equality deletes of any age, under any
spec and partition; bounds of paths that are missing, cut, equal or the wrong way round; `referenced_data_file`;
metrics that contradict themselves; a `min_sequence_number` that is too high. Everything follows from a seed.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from tests.iceberg.delete_lake import DeleteLake

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", DoubleType()))
DELETED = Schema(
    NestedField(2147483546, "file_path", StringType(), required=True),
    NestedField(2147483545, "pos", LongType(), required=True),
)
SPECS = (
    PartitionSpec(spec_id=0),
    PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"), spec_id=1),
)
PARTS = (0.0, -0.0, float("nan"), 1.5, None)
_REFERENCED = {"name": "referenced_data_file", "type": ["null", "string"], "default": None, "field-id": 143}
_LENGTH, _OLDEST = 1, 5


@dataclass
class _Data:
    path: str
    number: int
    place: Any
    ids: list[int | None]
    part: float | None


@dataclass
class _Deletes:
    number: int
    place: Any
    hits: Callable[[_Data, int], bool]


def edit_manifest(
    lake: DeleteLake, change: Callable[[dict[str, Any]], None], schema: Callable[[Any], None] | None = None
) -> None:
    """Change the entry of the newest manifest of a table, and its Avro schema."""
    manifest = lake._manifests[-1]
    path = Path(manifest.manifest_path)
    with path.open("rb") as stream:
        reader = fastavro.reader(stream)
        header: Any = {name: text for name, text in reader.metadata.items() if not name.startswith("avro.")}
        declared: Any = json.loads(reader.metadata["avro.schema"])
        records: list[Any] = list(reader)
    for each in records:
        change(each)
    if schema is not None:
        schema(declared)
    with path.open("wb") as stream:
        fastavro.writer(stream, declared, records, metadata=header)
    manifest._data[_LENGTH] = path.stat().st_size


def file_fields(schema: Any) -> list[Any]:
    """The fields of ``data_file`` in the Avro schema of a manifest."""
    found: list[Any] = next(each["type"]["fields"] for each in schema["fields"] if each["name"] == "data_file")
    return found


def _with_int_ids(schema: Any) -> None:
    """PyIceberg declares long, and Java reads int alone."""
    (ids,) = (each["type"] for each in file_fields(schema) if each["name"] == "equality_ids")
    next(each for each in ids if isinstance(each, dict))["items"] = "int"


class ForeignTable:
    """A table in a directory, for ``load_table(None, directory)``.

    `rows` are those that it has, ids and partition values as bits. With `as_java`, nothing is in it that Iceberg Java
    refuses, or reads otherwise than the specification says: deletes that name a data file of another partition, and
    bounds that are cut and equal.
    """

    def __init__(self, directory: Path, seed: int, *, as_java: bool = False) -> None:
        self._chance = chance = random.Random(seed)
        self._as_java = as_java
        self.directory = directory
        directory.mkdir()
        self._lake = DeleteLake(directory, SCHEMA, specs=SPECS)
        self._data: list[_Data] = []
        self._deletes: list[_Deletes] = []
        for _ in range(chance.randint(2, 4)):
            self._add_data()
        for _ in range(chance.randint(0, 4)):
            chance.choice((self._add_positions, self._add_positions, self._add_keys))()
        chance.shuffle(self._lake._manifests)
        self._lake.open()
        (directory / "metadata").mkdir()
        fields = json.loads((directory / "00001.metadata.json").read_text())
        # Spark's register_table asks for them.
        fields["snapshots"][0]["summary"] |= {"total-records": "0", "total-data-files": "0"}
        (directory / "metadata" / "v1.metadata.json").write_text(json.dumps(fields))
        self.rows = sorted(
            row_of(each, data.part)
            for data in self._data
            for place, each in enumerate(data.ids)
            if not any(deletes.hits(data, place) for deletes in self._deletes)
        )

    def _spec(self) -> tuple[int, float | None, tuple[Any, ...], Any]:
        spec_id, part = self._chance.randrange(2), self._chance.choice(PARTS)
        return spec_id, part, (part,) if spec_id else (), (spec_id, bits(part) if spec_id else None)

    def _added(self, rows: list[dict[str, Any]], number: int, **options: Any) -> str:
        path = self._lake.add(rows, number, **options)
        if self._chance.random() < 0.3:
            self._lake._manifests[-1]._data[_OLDEST] = 9
        return path

    def _add_data(self) -> None:
        chance = self._chance
        spec_id, part, partition, place = self._spec()
        ids = [chance.choice((None, *range(8))) for _ in range(chance.randint(1, 6))]
        number = chance.randint(1, 4)
        rows = [{"id": each, "part": part} for each in ids]
        path = self._added(rows, number, spec_id=spec_id, partition=partition)
        self._data.append(_Data(path, number, place, ids, part))
        if chance.random() < 0.5:
            nulls = ids.count(None)
            # Nulls do not count as values.
            counts = [{"key": 1, "value": len(ids) - nulls}], [{"key": 1, "value": nulls}]
            edit_manifest(
                self._lake,
                lambda entry: entry["data_file"].update(value_counts=counts[0], null_value_counts=counts[1]),
            )

    def _add_positions(self) -> None:
        chance = self._chance
        files = chance.sample(self._data, chance.randint(1, 2))
        gone = {(each.path, place) for each in files for place in range(len(each.ids)) if chance.random() < 0.5}
        gone = gone or {(files[0].path, 0)}
        paths = sorted({path for path, _ in gone})
        form = chance.choice(("none", "right", "cut", "inverted", "first", "referenced"))
        is_one = form in ("first", "referenced") or (form == "right" and len(paths) == 1)
        spec_id, _, partition, place = self._spec()
        if chance.random() < 0.5 or (is_one and self._as_java):
            # As it should be.
            (named,) = (each for each in self._data if each.path == paths[0])
            spec_id, place = named.place[0], named.place
            partition = (named.part,) if spec_id else ()
        bounds = {
            "right": (paths[0], paths[-1]),
            "cut": (paths[0][:-12], paths[-1][:-9] if self._as_java else paths[0][:-12]),
            "inverted": (f"{paths[-1]}~", paths[0]),
            "first": (paths[0], paths[0]),
        }.get(form)
        number = chance.randint(1, 5)
        self._added(
            [{"file_path": path, "pos": each} for path, each in sorted(gone)],
            number,
            schema=DELETED,
            content=DataFileContent.POSITION_DELETES,
            spec_id=spec_id,
            partition=partition,
            bounds=None if bounds is None else {2147483546: bounds},
        )
        if form == "referenced":
            edit_manifest(
                self._lake,
                lambda entry: entry["data_file"].update(referenced_data_file=paths[0]),
                lambda schema: file_fields(schema).append(_REFERENCED),
            )

        def hits(data: _Data, position: int) -> bool:
            near = data.path == paths[0] if is_one else data.place == place
            return near and number >= data.number and (data.path, position) in gone

        self._deletes.append(_Deletes(number, place, hits))

    def _add_keys(self) -> None:
        chance = self._chance
        spec_id, _, partition, place = self._spec()
        keys, number = chance.sample((None, *range(8)), 3), chance.randint(2, 5)
        schema = SCHEMA.select("id")
        self._added(
            [{"id": each} for each in keys],
            number,
            schema=schema,
            equality_ids=[1],
            spec_id=spec_id,
            partition=partition,
        )

        edit_manifest(self._lake, lambda entry: None, _with_int_ids)

        def hits(data: _Data, position: int) -> bool:
            near = spec_id == 0 or data.place == place
            return near and number > data.number and data.ids[position] in keys

        self._deletes.append(_Deletes(number, place, hits))


def bits(value: float | None) -> str:
    """A number so that only the same one is equal."""
    return "null" if value is None else "nan" if value != value else struct.pack(">d", value).hex()


def row_of(number: int | None, part: float | None) -> tuple[str, str]:
    """A row that can be sorted and compared."""
    return str(number), bits(part)


def rows_of(table: Any) -> list[tuple[str, str]]:
    """The rows of an Arrow table."""
    return sorted(row_of(each["id"], each["part"]) for each in table.to_pylist())
