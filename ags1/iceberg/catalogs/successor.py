"""The metadata file that follows another one: its contents, its text, its hash and its name.

    00007-UUID.metadata.json  -->  00008-UUID.metadata.json

As Iceberg does it: ``last-updated-ms`` is now, and ``metadata-log`` gets the old file with the time of its own last
update and loses the oldest ones beyond ``write.metadata.previous-versions-max``. The text is that of Iceberg Java:
compact, in its order of fields, with characters as they are. Java compares the hash of the text that it would write
with the one in a Hive metastore, so only a text in exactly that form has a hash here. Sources: Iceberg table spec,
"Table Metadata Fields"; Iceberg Java's TableMetadataParser, SnapshotParser, SchemaParser and
BaseMetastoreTableOperations.
"""

from __future__ import annotations

import gzip
import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ags1.errors import FormatError
from ags1.iceberg.metadata.metadata_document import (
    METADATA_SUFFIX,
    Document,
    is_compressed,
    properties_of,
    text_hash,
    version_of,
)

_PREVIOUS_VERSIONS_MAX = "write.metadata.previous-versions-max"
_PREVIOUS_VERSIONS = 100
_CODEC = "write.metadata.compression-codec"


class _Shape(NamedTuple):
    """A JSON object: its fields in Java's order, what the lists in it hold, and which fields are types of columns."""

    names: tuple[str, ...]
    lists: Mapping[str, Any] = MappingProxyType({})
    types: tuple[str, ...] = ()


_FIELD = _Shape(("id", "name", "required", "type", "doc", "initial-default", "write-default"), types=("type",))
_STRUCT = _Shape(("type", "schema-id", "identifier-field-ids", "fields"), {"fields": _FIELD})
_LIST = _Shape(("type", "element-id", "element", "element-required"), types=("element",))
_MAP = _Shape(("type", "key-id", "key", "value-id", "value", "value-required"), types=("key", "value"))
_SPEC_FIELD = _Shape(("name", "transform", "source-id", "field-id"))
_ORDER_FIELD = _Shape(("transform", "source-id", "direction", "null-order"))
_BLOB = _Shape(("type", "snapshot-id", "sequence-number", "fields", "properties"))
_STATISTICS = ("snapshot-id", "statistics-path", "file-size-in-bytes")
_SNAPSHOT = (
    "sequence-number", "snapshot-id", "parent-snapshot-id", "timestamp-ms", "summary", "manifest-list", "manifests",
    "schema-id", "first-row-id", "added-rows", "key-id",
)  # fmt: skip
_REF = _Shape(("snapshot-id", "type", "min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"))
_LISTS = {
    "schemas": _STRUCT,
    "partition-specs": _Shape(("spec-id", "fields"), {"fields": _SPEC_FIELD}),
    "sort-orders": _Shape(("order-id", "fields"), {"fields": _ORDER_FIELD}),
    "encryption-keys": _Shape(("key-id", "encrypted-key-metadata", "encrypted-by-id", "properties")),
    "snapshots": _Shape(_SNAPSHOT),
    "statistics": _Shape((*_STATISTICS, "file-footer-size-in-bytes", "blob-metadata"), {"blob-metadata": _BLOB}),
    "partition-statistics": _Shape(_STATISTICS),
    "snapshot-log": _Shape(("timestamp-ms", "snapshot-id")),
    "metadata-log": _Shape(("timestamp-ms", "metadata-file")),
}
_TOP = (
    "format-version", "table-uuid", "location", "last-sequence-number", "last-updated-ms", "last-column-id", "schema",
    "current-schema-id", "schemas", "partition-spec", "default-spec-id", "partition-specs", "last-partition-id",
    "default-sort-order-id", "sort-orders", "properties", "current-snapshot-id", "next-row-id", "encryption-keys",
    "refs", "snapshots", "statistics", "partition-statistics", "snapshot-log", "metadata-log",
)  # fmt: skip
# Java writes these also where the file that it read lacks them.
_ALWAYS: Mapping[str, Any] = {
    "properties": {}, "refs": {}, "snapshots": [], "statistics": [], "partition-statistics": [],
    "snapshot-log": [], "metadata-log": [],
}  # fmt: skip
_CURRENT = "current-snapshot-id"
_NO_SNAPSHOT = -1
_NULL_SINCE = 3
# Java omits these if they are empty.
_NEVER_EMPTY = ("encryption-keys", "identifier-field-ids")
# These may be fractions, which have several spellings.
_DEFAULTS = ("initial-default", "write-default")


class NewMetadata:
    """A metadata file to write.

    `data` is the stored text, possibly compressed by gzip. `metadata_hash` is the base64 of the SHA-256 of the text;
    None if Iceberg Java would write the same metadata differently.
    """

    def __init__(self, fields: Mapping[str, Any], name: str) -> None:
        ordered, is_javas = java_form(fields)
        text = java_text(ordered)
        self.name = name
        self.document = Document(text)
        encoded = text.encode("utf-8")
        self.data = gzip.compress(encoded, mtime=0) if is_compressed(name) else encoded
        self.metadata_hash = text_hash(text) if is_javas else None


