"""A table's metadata file: its checks, so that all readers here see the same snapshots, its fields, and its name.

It is a mapping, JSON, or a file. Nothing in it protects it. Its catalog may keep its hash, and what a manifest list
says of its own snapshot is authenticated with the list. PyIceberg takes a field under its Python name too,
``manifest_list`` for ``manifest-list``, which no other reader sees: such a file is refused. Sources: Iceberg table
spec, "Table Metadata Fields" and "Snapshots"; Iceberg Java's HiveTableOperations, for the parameter ``metadata_hash``.

    00007-UUID.metadata.json       of a catalog; Hadoop catalogs have v7.metadata.json
    00007-UUID.gz.metadata.json    compressed; others write .gzip.metadata.json
    00007-UUID.metadata.json.gz    compressed, before Iceberg 0.8
    UUID.metadata.json             of a Hadoop catalog, before its commit renames the file
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import re
import zlib
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any, NoReturn, TypeAlias
from urllib.parse import unquote_plus

from ags1.errors import FormatError, KeyAccessError, UnsupportedError
from ags1.expected import Expected
from ags1.iceberg.metadata.key_entries import EncryptedKey, entries_from_list, shown
from ags1.iceberg.metadata.locations import IO_IMPLEMENTATION

Metadata: TypeAlias = Mapping[str, Any] | str | bytes | bytearray | memoryview | os.PathLike[str]

ENCRYPTION_KEYS = "encryption-keys"
MAX_DOCUMENT = 1 << 30
_GZIP_MAGIC = b"\x1f\x8b"
# Limit of decompression: metadata is ids, paths and repeated names, which gzip reduces to about a tenth.
_GZIP_FREE, _GZIP_RATIO = 32 << 20, 32
_BLANK = " \t\r\n"


class Document:
    """The metadata of one table: a mapping, JSON (also compressed by gzip), or the path of a file.

    A str that begins with ``{`` is JSON, any other is a path. A FormatError reports that it is not a JSON object, has a
    field twice, or is larger than a gibibyte.
    """

    def __init__(self, metadata: Metadata) -> None:
        self._text: str | None = None
        if isinstance(metadata, Mapping):
            self.fields: Mapping[str, Any] = dict(metadata)
            return
        is_json = isinstance(metadata, str) and metadata.lstrip("\ufeff" + _BLANK)[:1] in ("", "{", "[")
        if isinstance(metadata, (str, os.PathLike)) and not is_json:
            metadata = _read(metadata)
        if isinstance(metadata, str):
            self._text = metadata
        elif isinstance(metadata, (bytes, bytearray, memoryview)):
            self._text = _decoded(bytes(metadata))
        else:
            raise TypeError(f"metadata must be a mapping, JSON or a path, not {type(metadata).__name__}")
        if len(self._text) > MAX_DOCUMENT:
            raise FormatError("table metadata of more than a gibibyte is refused")
        self.fields = _parsed(self._text)

    def entries(self) -> list[EncryptedKey]:
        """The entries of ``encryption-keys``; none without such a list."""
        return entries_from_list(self.fields.get(ENCRYPTION_KEYS))

    @cached_property
    def text(self) -> str:
        """The JSON, uncompressed."""
        return json.dumps(self.fields) if self._text is None else self._text

    @cached_property
    def hash(self) -> str:
        """The hash of the JSON, as :func:`text_hash` makes it, for `metadata_hash` of :func:`open_table`."""
        return text_hash(self.text)

    def snapshots(self) -> Snapshots:
        """The snapshots that the metadata lists, with their key ids."""
        return Snapshots(self.fields)

    def texts_outside_the_list(self) -> set[str]:
        """Every text value in the metadata except those in ``encryption-keys``."""
        found = set()
        waiting = [value for name, value in self.fields.items() if name != ENCRYPTION_KEYS]
        while waiting:
            value = waiting.pop()
            if isinstance(value, str):
                found.add(value)
            elif isinstance(value, (list, tuple)):
                waiting += value
            elif isinstance(value, dict):
                waiting += value.values()
        return found


class Snapshots:
    """Which snapshot names which key, and whether the metadata lists them all."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        listed = fields.get("snapshots")
        if listed is not None and not isinstance(listed, (list, tuple)):
            raise FormatError(f"snapshots must be a JSON list, not {type(listed).__name__}")
        self.listed = listed is not None
        self.current = _snapshot_id(fields.get("current-snapshot-id", -1), "current-snapshot-id", absent=-1)
        self.key_ids: dict[int, str | None] = {}
        for snapshot in listed or ():
            if not isinstance(snapshot, dict):
                raise FormatError(f"a snapshot must be a JSON object, not {type(snapshot).__name__}")
            number = _snapshot_id(snapshot.get("snapshot-id"), "snapshot-id")
            key_id = snapshot.get("key-id")
            if key_id is not None and not isinstance(key_id, str):
                raise FormatError(f"snapshot {number}: key-id must be text, not {type(key_id).__name__}")
            if number in self.key_ids:
                raise FormatError(f"the metadata lists snapshot {number} twice")
            self.key_ids[number] = key_id
        self._fields = fields

    @property
    def refs(self) -> Mapping[str, Any]:
        """Branches and tags by name, as they are written."""
        refs = self._fields.get("refs")
        return refs if isinstance(refs, dict) else {}

    def is_branch(self, name: str) -> bool:
        """Whether a ref is a branch; one that the table does not have is a branch too."""
        found = self.refs.get(name)
        return not isinstance(found, dict) or found.get("type") == "branch"

    def of_ref(self, name: str) -> int:
        """The snapshot of a branch or a tag; a ValueError if there is none of this name."""
        if name in self.refs:
            found = self.refs[name]
            number = _snapshot_id(found.get("snapshot-id") if isinstance(found, dict) else None, f"ref {shown(name)}")
            if number not in self.key_ids:
                raise FormatError(f"the ref {shown(name)} is of snapshot {number}, which the metadata does not list")
            return number
        if name == "main" and self.current != -1:
            return self.current
        known = ", ".join(map(shown, self.refs)) or "none"
        raise ValueError(f"the table has no branch or tag {shown(name)}; it has {known}")

    def check_complete(self) -> None:
        """Refuse metadata that names snapshots which it does not list.

        A REST catalog can return a part of the snapshots (``snapshots=refs``). Keys that only the others need would
        look unused.
        """
        if not self.listed:
            raise FormatError("the metadata has no list of snapshots, so it is not known which keys are in use")
        named = set() if self.current == -1 else {self.current}
        refs = self._fields.get("refs") or {}
        log = self._fields.get("snapshot-log") or []
        if not isinstance(refs, dict) or not isinstance(log, (list, tuple)):
            raise FormatError("refs must be a JSON object, and snapshot-log a JSON list")
        for each in [*refs.values(), *log]:
            if not isinstance(each, dict):
                raise FormatError("refs and snapshot-log must hold JSON objects")
            named.add(_snapshot_id(each.get("snapshot-id"), "snapshot-id of refs or snapshot-log"))
        if absent := named - self.key_ids.keys():
            raise FormatError(
                f"the metadata names snapshot {min(absent)} and does not list it (of {len(absent)} such): it may be a "
                "catalog's response with a part of the snapshots. Load all snapshots first"
            )

    def key_id(self, snapshot_id: int) -> str | None:
        """Key id of a snapshot; None where the snapshot names none."""
        if snapshot_id not in self.key_ids:
            raise KeyAccessError(
                f"snapshot {snapshot_id} is not in the metadata, which lists {len(self.key_ids)} snapshots"
            )
        return self.key_ids[snapshot_id]


def _snapshot_id(value: object, name: str, absent: int | None = None) -> int:
    if value is None and absent is not None:
        return absent
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(f"{name} must be a whole number, not {'absent' if value is None else type(value).__name__}")
    return value


def _read(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb") as file:
        data = file.read(MAX_DOCUMENT + 1)
    if len(data) > MAX_DOCUMENT:
        raise FormatError(f"{os.fspath(path)}: table metadata of more than a gibibyte is refused")
    return data


def _decoded(data: bytes) -> str:
    if data[:2] == _GZIP_MAGIC:
        most = min(MAX_DOCUMENT, _GZIP_FREE + _GZIP_RATIO * len(data))
        try:
            with gzip.open(io.BytesIO(data)) as file:
                data = file.read(most + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise FormatError(f"table metadata is damaged gzip ({type(error).__name__})") from None
        if len(data) > most:
            raise FormatError(
                f"table metadata that becomes more than {most:,} bytes when it is decompressed is refused: if it is "
                "meant to be, store it without gzip"
            )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"table metadata is not UTF-8: byte {error.start}") from None


def _parsed(text: str) -> dict[str, Any]:
    """Parse a JSON object; a FormatError quotes nothing of the document."""
    if not text.lstrip("\ufeff" + _BLANK).startswith("{"):
        raise FormatError("table metadata is not a JSON object")
    try:
        found: dict[str, Any] = json.loads(
            text.removeprefix("\ufeff"), parse_constant=_refuse_constant, object_pairs_hook=_only_once
        )
    except FormatError:
        raise
    except json.JSONDecodeError as error:
        raise FormatError(f"table metadata is not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:
        raise FormatError("table metadata is not JSON: a number is out of range") from None
    except RecursionError:
        raise FormatError("table metadata is not JSON: it is nested too deeply") from None
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise FormatError(f"table metadata is not JSON: {name} is not a JSON number")


def _only_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a field that occurs twice: two readers could use different values."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise FormatError(f"a JSON object has the field {shown(twice)} twice")
    return fields


# -- the document of a table -------------------------------------------------------------------------------------------

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
_OURS = "ags1.iceberg.EncryptedFileIO"


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
    expected.check_hash(location, document.hash)
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


def refuse_own_rules(fields: Mapping[str, Any]) -> None:
    """Refuse properties that say how the table is read: PyIceberg lets them replace the catalog's."""
    properties = properties_of(fields)
    ours = [name for name in properties if name.startswith("ags1.")]
    if claims_encryption(fields) and properties.get(IO_IMPLEMENTATION, _OURS) != _OURS:
        ours.append(IO_IMPLEMENTATION)
    if ours:
        raise FormatError(
            f"the table's own properties set {', '.join(map(shown, ours))}: how a table is read is not for the "
            "table to say; remove them there, and give them to the catalog or to open_table()"
        )


def seems_decrypted(fields: Mapping[str, Any]) -> bool:
    """Return whether only older snapshots and their keys declare the table as encrypted, as after a decryption."""
    return not properties_of(fields).get(KEY_ID) and claims_encryption(fields)


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
