"""Manifests and their lists as any reader of Avro can read them.

codec zstandard, snappy, ...       -->  none: PyIceberg and fastavro would need further packages for them
partition values of a fixed type   -->  bytes, where they are written so: Iceberg Java declares Avro's fixed and
                                        writes the length in front of each value, as Avro does for bytes
partition values of nanoseconds    -->  longs: PyIceberg writes the logical type, and does not read it
"""

from __future__ import annotations

import io
import json

from ags1.avro import read_header
from ags1.errors import FormatError
from ags1.iceberg._avro_codecs import container_start, without_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["readable"]

_DATA_FILE, _PARTITION = 2, 102


def readable(data: bytes) -> bytes:
    """The container, or the same rows in another.

    Raises
    ------
    UnsupportedError
        Its codec is not known, or not there.
    FormatError
        It is damaged, or no Avro container.
    """
    data = without_codec(data)
    header = read_header(io.BytesIO(data))
    try:
        schema = json.loads(header.metadata.get("avro.schema", b"null"))
    except ValueError:
        raise FormatError("the Avro header has no schema") from None
    changed = _declare_longs(schema)
    text = json.dumps(schema)
    if _declare_bytes(schema) and not _is_as_declared(data):
        changed, text = True, json.dumps(schema)
    if not changed:
        return data
    start = container_start({**header.metadata, "avro.schema": text.encode()}, header.marker)
    return start + data[header.length :]


def _declare_longs(schema: Any) -> bool:
    """Make plain numbers of nanoseconds among partition values, in place; return whether there are some."""
    found = False
    for field in _fields(_field(_field(schema, _DATA_FILE), _PARTITION)):
        kinds = field["type"] if isinstance(field.get("type"), list) else [field.get("type")]
        for kind in kinds:
            if isinstance(kind, dict) and kind.get("logicalType") == "timestamp-nanos":
                del kind["logicalType"]
                found = True
    return found


def _declare_bytes(schema: Any) -> bool:
    """Make bytes of the fixed types of partition values, in place; return whether there are some."""
    found = False
    names: set[str] = set()
    for field in _fields(_field(_field(schema, _DATA_FILE), _PARTITION)):
        kinds = field["type"] if isinstance(field.get("type"), list) else [field.get("type")]
        for index, kind in enumerate(kinds):
            if isinstance(kind, dict) and kind.get("type") == "fixed" and "logicalType" not in kind:
                names.add(str(kind.get("name")))
            elif not (isinstance(kind, str) and kind in names):
                continue
            kinds[index] = "bytes"
            found = True
        if found and not isinstance(field["type"], list):
            field["type"] = kinds[0]
    return found


def _is_as_declared(data: bytes) -> bool:
    import fastavro

    try:
        for _ in fastavro.reader(io.BytesIO(data)):
            pass
    except Exception:
        # Whatever the wrong bytes lead fastavro to.
        return False
    return True


def _fields(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return next((found for each in schema if (found := _fields(each))), [])
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return [each for each in fields if isinstance(each, dict)] if isinstance(fields, list) else []


def _field(schema: Any, field_id: int) -> Any:
    return next((each.get("type") for each in _fields(schema) if each.get("field-id") == field_id), None)
