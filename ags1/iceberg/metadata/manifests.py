"""Manifests and manifest lists, read to the last field: the one reader for scans, walks, changes and conversions.

    Obj 01 | header: schema, partition-spec, content, ... | marker (16) | blocks of entries

    manifest list     manifest_file    path, length, spec, counts, sequence numbers, key_metadata, first_row_id
    manifest          manifest_entry   status, snapshot, sequence numbers, data_file
                      data_file        path, partition, counts, bounds, key_metadata, first_row_id, ...

Values keep their Avro types: a date is a number, a decimal is bytes. So an entry that is read and written again has the
same bytes, whatever the type of its partition. Fields are found by their ids, which files that lack them get by the
names in the specification, as in Iceberg Java, and must have Iceberg's types. Source: Iceberg table spec,
"Manifests", "Manifest Lists", "First Row ID Inheritance".
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS_STRUCT, MANIFEST_LIST_FILE_STRUCTS
from pyiceberg.schema import make_compatible_name
from pyiceberg.types import ListType, MapType, StructType

from ags1.avro import AvroBlock, AvroHeader, PlainContainer, check_schema, plain_blocks, read_header
from ags1.avro.codecs import largest_plain
from ags1.errors import AuthenticationError, FormatError, UnsupportedError
from ags1.support.avro_encoding import container_start, encoded_block

EXISTING, ADDED, DELETED = 0, 1, 2
"""Status of an entry."""
DATA, DELETES = 0, 1
"""Content of a manifest."""
POSITION_DELETES, EQUALITY_DELETES = 1, 2
"""Content of a delete file; a data file's is DATA."""

_VERSION = 3
_KINDS = ("data", "position deletes", "equality deletes")
_DATA_FILE, _PARTITION = 2, 102
_MICROSECONDS = 1000
# Sizes, counts and bounds of columns, most of the bytes of a manifest.
METRICS = {
    "column_sizes": 108, "value_counts": 109, "null_value_counts": 110, "nan_value_counts": 137, "lower_bounds": 125,
    "upper_bounds": 128,
}  # fmt: skip
# What each of Iceberg's types in a manifest may be in Avro.
_AVRO_KINDS = {
    "boolean": ("boolean",),
    "int": ("int", "long"),
    "long": ("int", "long"),
    "string": ("string",),
    "binary": ("bytes", "fixed"),
    "list": ("array",),
    "map": ("array",),
    "struct": ("record",),
}
# Each entry has a unique path, which no codec stores in fewer bytes than this.
_FREE_ENTRIES, _BYTES_PER_ENTRY = 1 << 16, 2
_KEPT_SCHEMA = 256 << 10


@dataclass(slots=True)
class ManifestEntry:
    """An entry of a manifest, with its inherited values.

    Attributes
    ----------
    status : int
        EXISTING, ADDED or DELETED.
    snapshot_id : int
        Id of the snapshot that added or deleted the file.
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
    packed_fixed : bool
        Whether values of fixed types stand with their lengths, as Iceberg Java writes them.
    """

    content: int
    spec_id: int
    header: dict[str, bytes]
    partition: dict[str, Any]
    entries: list[ManifestEntry] = field(default_factory=list)
    packed_fixed: bool = True

    def like(self, entries: list[ManifestEntry], content: int | None = None) -> Manifest:
        """Another manifest of the same spec."""
        kind = self.content if content is None else content
        return Manifest(kind, self.spec_id, self.header, self.partition, entries, self.packed_fixed)


def kind_of(file: Mapping[str, Any]) -> str:
    """What a file is: "data", "position deletes", "equality deletes" or "deletion vectors"."""
    kind = _KINDS[file["content"]]
    return "deletion vectors" if kind == _KINDS[1] and file["file_format"].lower() == "puffin" else kind


def read_list(data: bytes) -> list[dict[str, Any]]:
    """The entries of a plaintext manifest list: fields by the names in the specification, without those that are null.

    Any exception means that the file is damaged, or not a manifest list: fastavro has no single error type.
    """
    found, paths = [], set()
    for record in _Container(data).records(is_list=True):
        if "manifest_path" not in record:
            raise FormatError("the file is no manifest list: an entry has no manifest_path")
        if record["manifest_path"] in paths:
            # Its rows would count twice, and a short list could name a long manifest very often.
            raise FormatError(f"has the manifest {record['manifest_path']} twice")
        paths.add(record["manifest_path"])
        # Files of format version 1 have none of these.
        record.setdefault("content", DATA)
        record.setdefault("sequence_number", 0)
        record.setdefault("min_sequence_number", 0)
        if record["content"] not in (DATA, DELETES):
            raise FormatError(f"has a manifest with content {record['content']}, which this version does not know")
        found.append(record)
    return found


