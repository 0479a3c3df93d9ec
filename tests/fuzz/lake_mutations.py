"""Changes of the files of tables and datasets, as somebody without keys makes them: of JSON, Avro, Puffin and bytes."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zlib
from typing import Any

import fastavro

from ags1.avro import plain_blocks, read_header
from ags1.support.avro_encoding import container_start, encoded_block
from tests.fuzz.choices import Choices
from tests.fuzz.parquet_targets import change_bytes, change_plain_footer

TYPES: list[Any] = [
    "boolean", "int", "long", "double", "date", "time", "timestamp", "timestamptz_ns", "string", "uuid", "binary",
    "fixed[0]", "fixed[99999999999]", "fixed[3]", "decimal(9, 2)", "decimal(99,99)", "decimal(0, 0)", "variant",
    "unknown", "geometry", "struct<", {"type": "struct", "fields": []}, {"type": "list"}, {"type": "map", "key": "int"},
    {"type": "list", "element-id": 1, "element": "int", "element-required": False},
]  # fmt: skip
PLACES = [
    "../../outside", "/outside", "file:///outside", "gopher://x/y", "file://host/outside", "memory://outside", "", "/",
    "file:", ".", "a\0b", "x" * 5000, "http://[", "s3:", "\x1b[31m", "\ud800",
]  # fmt: skip
POOLS: dict[str, list[Any]] = {
    "type": TYPES,
    "element": TYPES,
    "transform": [
        "void", "identity", "bucket[0]", "bucket[1]", "bucket[-1]", "bucket[99999999999]", "truncate[0]", "truncate[1]",
        "truncate[-1]", "day", "hour", "year", "unknown", "bucket", "x" * 5000,
    ],
    "name": ["", "a.b", "id", "_pos", "_row_id", "_file", "\x1b[31m", "\0", "\ud800", "x" * 5000, "file_path", "pos"],
    "location": PLACES, "manifest-list": PLACES, "metadata-file": PLACES,
    "initial-default": [None, 0, "x", "ff", "2020-01-01", [], {}, 1e400, 10**30],
    "schema.name-mapping.default": [
        "[]", "{}", "[1]", "x", '[{"field-id": 1}]', '[{"names": ["id"], "field-id": 2}]',
        '[{"names": ["id"], "fields": ' * 500 + "[]" + "}]" * 500,
    ],
    "encryption.key-id": ["keyB", "keyZ", "", None, 5], "encryption.data-key-length": ["0", "7", "x", "-1", "9" * 30],
    "key-id": [None, "keyA", "", 5, "x"], "encrypted-by-id": ["keyA", "keyB", "x", "", None],
    "first-row-id": [None, -1, 0, 1 << 62], "schema-id": [0, 1, 99, None], "current-schema-id": [1, 99, -1],
    "format-version": [1, 2, 3, 4],
}  # fmt: skip
"""What stands in place of the value of a field that is read, or is added."""
ODD: list[Any] = [
    None, True, False, -1, 0, 1, 3, 1 << 31, -(1 << 31) - 1, 1 << 63, -(1 << 63), 1 << 64, 10**30, 1.5, -0.0, 1e308, "",
    "x", "main", "9" * 30, "NaN", "AAAA", "0" * 8192, "_ags1/v-1.json", [], {}, [None], [[]], {"": None}, {"a": [{}]},
    *PLACES, *TYPES,
]  # fmt: skip
"""What stands in place of any value: other types, numbers out of all bounds, places elsewhere, types that are none."""


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each container of a tree of JSON with each of its keys."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, (dict, list)):
            keys = list(each) if isinstance(each, dict) else list(range(len(each)))
            found += [(each, key) for key in keys]
            waiting += [each[key] for key in keys]
    return found


def change_tree(choices: Choices, tree: Any) -> Any:
    """Up to three changes somewhere in a tree of JSON."""
    for _ in range(choices.one_of([1, 1, 1, 2, 4])):
        spots = places(tree)
        if not spots:
            return choices.one_of(ODD)
        where, key = choices.one_of(spots)
        kind = choices.below(16)
        value = where[key]
        if kind == 0:
            del where[key]
        elif kind == 1:
            other, name = choices.one_of(spots)
            where[key] = json.loads(json.dumps(other[name])) if name in other or isinstance(other, list) else None
        elif kind == 2:
            where[key] = [value]
        elif kind == 3:
            where[key] = {"type": value}
        elif kind == 4 and isinstance(where, list):
            where.insert(key, value)
        elif kind == 4:
            name = choices.one_of(sorted(POOLS))
            where[name] = choices.one_of(POOLS[name])
        elif kind == 5 and isinstance(value, bool) is False and isinstance(value, int):
            where[key] = choices.one_of([value + 1, value - 1, -value, value * 1000, str(value), float(value)])
        elif kind == 6 and isinstance(value, str):
            where[key] = choices.one_of([value + "x", value[:-1], value.upper(), "../" + value, value * 2, [value]])
        elif kind == 7 and isinstance(value, list):
            del value[choices.below(len(value) + 1) :]
        elif kind == 8:
            deep: Any = value
            for _ in range(choices.one_of([5, 60, 300, 900])):
                deep = choices.one_of([[deep], {"items": deep}, {"type": "list", "element-id": 9, "element": deep}])
            where[key] = deep
        else:
            where[key] = choices.one_of(POOLS.get(key, ODD) if kind < 14 else ODD)
    return tree


def change_json(choices: Choices, data: bytes) -> bytes:
    """A JSON text with another tree, or in another spelling."""
    text = json.dumps(change_tree(choices, json.loads(data)))
    kind = choices.below(16)
    at = choices.below(len(text) + 1)
    if kind == 0:
        return text[:at].encode()
    if kind == 1:
        deep = choices.one_of([100, 990, 100_000])
        return (
            text.replace("null", "[" * deep + "]" * deep, 1).replace(": 0", ": " + "[" * deep + "]" * deep, 1).encode()
        )
    if kind == 2:
        return text.replace(
            ": 1", choices.one_of([": NaN", ": Infinity", ": 1e400", ": " + "9" * 5000, ": 01"])
        ).encode()
    if kind == 3:
        name = choices.one_of(list(json.loads(data)))
        return (text[:1] + f"{json.dumps(name)}: {json.dumps(choices.one_of(ODD))}, " + text[1:]).encode()
    if kind == 4:
        return gzip.compress(text.encode())[: choices.one_of([10, 100, None])]
    if kind == 5:
        return text.encode(choices.one_of(["utf-16", "utf-8-sig", "utf-32"]))
    return change_bytes(choices, text.encode()) if kind == 6 else text.encode()


# -- Avro ------------------------------------------------------------------------------------------------------------


def change_avro(choices: Choices, data: bytes) -> bytes:
    """A container with another header, other frames of blocks, or other rows; or with other bytes."""
    kind = choices.below(6)
    if kind == 0:
        return change_bytes(choices, data)
    header = read_header(io.BytesIO(data))
    blocks = list(plain_blocks(io.BytesIO(data), 0, len(data)))
    metadata = {**header.metadata, "avro.codec": b"null"}
    schema = json.loads(metadata["avro.schema"])
    if kind in (1, 2):
        try:
            return change_rows(choices, metadata, header.marker, schema)(data)
        except Exception:
            # fastavro does not write what does not fit the schema.
            kind = 3
    if kind == 3:
        metadata["avro.schema"] = json.dumps(change_tree(choices, schema)).encode()
    elif kind == 4:
        name = choices.one_of(sorted(metadata))
        metadata[name] = choices.one_of(
            [
                b"",
                b"null",
                b"deflate",
                b"snappy",
                b"zstandard",
                b"xz",
                b"\xff",
                b"{}",
                b"[" * 5000,
                change_text(choices, metadata[name]),
            ]
        )
    made = bytearray(container_start(metadata, header.marker))
    for block in blocks:
        count, body = block.count, block.data
        if kind == 5:
            count = choices.one_of([count, 0, count + 1, max(0, count - 1), 1 << 20, 1 << 31, 1 << 62])
            body = change_bytes(choices, body)
        made += encoded_block(count, body, header.marker)
    return bytes(made)


def change_text(choices: Choices, data: bytes) -> bytes:
    try:
        return json.dumps(change_tree(choices, json.loads(data))).encode()
    except ValueError:
        return change_bytes(choices, data)


def change_rows(choices: Choices, metadata: dict[str, bytes], marker: bytes, schema: Any) -> Any:
    def changed(data: bytes) -> bytes:
        rows = list(fastavro.reader(io.BytesIO(data)))
        tree = {"rows": rows}
        for _ in range(choices.one_of([1, 1, 1, 2, 4])):
            where, key = choices.one_of(places(tree))
            value = where[key]
            if isinstance(value, bool) or value is None:
                where[key] = choices.one_of([None, 0, b"", "", 1 << 62, []])
            elif isinstance(value, int):
                where[key] = choices.one_of(
                    [-1, 0, 1, 2, 7, value + 1, value - 1, 1 << 31, (1 << 63) - 1, -(1 << 63), None]
                )
            elif isinstance(value, str):
                where[key] = choices.one_of(
                    ["", "../../outside", "/outside", "file:///outside", "gopher://x/y", value + "x", value[:-1], "\0",
                     "AVRO", "ORC", "PUFFIN", "PARQUET", "x" * 5000, "/", "file:", "\x1b[31m", None]
                )  # fmt: skip
            elif isinstance(value, bytes):
                where[key] = choices.one_of(
                    [b"", b"\0" * 8, b"\xff" * 9, change_bytes(choices, value), b"x" * 5000, None]
                )
            elif isinstance(value, list) and value:
                where[key] = choices.one_of([[], value + value, value[:-1], value * 50, value[::-1]])
            elif isinstance(where, list):
                where.append(value)
            else:
                where[key] = None
        out = io.BytesIO()
        kept = {name: text for name, text in metadata.items() if not name.startswith("avro.")}
        fastavro.writer(out, schema, rows, metadata=kept, sync_marker=marker)
        return out.getvalue()

    return changed


# -- Puffin ----------------------------------------------------------------------------------------------------------


def change_puffin(choices: Choices, data: bytes) -> bytes:
    """A Puffin file with another footer, or with other bitmaps that have a good checksum all the same."""
    (length,) = struct.unpack("<I", data[-12:-8])
    begin = len(data) - 12 - length
    footer = json.loads(data[begin : begin + length])
    kind = choices.below(4)
    if kind == 0:
        return change_bytes(choices, data)
    if kind == 1:
        made = json.dumps(change_tree(choices, footer)).encode()
        return data[:begin] + made + struct.pack("<II", len(made), choices.one_of([0, 0, 0, 1, 255])) + b"PFA1"
    changed = bytearray(data)
    for blob in footer["blobs"]:
        offset, size = blob["offset"], blob["length"]
        content = bytearray(changed[offset + 4 : offset + size - 4])
        for _ in range(1 + choices.below(4)):
            at = 4 + choices.below(len(content) - 4)
            content[at] = choices.one_of(
                [0, 1, 0xFF, 0x3A, 0x3B, content[at] ^ (1 << choices.below(8)), choices.number()]
            )
        changed[offset + 4 : offset + size - 4] = content
        changed[offset + size - 4 : offset + size] = struct.pack(">I", zlib.crc32(content))
    return bytes(changed)


# -- any file --------------------------------------------------------------------------------------------------------


def change_file(choices: Choices, name: str, data: bytes, others: list[bytes]) -> bytes:
    """A file with other content: by its format, by its bytes, or that of another file."""
    kind = choices.below(10)
    if kind == 0:
        return choices.one_of(others)
    if kind == 1:
        return data[: choices.one_of([0, 1, 4, 8, len(data) // 2, max(0, len(data) - 1), max(0, len(data) - 28)])]
    if kind == 2:
        return change_bytes(choices, data)
    if data[:1] in (b"{", b"["):
        return change_json(choices, data)
    if data[:4] == b"Obj\x01":
        return change_avro(choices, data)
    if data[:4] == b"PFA1" and data[-4:] == b"PFA1":
        return change_puffin(choices, data)
    if data[:4] == b"PAR1" and data[-4:] == b"PAR1":
        return change_plain_footer(choices, data)
    if data[:4] == b"AGS1" and choices.below(2):
        return data[:4] + struct.pack("<I", choices.size() & 0xFFFFFFFF) + data[8:]
    return change_bytes(choices, data)
