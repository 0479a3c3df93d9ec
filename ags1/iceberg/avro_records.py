"""Records of a table's Avro files with the values that Avro has, for whoever looks at one file."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

from ags1.avro import PlainContainer, check_schema, plain_blocks, read_header
from ags1.errors import FormatError
from ags1.iceberg.manifests import readable

__all__ = ["records"]


def records(file: Any, *, is_manifest: bool) -> Iterator[dict[str, Any]]:
    """The records of a plaintext file, one block of it in memory at a time; of a manifest or manifest list, read whole.

    An UnsupportedError names a codec that is not there. Whatever else fastavro raises means that the file is damaged.
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
    """Call timestamps without a zone by Avro's own name: Iceberg says it in a property that Avro lacks."""
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            if each.get("adjust-to-utc") is False and str(each.get("logicalType")).startswith("timestamp-"):
                each["logicalType"] = f"local-{each['logicalType']}"
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