def list_header(data: bytes) -> tuple[int | None, int | None]:
    """Return the snapshot id and sequence number in a manifest list's header; None for a missing one."""
    metadata = read_header(io.BytesIO(data)).metadata
    return _number(metadata, "snapshot-id"), _number(metadata, "sequence-number")


def check_list(header: tuple[int | None, int | None], snapshots: Iterable[tuple[int, int | None]]) -> None:
    """Refuse a manifest list whose header names a snapshot other than those that the metadata uses it for.

    Raises
    ------
    AuthenticationError
        It is of another snapshot, or its sequence number is another than the metadata's.
    """
    own, own_number = header
    for snapshot_id, number in snapshots:
        if own is not None and own != snapshot_id:
            raise AuthenticationError(
                f"is the manifest list of snapshot {own}, and the metadata has it for snapshot {snapshot_id}: "
                "somebody exchanged them"
            )
        if own_number is not None and number is not None and own_number != number:
            raise AuthenticationError(
                f"is a manifest list with the sequence number {own_number}, and the metadata has {number} for "
                f"snapshot {snapshot_id}: somebody changed it"
            )


def _number(metadata: Mapping[str, bytes], name: str) -> int | None:
    value = metadata.get(name)
    if value is None:
        return None
    try:
        return int(value.decode("ascii"))
    except ValueError:
        raise FormatError(f"the manifest list's header has a {name} that is no number") from None


def read_manifest(data: bytes, listed: Mapping[str, Any], *, metrics: bool = True) -> Manifest:
    """A manifest in memory, as :func:`read_entries` has its entries; each live one must have a sequence number."""
    container = _Container(data)
    made = Manifest(
        listed["content"],
        listed["partition_spec_id"],
        {name: container.metadata[name] for name in ("schema", "partition-spec") if name in container.metadata},
        container.partition,
        list(_entries(container, listed, metrics)),
        container.packed_fixed,
    )
    for each in made.entries:
        if each.is_live and each.sequence_number is None:
            raise FormatError(f"{each.path}: its manifest has no sequence number for it")
    return made


def read_entries(data: bytes, listed: Mapping[str, Any], *, metrics: bool = True) -> Iterator[ManifestEntry]:
    """The entries of a plaintext manifest one by one, with the values that they inherit.

    `listed` is what :func:`read_list` says of it, empty if that is not known. Without `metrics`, the sizes, counts and
    bounds of columns are left out, which are most of it. Any exception means that it is damaged, or no manifest.
    """
    return _entries(_Container(data), listed, metrics)


def _entries(container: _Container, listed: Mapping[str, Any], metrics: bool) -> Iterator[ManifestEntry]:
    row_id, number = listed.get("first_row_id"), listed.get("sequence_number", 0)
    snapshot_id: Any = listed.get("added_snapshot_id")
    for record in container.records(is_list=False, without=frozenset(() if metrics else METRICS.values())):
        file = record.get("data_file")
        if file is None or not {"file_path", "file_format", "record_count"} <= file.keys():
            raise FormatError("the file is no manifest: an entry has no data file with path, format and rows")
        file.setdefault("partition", {})
        if file.setdefault("content", DATA) not in range(len(_KINDS)):
            raise FormatError(f"has a file with content {file['content']}, which this version does not know")
        status = record.get("status", EXISTING)
        inherited = number if status == ADDED or number == 0 else None
        entry = ManifestEntry(
            status,
            record.get("snapshot_id", snapshot_id),
            record.get("sequence_number", inherited),
            record.get("file_sequence_number", inherited),
            file,
        )
        if row_id is None:
            # Java lets nobody state a number below a manifest that has none.
            file.pop("first_row_id", None)
        elif entry.is_live and file["content"] == DATA and "first_row_id" not in file:
            file["first_row_id"] = row_id
            row_id += file["record_count"]
        yield entry


# -- Avro ------------------------------------------------------------------------------------------------------------


_Names = dict[str, "tuple[str | int, _Names | None]"]


