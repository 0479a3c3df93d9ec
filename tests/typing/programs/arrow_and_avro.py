"""ags1.arrow and ags1.avro: a type checker accepts every line but those marked as refused."""

from collections.abc import Iterator
from typing import Any

import ags1
from ags1 import arrow, avro

KEY = ags1.Key.generate()


def encrypt_array() -> None:
    arrow.encrypt_array(None, KEY, aad_prefixes=b"name")
    arrow.encrypt_array(None, KEY, block_length="64")  # refused


def decrypt_array() -> None:
    arrow.decrypt_array(None, KEY, on_error="null")
    arrow.decrypt_array(None, KEY, on_error="ignore")  # refused


def encrypt_buffers() -> None:
    buffers: list[Any] = arrow.encrypt_buffers([b"a", None], KEY)
    arrow.encrypt_buffers(buffers, 5)  # refused


def decrypt_buffers() -> None:
    buffers: list[Any] = arrow.decrypt_buffers([b"a", None], [KEY, KEY])
    arrow.decrypt_buffers(buffers, 5)  # refused


def encrypt_columns() -> None:
    arrow.encrypt_columns(None, ["ssn"], KEY)
    arrow.encrypt_columns(None, 5, KEY)  # refused


def decrypt_columns() -> None:
    arrow.decrypt_columns(None, KEY, columns=["ssn"])
    arrow.decrypt_columns(None, "key")  # refused


def encrypt_table() -> None:
    arrow.encrypt_table(None, bytes(32))
    arrow.encrypt_table(None, "key")  # refused


def decrypt_table() -> None:
    arrow.decrypt_table(b"", bytes(32), length=100)
    arrow.decrypt_table("text", bytes(32))  # refused


def open_ipc_file() -> None:
    file: arrow.IpcFile = arrow.open_ipc_file("a", KEY)
    arrow.open_ipc_file("a", file)  # refused


def open_ipc_stream() -> None:
    arrow.open_ipc_stream("a", KEY)
    arrow.open_ipc_stream("a", "key")  # refused


def write_ipc_file() -> None:
    metadata: ags1.KeyMetadata = arrow.write_ipc_file(None, "a", KEY)
    arrow.write_ipc_file(None, "a", metadata)  # refused


def write_ipc_stream() -> None:
    metadata: ags1.KeyMetadata = arrow.write_ipc_stream(None, "a", KEY)
    arrow.write_ipc_stream(None, "a", metadata)  # refused


def check_schema() -> None:
    avro.check_schema({"type": "record"})
    avro.check_schema()  # refused


def iter_blocks(reader: ags1.Reader) -> None:
    blocks: Iterator[avro.AvroBlock] = avro.iter_blocks(reader, 0, 100)
    avro.iter_blocks(reader, 0, blocks)  # refused


def plain_blocks(reader: ags1.Reader) -> None:
    blocks: Iterator[avro.AvroBlock] = avro.plain_blocks(reader)
    avro.plain_blocks(reader, blocks)  # refused


def read_header(reader: ags1.Reader) -> None:
    header: avro.AvroHeader = avro.read_header(reader)
    avro.read_header(reader, header)  # refused


def read_split(reader: ags1.Reader) -> None:
    rows: Iterator[Any] = avro.read_split(reader, 0, 100)
    avro.read_split(reader, 0, rows)  # refused


def splits() -> None:
    ranges: list[tuple[int, int]] = avro.splits(1000, 100)
    avro.splits(ranges, 100)  # refused
