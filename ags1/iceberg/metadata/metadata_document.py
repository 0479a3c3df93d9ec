"""A table's metadata file: its checks, so that all readers here see the same snapshots, its fields, and its name.

Nothing in the file protects it. Its catalog may keep its hash, and what a manifest list says of its own
snapshot is authenticated with the list. PyIceberg takes a field under its Python name too, ``manifest_list`` for
``manifest-list``, which no other reader sees: such a file is refused. Sources: Iceberg table spec, "Table Metadata
Fields"; Iceberg Java's HiveTableOperations, for the parameter ``metadata_hash``.

    00007-UUID.metadata.json       of a catalog; Hadoop catalogs have v7.metadata.json
    00007-UUID.gz.metadata.json    compressed; others write .gzip.metadata.json
    00007-UUID.metadata.json.gz    compressed, before Iceberg 0.8
    UUID.metadata.json             of a Hadoop catalog, before its commit renames the file
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import unquote_plus

from ags1.errors import AuthenticationError, FormatError, UnsupportedError
from ags1.expected import Expected
from ags1.iceberg.keys.document import Document
from ags1.iceberg.keys.entries import shown

# The names of PyIceberg's attributes for fields that have another name in the file.
PYTHON_NAMES = frozenset(
    (
        "added_rows", "blob_metadata", "current_schema_id", "current_snapshot_id", "default_sort_order_id",
        "default_spec_id", "element_id", "element_required", "element_type", "field_id", "field_type",
        "file_footer_size_in_bytes", "file_size_in_bytes", "first_row_id", "format_version", "identifier_field_ids",
        "initial_default", "key_id", "key_metadata", "key_type", "last_column_id", "last_partition_id",
        "last_sequence_number", "last_updated_ms", "manifest_list", "max_ref_age_ms", "max_snapshot_age_ms",
        "metadata_file", "metadata_log", "min_snapshots_to_keep", "next_row_id", "null_order", "order_id",
        "parent_snapshot_id", "partition_spec", "partition_specs", "partition_statistics", "schema_", "schema_id",
        "sequence_number", "snapshot_id", "snapshot_log", "snapshot_ref_type", "sort_orders", "source_id", "spec_id",
        "statistics_path", "table_uuid", "timestamp_ms", "value_id", "value_required", "value_type", "write_default",
    )
)  # fmt: skip
KEY_ID, DATA_KEY_LENGTH = "encryption.key-id", "encryption.data-key-length"
METADATA_PATH, DATA_PATH = "write.metadata.path", "write.data.path"
"""Properties of a table: its master key, bytes of its data keys, and where its files go."""

RESERVED_NAMES = frozenset(
    ("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number")
)
"""What every engine calls its columns of metadata."""

# Objects whose names are the users'.
_FREE = frozenset(("properties", "summary", "initial-default", "write-default", "encryption-keys"))
_DIGITS = 18


def metadata_document(location: str, data: bytes) -> Document:
    """Parse a metadata file, as it is stored; `location` is for messages.

    Raises
    ------
    FormatError
        Not the metadata of a table, or with fields that two readers would take for different things.
    """
    try:
        document = Document(data)
        _refuse_python_names(document.fields)
    except FormatError as error:
        raise type(error)(f"{location}: {error}") from None
    return document


def check_expected(expected: Expected, location: str, document: Document) -> None:
    """Refuse a metadata file that is not as its reader expects it.

    Raises
    ------
    AuthenticationError
        It has another hash.
    KeyAccessError
        The table, or the key of its current snapshot, is under another master key.
    """
    expected.check_hash(location, text_hash(document.text))
    if expected.table_key_id is None:
        return
    expected.check_key(location, properties_of(document.fields).get(KEY_ID) or None)
    snapshots = document.snapshots()
    entries = {each.key_id: each for each in document.entries()}
    entry = entries.get(snapshots.key_ids.get(snapshots.current) or "")
    kek = None if entry is None else entries.get(entry.encrypted_by_id or "")
    if kek is not None:
        expected.check_key(f"{location}: key encryption key {shown(kek.key_id)}", kek.encrypted_by_id)


def text_hash(text: str) -> str:
    """Return the hash of a metadata file's text, in the form of the Hive parameter metadata_hash."""
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


CHOSEN = {
    "schemas": ("schema-id", "current-schema-id"),
    "partition-specs": ("spec-id", "default-spec-id"),
    "sort-orders": ("order-id", "default-sort-order-id"),
}
"""Lists of which one entry is the current: the field of an entry with its id, and that with the id of the current."""