def readable(data: bytes) -> bytes:
    """A manifest or manifest list as any reader of Avro can read it: the same rows in a container without a codec.

    codec                              -->  none: decompressed with a bound, by what is there for every codec
    partition values of a fixed type   -->  bytes, where they are written so
    partition values of nanoseconds    -->  longs: PyIceberg writes the logical type, and does not read it
    """
    header = read_header(io.BytesIO(data))
    schema = _readable_schema(data, header)
    metadata = {**header.metadata, "avro.schema": schema.encode(), "avro.codec": b"null"}
    blocks = (encoded_block(each.count, each.data, header.marker) for each in _blocks(data))
    return b"".join((container_start(metadata, header.marker), *blocks))


class _Declared(NamedTuple):
    """What a header declares. Manifests of the same header share it, so it is not changed.

    Attributes
    ----------
    partition : dict
        The partition record, with the types of Iceberg.
    in_milliseconds : list of int
        Its fields whose values are milliseconds.
    readable, packed : str, str or None
        The schema by which any reader of Avro can read the rows; and the one for values of fixed types that stand with
        their lengths, None if there are no such types.
    """

    partition: dict[str, Any]
    in_milliseconds: list[int]
    readable: str
    packed: str | None


def _declared(header: AvroHeader) -> _Declared:
    texts = header.metadata.get("avro.schema", b""), header.metadata.get("partition-spec", b"[]")
    if not texts[0]:
        raise FormatError("the Avro header has no schema")
    # A table has few schemas, and many manifests.
    return (_parsed if sum(map(len, texts)) <= _KEPT_SCHEMA else _parsed.__wrapped__)(*texts)


@lru_cache(32)
def _parsed(text: bytes, spec: bytes) -> _Declared:
    schema: dict[str, Any] = json.loads(text)
    check_schema(schema)
    add_field_ids(schema, {"partition-spec": spec})
    partition = partition_of(schema)
    declared = copy.deepcopy(partition)
    scaled = _in_microseconds(declared)
    for each in partition["fields"]:
        for kind in each["type"] if isinstance(each["type"], list) else [each["type"]]:
            if isinstance(kind, dict) and kind.get("logicalType") == "timestamp-nanos":
                del kind["logicalType"]
    found = json.dumps(schema)
    return _Declared(declared, scaled, found, json.dumps(schema) if pack_fixed(partition) else None)


@lru_cache(32)
def _plain(text: str, is_list: bool, without: frozenset[int]) -> tuple[str, Any, _Names]:
    """A schema without logical types, the same without some fields, and what Iceberg calls those fields."""
    schema = without_logical_types(json.loads(text))
    wanted = _without(schema, without)
    structs = MANIFEST_LIST_FILE_STRUCTS if is_list else MANIFEST_ENTRY_SCHEMAS_STRUCT
    return json.dumps(schema), wanted if without else None, _names(wanted, structs[_VERSION])


def _readable_schema(data: bytes, header: AvroHeader) -> str:
    declared = _declared(header)
    if declared.packed is None or _is_as_declared(data, header):
        return declared.readable
    return declared.packed


def _blocks(data: bytes) -> Iterator[AvroBlock]:
    """The blocks, decompressed one at a time; all of them with a bound."""
    left = largest_plain(len(data))
    for block in plain_blocks(io.BytesIO(data)):
        left -= len(block.data)
        if left < 0:
            raise UnsupportedError(
                f"{len(data):,} bytes become more than {largest_plain(len(data)):,} when they are decompressed, which "
                "no manifest does: if it is meant to be, write it again, as several"
            )
        yield block


def _rows(data: bytes, header: AvroHeader, schema: str, wanted: Any = None) -> Iterator[dict[str, Any]]:
    """The rows by a schema that replaces the declared one; without the fields that `wanted` lacks."""
    metadata = {**header.metadata, "avro.schema": schema.encode()}
    return PlainContainer(metadata, header.marker, _blocks(data)).rows(wanted)


def _is_as_declared(data: bytes, header: AvroHeader) -> bool:
    try:
        for _ in _rows(data, header, _declared(header).readable):
            pass
    except Exception:
        # fastavro has no single error type for wrong bytes.
        return False
    return True


