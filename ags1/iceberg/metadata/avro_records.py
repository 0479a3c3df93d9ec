"""Records of a table's Avro files with Avro's own values, to inspect one file."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

from ags1.avro import PlainContainer, check_schema, plain_blocks, read_header
from ags1.errors import FormatError
from ags1.iceberg.metadata.manifests import readable


def records(file: Any, *, is_manifest: bool) -> Iterator[dict[str, Any]]:
    """Return the records of a plaintext file, one block in memory at a time; manifests and lists are read whole.

    An UnsupportedError names a codec that is not installed. Any other fastavro exception means that the file is
    damaged.
    """
    if is_manifest:
        file = io.BytesIO(readable(file.read()))
    header = read_header(file)
    schema = json.loads(header.metadata.get("avro.schema", b"null"))
    if schema is None:
        raise FormatError("the Avro header has no schema")
    check_schema(schema)
    _mark_local(schema)
    metadata = {"avro.schema": json.dumps(schema).encode()}
    yield from PlainContainer(metadata, header.marker, plain_blocks(file)).rows()


def _mark_local(schema: Any) -> None:
    """Give timestamps without a zone Avro's own type name: Iceberg marks them by a property that Avro lacks."""
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if each.get("adjust-to-utc") is False and str(each.get("logicalType")).startswith("timestamp-"):
                each["logicalType"] = f"local-{each['logicalType']}"
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
