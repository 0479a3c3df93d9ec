"""Manifests and manifest lists: read to the last field, and written in format version 3.

    Obj 01 | header: schema, partition-spec, content, ... | marker (16) | blocks of entries

    manifest list     manifest_file    path, length, spec, counts, sequence numbers, key_metadata, first_row_id
    manifest          manifest_entry   status, snapshot, sequence numbers, data_file
                      data_file        path, partition, counts, bounds, key_metadata, first_row_id, ...

Values stay as Avro has them: a date is a number, a decimal is bytes. So an entry that is read and written again has the
same bytes, whatever type a partition has. Fields are found by their ids. Source: Iceberg table spec, "Manifests",
"Manifest Lists", "First Row ID Inheritance".
"""

from __future__ import annotations

import copy
import io
import json
from dataclasses import dataclass, field

from ags1.avro import read_header
from ags1.errors import Ags1Error, FormatError
from ags1.iceberg._avro_codecs import container_start
from ags1.iceberg._manifest_avro import readable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

__all__ = [
    "ADDED",
    "DATA",
    "DELETED",
    "DELETES",
    "EQUALITY_DELETES",
    "EXISTING",
    "POSITION_DELETES",
    "Entry",
    "Manifest",
    "read_list",
    "read_manifest",
    "write_list",
    "write_manifest",
]

EXISTING, ADDED, DELETED = 0, 1, 2
"""Status of an entry."""
DATA, DELETES = 0, 1
"""Content of a manifest."""
POSITION_DELETES, EQUALITY_DELETES = 1, 2
"""Content of a delete file; a data file's is DATA."""
VERSION = 3

_STATUS, _SNAPSHOT_ID, _DATA_FILE, _SEQUENCE, _FILE_SEQUENCE = 0, 1, 2, 3, 4
_PARTITION, _EQUALITY_IDS = 102, 135
# Deflate's best is a byte for 1032.
_MOST_RECORDS_PER_BYTE = 1032
_ENTRY_NAMES = {
    _STATUS: "status",
    _SNAPSHOT_ID: "snapshot_id",
    _SEQUENCE: "sequence_number",
    _FILE_SEQUENCE: "file_sequence_number",
    _DATA_FILE: "data_file",
}


@dataclass
class Entry:
    """An entry of a manifest, with what it inherits.

    Attributes
    ----------
    status : int
        EXISTING, ADDED or DELETED.
    snapshot_id : int
        Of the snapshot that added the file, or deleted it.
    sequence_number, file_sequence_number : int or None
        Of its rows, and of the file. None for what the snapshot adds that is being written: it is inherited.
    file : dict
        The fields of ``data_file`` by their names in the specification, without those that are null; the partition is
        a dict of values by field id.
    """

    status: int
    snapshot_id: int
    sequence_number: int | None
    file_sequence_number: int | None
    file: dict[str, Any]

    @property
    def path(self) -> str:
        """Location of the file."""
        path: str = self.file["file_path"]
        return path

    @property
    def is_live(self) -> bool:
        """Whether the snapshot has the file."""
        return self.status != DELETED


@dataclass
class Manifest:
    """A manifest in memory.

    Attributes
    ----------
    content : int
        DATA or DELETES.
    spec_id : int
        Partition spec of all its files.
    header : dict of str to bytes
        ``schema`` and ``partition-spec`` as JSON text.
    partition : dict
        Avro schema of the partition record, as it is declared.
    entries : list of Entry
    packed_fixed : bool
        Whether values of fixed types stand with their lengths, as Iceberg Java writes them.
    """

    content: int
    spec_id: int
    header: dict[str, bytes]
    partition: dict[str, Any]
    entries: list[Entry] = field(default_factory=list)
    packed_fixed: bool = True

    def like(self, entries: list[Entry], content: int | None = None) -> Manifest:
        """Another manifest of the same spec."""
        kind = self.content if content is None else content
        return Manifest(kind, self.spec_id, self.header, self.partition, entries, self.packed_fixed)


def read_list(data: bytes) -> list[dict[str, Any]]:
    """The entries of a manifest list: fields by their names in the specification.

    Parameters
    ----------
    data : bytes
        Plaintext of the file.

    Raises
    ------
    FormatError
        It is damaged, or no manifest list.
    """
    names = {each.field_id: each.name for each in _list_schema().fields}
    found = []
    for record in _raw(data).records(names):
        if "manifest_path" not in record:
            raise FormatError("the file is no manifest list: an entry has no manifest_path")
        # Files of format version 1 have none of these.
        record.setdefault("content", DATA)
        record.setdefault("sequence_number", 0)
        record.setdefault("min_sequence_number", 0)
        found.append(record)
    return found