class _Container:
    """An Avro container whose values are left as Avro has them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._header = read_header(io.BytesIO(data))
        self.metadata = self._header.metadata
        self._declared = _declared(self._header)
        self.partition = self._declared.partition
        self._schema = _readable_schema(data, self._header)
        self.packed_fixed = self._schema != self._declared.readable or self._declared.packed is None

    def records(self, *, is_list: bool, without: frozenset[int] = frozenset()) -> Iterator[dict[Any, Any]]:
        """The fields that Iceberg has, but for those with some ids, by Iceberg's names."""
        schema, wanted, names = _plain(self._schema, is_list, without)
        most = _FREE_ENTRIES + len(self._data) // _BYTES_PER_ENTRY
        for count, record in enumerate(_rows(self._data, self._header, schema, wanted)):
            if count >= most:
                raise FormatError(f"has more than {most:,} entries, which its bytes cannot have the names for")
            made = _renamed(record, names)
            scaled = self._declared.in_milliseconds
            partition = made["data_file"].get("partition", {}) if scaled else {}
            for field_id in scaled:
                if partition.get(field_id) is not None:
                    partition[field_id] *= _MICROSECONDS
            yield made


def _names(record: Any, struct: Any) -> _Names:
    """What fields are called here, by what they are called in the file."""
    known = {each.field_id: each for each in struct.fields}
    found: _Names = {}
    for each in record["fields"]:
        wanted = known.get(each.get("field-id"))
        if wanted is not None:
            found[each["name"]] = (wanted.name, _below(each["type"], wanted.field_type, wanted.name))
    return found


def _below(kind: Any, wanted: Any, name: str) -> _Names | None:
    """What is in the values of a field. Its type must be Iceberg's, so that nobody has to look at each value again."""
    if isinstance(kind, list):
        (kind,) = (each for each in kind if each != "null")
    avro, iceberg = kind["type"] if isinstance(kind, dict) else kind, str(wanted).partition("<")[0]
    if avro not in _AVRO_KINDS[iceberg]:
        raise FormatError(f"its field {name} is {avro} instead of {iceberg}")
    if iceberg == "struct" and not wanted.fields:
        # The partition, of which each spec has its own.
        return {each["name"]: (each["field-id"], None) for each in kind["fields"]}
    if iceberg == "struct":
        return _names(kind, wanted)
    if iceberg == "list":
        return _below(kind["items"], wanted.element_type, name)
    if iceberg == "map":
        pair = {each["name"]: each["type"] for each in kind["items"]["fields"]}
        _below(pair["key"], wanted.key_type, name)
        _below(pair["value"], wanted.value_type, name)
    return None


def _renamed(record: dict[str, Any], names: _Names) -> dict[Any, Any]:
    """The record without nulls, but for those of a partition, which are values."""
    made: dict[Any, Any] = {}
    for name, (known, below) in names.items():
        value = record.get(name)
        if value is None:
            if isinstance(known, int):
                made[known] = None
        elif below is None:
            made[known] = value
        else:
            made[known] = (
                [_renamed(each, below) for each in value] if isinstance(value, list) else _renamed(value, below)
            )
    return made


def _without(schema: Any, field_ids: frozenset[int]) -> Any:
    if isinstance(schema, list):
        kept = [each for each in schema if not (isinstance(each, dict) and each.get("field-id") in field_ids)]
        return [_without(each, field_ids) for each in kept]
    if isinstance(schema, dict):
        return {name: _without(each, field_ids) for name, each in schema.items()}
    return schema


def partition_of(schema: dict[str, Any]) -> dict[str, Any]:
    """The partition record of a manifest's schema; an empty one for a manifest list."""
    file = _record(schema, _DATA_FILE)
    partition = None if file is None else _record(file, _PARTITION)
    return {"type": "record", "name": "r102", "fields": []} if partition is None else partition


def _record(schema: dict[str, Any], field_id: int) -> dict[str, Any] | None:
    """The record that a field of a record is of, also one that may be null."""
    kind = next((each["type"] for each in schema["fields"] if each.get("field-id") == field_id), None)
    for each in kind if isinstance(kind, list) else [kind]:
        if isinstance(each, dict) and each.get("type") == "record":
            return each
    return None


def _in_microseconds(partition: dict[str, Any]) -> list[int]:
    """Declare milliseconds of a partition record as the microseconds of Iceberg's types, in place; return their fields.

    Source: Iceberg Java's InternalReader.
    """
    found = []
    for each in partition["fields"]:
        for kind in each["type"] if isinstance(each["type"], list) else [each["type"]]:
            name = kind.get("logicalType", "") if isinstance(kind, dict) else ""
            if name.endswith("-millis"):
                kind |= {"type": "long", "logicalType": name.removeprefix("local-").replace("-millis", "-micros")}
                if name.startswith("local-"):
                    kind["adjust-to-utc"] = False
                found.append(each["field-id"])
    return found