def current_of(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The current one of a table's schemas, partition specs or sort orders; an empty one if there is none."""
    key, chosen = CHOSEN[name]
    found = (each for each in fields.get(name) or () if isinstance(each, dict) and each.get(key) == fields.get(chosen))
    return next(found, {})


def properties_of(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The table's properties in its metadata."""
    found = fields.get("properties")
    return found if isinstance(found, dict) else {}


def locations_of(location: object, properties: Mapping[str, Any]) -> tuple[str, ...]:
    """The directories for a table's files that its catalog names: its location, and those of its properties."""
    named = (location, properties.get(DATA_PATH), properties.get(METADATA_PATH))
    return tuple(each for each in named if isinstance(each, str) and each)


def refuse_reserved(names: Iterable[str], remedy: str) -> None:
    """Raise an UnsupportedError if a column of a table has a reserved name, in any case: Spark ignores the case."""
    for name in names:
        if name.lower() in RESERVED_NAMES:
            raise UnsupportedError(
                f"column {name}: Iceberg reserves this name for a column of its own, and engines would return other "
                f"values for it: {remedy}"
            )


def number_property(properties: Mapping[str, str], name: str, usual: int, *, least: int = 1) -> int:
    """Return a number among a table's properties; a ValueError names one that is not `least` or more."""
    text = str(properties.get(name, usual))
    # No number that is meant has as many digits.
    if not text.isascii() or not text.isdecimal() or len(text) > _DIGITS or int(text) < least:
        raise ValueError(f"the table's property {name} is {text!r}; it must be a number of {least} or more")
    return int(text)


def partition_names(fields: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the fields of all partition specs."""
    specs = fields.get("partition-specs")
    found = [each.get("fields") for each in specs if isinstance(each, dict)] if isinstance(specs, list) else []
    return frozenset(
        str(each.get("name"))
        for listed in found
        if isinstance(listed, list)
        for each in listed
        if isinstance(each, dict)
    )


def partition_in(path: str, names: Collection[str]) -> bool:
    """Return whether a file's path has a directory that shows a partition value, such as ``country=CH``."""
    for directory in path.split("/")[:-1] if names else ():
        name, equals, _ = directory.partition("=")
        if equals and unquote_plus(name) in names:
            return True
    return False


def metadata_directory(fields: Mapping[str, Any]) -> str:
    """The directory that a table's new metadata files belong in; a FormatError for a table without a location."""
    path = properties_of(fields).get(METADATA_PATH)
    if isinstance(path, str) and path:
        return path.rstrip("/")
    location = fields.get("location")
    if not isinstance(location, str) or not location:
        raise FormatError("the table's metadata has no location")
    return f"{location.rstrip('/')}/metadata"


def data_directory(fields: Mapping[str, Any]) -> str:
    """The directory that a table's new data files belong in."""
    path = properties_of(fields).get(DATA_PATH)
    return path.rstrip("/") if isinstance(path, str) and path else f"{str(fields.get('location')).rstrip('/')}/data"


def directories_of(fields: Mapping[str, Any]) -> tuple[str, str, str]:
    """The directories of a table: its own, and where its data and its metadata are written."""
    return str(fields.get("location")), data_directory(fields), metadata_directory(fields)


def claims_encryption(fields: Mapping[str, Any]) -> bool:
    """Return whether the table is declared as encrypted: by its property, its keys, or any of its snapshots."""
    if properties_of(fields).get(KEY_ID):
        return True
    snapshots = fields.get("snapshots")
    listed = snapshots if isinstance(snapshots, list) else []
    return bool(fields.get("encryption-keys")) or any(isinstance(each, dict) and each.get("key-id") for each in listed)


def seems_decrypted(fields: Mapping[str, Any]) -> bool:
    """Return whether only older snapshots and their keys declare the table as encrypted, as after a decryption."""
    return not properties_of(fields).get(KEY_ID) and claims_encryption(fields)


def list_header(data: bytes) -> tuple[int | None, int | None]:
    """Return the snapshot id and sequence number in a manifest list's header; None for a missing one."""
    from ags1.avro import read_header

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


def _refuse_python_names(fields: Mapping[str, Any]) -> None:
    waiting: list[Any] = [fields]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (list, tuple)):
            waiting += value
        elif isinstance(value, dict):
            for name, each in value.items():
                if name in PYTHON_NAMES:
                    raise FormatError(
                        f"the table metadata has a field {shown(name)}, which is none of Iceberg's and which PyIceberg "
                        "would take for one: no writer makes it so"
                    )
                if name not in _FREE:
                    waiting.append(each)


METADATA_SUFFIX, VERSION_HINT = ".metadata.json", "version-hint.text"
"""What names of metadata files end with; the file that says which is the newest, where there is no catalog."""

_KIND = re.compile(r"[^./][^/]*\.metadata\.json(?:\.[^/]*)?")
_NUMBER = re.compile(r"v?(\d{1,18})[-.]", re.ASCII)
_KNOWN = re.compile(r"(?:v\d+|\d+-[^/]*?)(?:(?:\.gz(?:ip)?)?\.metadata\.json|\.metadata\.json\.gz)", re.ASCII)
# A commit that has not been made has no number: its name may begin with digits.
_UNCOMMITTED = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.")


def is_metadata_file(location: str) -> bool:
    """Return whether a name is that of a metadata file, also one in a form that is not known."""
    return _KIND.fullmatch(location.rpartition("/")[2]) is not None


def is_compressed(location: str) -> bool:
    """Return whether the name of a metadata file says that it is compressed by gzip."""
    return location.endswith((".gz.metadata.json", ".gzip.metadata.json", ".metadata.json.gz"))


def version_of(location: str) -> int | None:
    """Return the number in a metadata file's name; None if it has none, or a form that is not known."""
    name = location.rpartition("/")[2]
    return number_in(name) if _KNOWN.fullmatch(name) else None


def number_in(name: str) -> int | None:
    """Return the number that the name of a metadata file, or a version hint, begins with; None if it has none."""
    found = _NUMBER.match(f"{name}.")
    return None if found is None or _UNCOMMITTED.match(name) else int(found[1])


def not_understood(names: Iterable[str], version: int) -> list[str]:
    """Return the metadata files in a form that is not known, but for those with a number below `version`."""
    found = [each for each in names if is_metadata_file(each) and version_of(each) is None]
    return sorted(each for each in found if (number := number_in(each)) is not None and number >= version)