def read_manifest(data: bytes, listed: Mapping[str, Any]) -> Manifest:
    """A manifest, with the values that its entries inherit.

    Parameters
    ----------
    data : bytes
        Plaintext of the file.
    listed : mapping
        What the manifest list says of it, from :func:`read_list`.

    Raises
    ------
    FormatError
        It is damaged, or no manifest.
    """
    raw = _raw(data)
    made = Manifest(
        listed["content"],
        listed["partition_spec_id"],
        {name: raw.metadata[name] for name in ("schema", "partition-spec") if name in raw.metadata},
        raw.partition,
        packed_fixed=raw.packed_fixed,
    )
    row_id = listed.get("first_row_id")
    for record in raw.records(_ENTRY_NAMES | _file_names()):
        file = record.get("data_file")
        if file is None or "file_path" not in file:
            raise FormatError("the file is no manifest: an entry has no data file")
        file.setdefault("content", DATA)
        file.setdefault("partition", {})
        status = record.get("status", EXISTING)
        inherited = listed["sequence_number"] if status == ADDED else 0
        entry = Entry(
            status,
            record.get("snapshot_id", listed["added_snapshot_id"]),
            record.get("sequence_number", inherited),
            record.get("file_sequence_number", inherited),
            file,
        )
        if listed.get("first_row_id") is None:
            # Java lets nobody state a number below a manifest that has none.
            file.pop("first_row_id", None)
        elif row_id is not None and entry.is_live and file["content"] == DATA and "first_row_id" not in file:
            file["first_row_id"] = row_id
            row_id += file["record_count"]
        made.entries.append(entry)
    return made


def write_manifest(manifest: Manifest) -> bytes:
    """Plaintext of a manifest of format version 3.

    Raises
    ------
    ValueError
        It has no entries.
    """
    if not manifest.entries:
        raise ValueError("a manifest needs at least one entry")
    schema = _entry_schema(manifest.partition)
    header = {
        **manifest.header,
        "partition-spec-id": str(manifest.spec_id).encode(),
        "format-version": str(VERSION).encode(),
        "content": b"deletes" if manifest.content == DELETES else b"data",
    }
    names = {each["field-id"]: each["name"] for each in manifest.partition["fields"]}

    def records() -> Iterator[dict[str, Any]]:
        for entry in manifest.entries:
            partition = {names[number]: value for number, value in entry.file["partition"].items()}
            yield {
                "status": entry.status,
                "snapshot_id": entry.snapshot_id,
                "sequence_number": entry.sequence_number,
                "file_sequence_number": entry.file_sequence_number,
                "data_file": {**entry.file, "partition": partition},
            }

    return _container(schema, header, records(), manifest.packed_fixed)


def write_list(records: list[dict[str, Any]], snapshot: Mapping[str, Any]) -> bytes:
    """Plaintext of a manifest list of format version 3.

    Parameters
    ----------
    records : list of dict
        As :func:`read_list` returns them.
    snapshot : mapping
        The snapshot's JSON: id, parent, sequence number and first row id go into the header.
    """
    parent = snapshot.get("parent-snapshot-id")
    header = {
        "snapshot-id": str(snapshot["snapshot-id"]),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(snapshot["sequence-number"]),
        "first-row-id": str(snapshot["first-row-id"]),
        "format-version": str(VERSION),
    }
    schema = _avro_of(_list_schema(), "manifest_file")
    return _container(schema, {name: text.encode() for name, text in header.items()}, iter(records), False)


# -- Avro ------------------------------------------------------------------------------------------------------------


class _Raw:
    """An Avro container whose values are left as Avro has them."""

    def __init__(self, data: bytes) -> None:
        plain = readable(data)
        header = read_header(io.BytesIO(plain))
        self.metadata = header.metadata
        declared = json.loads(read_header(io.BytesIO(data)).metadata["avro.schema"])
        found = json.loads(header.metadata["avro.schema"])
        self.packed_fixed = _fixed_types(declared) != _fixed_types(found) or not _fixed_types(declared)
        self.partition = _partition_of(declared)
        self._schema = _without_logical_types(found)
        start = {**header.metadata, "avro.schema": json.dumps(self._schema).encode()}
        self._data = container_start(start, header.marker) + plain[header.length :]

    def records(self, names: Mapping[int, str]) -> Iterator[dict[str, Any]]:
        import fastavro

        renames = _renames(self._schema, names)
        try:
            for count, record in enumerate(fastavro.reader(io.BytesIO(self._data))):
                if count > _MOST_RECORDS_PER_BYTE * len(self._data):
                    # Records without content take no bytes, and a few bytes can promise any number of them.
                    raise FormatError("says that it has more records than can be in it")
                assert isinstance(record, dict)
                yield _renamed(record, renames)
        except (Ags1Error, MemoryError):
            raise
        except Exception as error:
            # fastavro raises whatever the wrong bytes lead it to.
            raise FormatError(f"the records cannot be read: {type(error).__name__}: {error}") from None


def _raw(data: bytes) -> _Raw:
    try:
        return _Raw(data)
    except Ags1Error:
        raise
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError) as error:
        raise FormatError(f"the Avro schema of a manifest or manifest list cannot be read: {error!r}") from None