def successor(
    location: str,
    base: Mapping[str, Any],
    fields: Mapping[str, Any],
    *,
    name: str | None = None,
    clock: Callable[[], float] = time.time,
) -> NewMetadata:
    """Make the metadata file after the one at `location`, whose content is `base`.

    The log and the time in `fields` are set. Without a `name`, it is the next number with a random UUID. A FormatError
    reports a base without the time of its last update, or with a wrong log.
    """
    before = _milliseconds(base, "last-updated-ms")
    log = base.get("metadata-log")
    if log is not None and not isinstance(log, list):
        raise FormatError(f"metadata-log must be a JSON list, not {type(log).__name__}")
    kept = [*(log or ()), {"timestamp-ms": before, "metadata-file": location}]
    snapshots = [each for each in fields.get("snapshot-log") or () if isinstance(each, dict)]
    newest = max((_milliseconds(each, "timestamp-ms") for each in snapshots), default=0)
    changed = dict(fields)
    changed["metadata-log"] = kept[-_previous_versions(fields) :]
    # Clocks differ, and Iceberg refuses metadata whose times run backwards.
    changed["last-updated-ms"] = max(int(clock() * 1000), before, newest)
    if name is None:
        version = version_of(location)
        name = _fresh_name(0 if version is None else version + 1, fields)
    return NewMetadata(changed, name)


def first(fields: Mapping[str, Any]) -> NewMetadata:
    """Make the first metadata file of a table."""
    return NewMetadata(fields, _fresh_name(0, fields))


def directory_of(location: str) -> str:
    """Return the directory of a metadata file."""
    directory, slash, _ = location.rpartition("/")
    return directory if slash else "."


def javas_hash(fields: Mapping[str, Any]) -> str | None:
    """Return the hash of metadata as Iceberg Java writes it; None if Java's form of a part is not known."""
    ordered, is_javas = java_form(fields)
    return text_hash(java_text(ordered)) if is_javas else None


def java_form(fields: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return metadata in Iceberg Java's order of fields, and whether Java would write it like this.

    As Java does, it leaves out nulls and empty lists of identifier fields, adds empty lists that are missing, and says
    that there is no current snapshot with a null from format version 3 on, and with -1 before. Fields that Java does
    not know come last, and make the second value False.
    """
    form = _Form()
    return form.top(fields), form.is_javas


class _Form:
    def __init__(self) -> None:
        self.is_javas = True

    def top(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        version, current = fields.get("format-version"), fields.get(_CURRENT)
        missing = {name: empty for name, empty in _ALWAYS.items() if fields.get(name) is None}
        if current not in (None, _NO_SNAPSHOT) and "refs" in missing:
            missing["refs"] = {"main": {"snapshot-id": current, "type": "branch"}}
        found: dict[str, Any] = self._ordered({**fields, **missing}, _Shape(_TOP, _LISTS))
        if version not in (2, 3) or "schema" in found or "partition-spec" in found:
            self.is_javas = False
        elif current in (None, _NO_SNAPSHOT):
            found[_CURRENT] = None if version >= _NULL_SINCE else _NO_SNAPSHOT
            found = {name: found[name] for name in (*_TOP, *found) if name in found}
        if any(isinstance(each, dict) and each.get("sequence-number") == 0 for each in found["snapshots"]):
            # Java leaves this number out, and other readers may need it.
            self.is_javas = False
        if isinstance(found.get("refs"), dict):
            found["refs"] = {name: self._ordered(ref, _REF) for name, ref in found["refs"].items()}
        return found

    def _ordered(self, fields: Any, shape: _Shape) -> Any:
        if not isinstance(fields, dict):
            self.is_javas = False
            return fields
        found = {name: fields[name] for name in shape.names if fields.get(name) is not None}
        for name in _NEVER_EMPTY:
            if not found.get(name, True):
                del found[name]
        for name, below in shape.lists.items():
            if isinstance(found.get(name), (list, tuple)):
                found[name] = [self._ordered(each, below) for each in found[name]]
        for name in shape.types:
            kind = found.get(name)
            if isinstance(kind, dict):
                found[name] = self._ordered(kind, {"list": _LIST, "map": _MAP}.get(str(kind.get("type")), _STRUCT))
        if isinstance(summary := found.get("summary"), dict):
            found["summary"] = {name: summary[name] for name in ("operation",) if name in summary} | summary
        further = {name: value for name, value in fields.items() if name not in shape.names}
        if further or any(isinstance(found.get(name), (float, dict, list)) for name in _DEFAULTS):
            self.is_javas = False
        return found | further


def _fresh_name(version: int, fields: Mapping[str, Any]) -> str:
    codec = str(properties_of(fields).get(_CODEC, "none")).lower()
    return f"{version:05d}-{uuid.uuid4()}{'.gz' if codec == 'gzip' else ''}{METADATA_SUFFIX}"


def _previous_versions(fields: Mapping[str, Any]) -> int:
    text = str(properties_of(fields).get(_PREVIOUS_VERSIONS_MAX, _PREVIOUS_VERSIONS))
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else _PREVIOUS_VERSIONS


def _milliseconds(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(f"{name} must be a whole number of milliseconds")
    return value


def java_text(value: Any) -> str:
    """Return a JSON value as Iceberg Java spells it."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise FormatError("the table's metadata has a number that cannot be written as it was") from None
    # Java writes control characters with capital digits.
    return re.sub(r"\\(?:u[0-9a-f]{4}|.)", _capital, text) if "\\u" in text else text


def _capital(escape: re.Match[str]) -> str:
    found = escape[0]
    return f"\\u{found[2:].upper()}" if found[1] == "u" else found