def pack_fixed(partition: dict[str, Any]) -> bool:
    """Make bytes of the plain fixed types of a partition record, in place; return whether there are some.

    Iceberg Java declares Avro's fixed, and writes the length in front of each value, as Avro does for bytes.
    """
    names, found = set(), False
    for each in partition["fields"]:
        kinds = each["type"] if isinstance(each["type"], list) else [each["type"]]
        for index, kind in enumerate(kinds):
            if isinstance(kind, dict) and kind.get("type") == "fixed" and "logicalType" not in kind:
                names.add(kind["name"])
            elif not (isinstance(kind, str) and kind in names):
                continue
            kinds[index], found = "bytes", True
        each["type"] = kinds if isinstance(each["type"], list) else kinds[0]
    return found


def without_logical_types(schema: Any) -> Any:
    """The schema with values as Avro has them, in place."""
    if isinstance(schema, dict):
        schema.pop("logicalType", None)
        for each in schema.values():
            without_logical_types(each)
    elif isinstance(schema, list):
        for each in schema:
            without_logical_types(each)
    return schema


# The names of format version 1.
_OLD_NAMES = {f"{kind}_data_files_count": f"{kind}_files_count" for kind in ("added", "existing", "deleted")}
_FIRST_PARTITION_FIELD = 1000


def add_field_ids(schema: dict[str, Any], header: Mapping[str, bytes]) -> None:
    """Add the missing ids to the Avro schema of a manifest or manifest list, in place; `header` is the container's.

    FormatError: a partition field has no id, and the partition spec in the header does not have its name.
    """
    is_list = any(each.get("name") == "manifest_path" for each in schema["fields"])
    _add_to_record(schema, (MANIFEST_LIST_FILE_STRUCTS if is_list else MANIFEST_ENTRY_SCHEMAS_STRUCT)[3], header)


def _add_to_record(record: dict[str, Any], struct: Any, header: Mapping[str, bytes]) -> None:
    if not struct.fields:
        _add_to_partition(record, header)
        return
    taken = {each.get("field-id") for each in record["fields"]}
    ids = {each.field_id: each for each in struct.fields}
    names = {each.name: each for each in struct.fields if each.field_id not in taken}
    for each in record["fields"]:
        wanted = ids.get(each.get("field-id"))
        if "field-id" not in each:
            name = each.get("name")
            wanted = names.get(_OLD_NAMES.get(name, name))
        if wanted is not None:
            each["field-id"] = wanted.field_id
            for kind in each["type"] if isinstance(each["type"], list) else [each["type"]]:
                if isinstance(kind, dict):
                    _add_below(kind, wanted.field_type, header)


def _add_below(kind: dict[str, Any], wanted: Any, header: Mapping[str, bytes]) -> None:
    if kind.get("type") == "record" and wanted.is_struct:
        _add_to_record(kind, wanted, header)
    elif kind.get("type") == "array" and isinstance(wanted, ListType):
        kind.setdefault("element-id", wanted.element_id)
        if isinstance(kind["items"], dict):
            _add_below(kind["items"], wanted.element_type, header)
    elif kind.get("type") == "array" and isinstance(wanted, MapType) and isinstance(kind["items"], dict):
        kind.setdefault("logicalType", "map")
        _add_below(kind["items"], StructType(wanted.key_field, wanted.value_field), header)


def _add_to_partition(record: dict[str, Any], header: Mapping[str, bytes]) -> None:
    unknown = [each for each in record["fields"] if "field-id" not in each]
    if not unknown:
        return
    spec = json.loads(header.get("partition-spec", b"[]"))
    fields = spec.get("fields", []) if isinstance(spec, dict) else spec
    # Format version 1 counts the fields.
    ids = {each["name"]: each.get("field-id", _FIRST_PARTITION_FIELD + place) for place, each in enumerate(fields)}
    ids |= {make_compatible_name(name): number for name, number in ids.items()}
    for each in unknown:
        if each.get("name") not in ids:
            raise FormatError(
                f"its partition field {each.get('name')!r} has no field id, and the partition spec in the header has "
                "no field of this name: have the table's engine rewrite its manifests"
            )
        each["field-id"] = ids[each["name"]]