def _container(
    schema: dict[str, Any], header: Mapping[str, bytes], records: Iterator[dict[str, Any]], packed_fixed: bool
) -> bytes:
    """A container of these records; the header has the schema with logical types, the values are as Avro has them."""
    import fastavro

    plain = _without_logical_types(copy.deepcopy(schema))
    if packed_fixed:
        _pack_fixed(_partition_of(plain))
    out = io.BytesIO()
    fastavro.writer(out, plain, records, codec="deflate")
    data = out.getvalue()
    found = read_header(io.BytesIO(data))
    metadata = {**header, "avro.schema": json.dumps(schema).encode(), "avro.codec": found.metadata["avro.codec"]}
    return container_start(metadata, found.marker) + data[found.length :]


def _list_schema() -> Any:
    from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS

    return MANIFEST_LIST_FILE_SCHEMAS[VERSION]


def _file_names() -> dict[int, str]:
    from pyiceberg.manifest import DATA_FILE_TYPE

    return {each.field_id: each.name for each in DATA_FILE_TYPE[VERSION].fields}


def _avro_of(schema: Any, name: str) -> dict[str, Any]:
    from pyiceberg.utils.schema_conversion import AvroSchemaConversion

    made: dict[str, Any] = AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name)  # type: ignore[assignment]
    return made


def _entry_schema(partition: dict[str, Any]) -> dict[str, Any]:
    from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS

    schema = _avro_of(MANIFEST_ENTRY_SCHEMAS[VERSION], "manifest_entry")
    file = _field(schema, _DATA_FILE)["type"]
    _field(file, _PARTITION)["type"] = partition
    # PyIceberg has long, and the specification int; Java reads nothing else.
    _array(_field(file, _EQUALITY_IDS)["type"])["items"] = "int"
    return schema


def _field(record: dict[str, Any], number: int) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in record["fields"] if each.get("field-id") == number)
    return found


def _array(kind: Any) -> dict[str, Any]:
    """The array of a field's type that may be null."""
    found: dict[str, Any] = next(each for each in kind if isinstance(each, dict) and each.get("type") == "array")
    return found


def _record(kind: Any) -> dict[str, Any] | None:
    """The record of a field's type, also of one that may be null."""
    if isinstance(kind, list):
        return next((found for each in kind if (found := _record(each)) is not None), None)
    return kind if isinstance(kind, dict) and kind.get("type") == "record" else None


def _partition_of(schema: dict[str, Any]) -> dict[str, Any]:
    """The partition record of a manifest's schema; an empty one for a manifest list."""
    numbers = {each.get("field-id"): each for each in schema["fields"]}
    file = _record(numbers[_DATA_FILE]["type"]) if _DATA_FILE in numbers else None
    partition = None if file is None else _record(_field(file, _PARTITION)["type"])
    return {"type": "record", "name": "r102", "fields": []} if partition is None else partition


def _fixed_types(schema: dict[str, Any]) -> list[Any]:
    """Fixed types among the partition's fields that stand for themselves, not for decimals."""
    kinds = []
    for each in _partition_of(schema)["fields"]:
        options = each["type"] if isinstance(each["type"], list) else [each["type"]]
        kinds += [kind for kind in options if isinstance(kind, dict) and kind.get("type") == "fixed"]
    return kinds


def _pack_fixed(partition: dict[str, Any]) -> None:
    """Make bytes of the fixed types that Iceberg Java writes with their lengths, in place."""
    for each in partition["fields"]:
        options = each["type"] if isinstance(each["type"], list) else [each["type"]]
        packed = ["bytes" if isinstance(kind, dict) and kind.get("was") == "fixed" else kind for kind in options]
        each["type"] = packed if isinstance(each["type"], list) else packed[0]


def _without_logical_types(schema: Any) -> Any:
    """The schema with values as Avro has them, in place; a plain fixed type is marked."""
    if isinstance(schema, dict):
        if schema.get("type") == "fixed" and "logicalType" not in schema:
            schema["was"] = "fixed"
        schema.pop("logicalType", None)
        for each in schema.values():
            _without_logical_types(each)
    elif isinstance(schema, list):
        for each in schema:
            _without_logical_types(each)
    return schema


_Renames = dict[str, "tuple[str | int, _Renames | None]"]


def _renames(schema: dict[str, Any], names: Mapping[int, str] | None) -> _Renames:
    """What fields are called here, by what they are called in the file; without `names`, by their ids."""
    found: _Renames = {}
    for each in schema["fields"]:
        number = each.get("field-id")
        name = number if names is None else names.get(number)
        if name is None:
            continue
        below = _record(each["type"])
        if number == _PARTITION:
            found[each["name"]] = (name, _renames(below or {"fields": []}, None))
        else:
            found[each["name"]] = (name, None if below is None else _renames(below, names))
    return found


def _renamed(record: dict[str, Any], renames: _Renames) -> dict[Any, Any]:
    """The record without nulls, but for those of a partition, which are values."""
    made: dict[Any, Any] = {}
    for name, (known, below) in renames.items():
        value = record.get(name)
        if value is not None:
            made[known] = value if below is None else _renamed(value, below)
        elif isinstance(known, int):
            made[known] = None
    return made
