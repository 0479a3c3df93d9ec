"""ags1: a type checker accepts every line but those marked as refused."""

import io
from typing import Any

import ags1

KEY = ags1.Key.generate()
METADATA = ags1.KeyMetadata.generate()


def encrypt() -> None:
    sealed: bytes = ags1.encrypt(bytearray(b"text"), KEY, aad_prefix=memoryview(b"name"), block_length=64, threads=1)
    ags1.encrypt("text", KEY)  # refused
    ags1.encrypt(sealed)  # refused


def decrypt() -> None:
    plain: bytes = ags1.decrypt(b"", bytes(16), length=36)
    ags1.decrypt(plain, KEY, length="36")  # refused
    ags1.decrypt(plain, "key")  # refused


def encrypt_into() -> None:
    count: int = ags1.encrypt_into(b"text", bytearray(100), KEY)
    ags1.encrypt_into(b"text", count, KEY)  # refused


def decrypt_into() -> None:
    count: int = ags1.decrypt_into(b"", memoryview(bytearray(100)), KEY)
    ags1.decrypt_into(b"", [count], KEY)  # refused


def encrypt_many() -> None:
    batch: ags1.Batch = ags1.encrypt_many([b"a", b"b"], [KEY, KEY], aad_prefixes=[b"1", b"2"])
    first: memoryview = batch[0]
    ags1.encrypt_many(batch, KEY, block_length="64")  # refused
    _wrong: bytes = ags1.encrypt_many([first], KEY)  # refused


def decrypt_many() -> None:
    batch: ags1.Batch = ags1.decrypt_many([b""], KEY, lengths=[None], on_error="null")
    ags1.decrypt_many(batch, KEY, on_error="ignore")  # refused


def encrypted_length() -> None:
    length: int = ags1.encrypted_length(100, 64)
    ags1.encrypted_length(str(length))  # refused


def plaintext_length() -> None:
    length: int = ags1.plaintext_length(100)
    ags1.plaintext_length(length, "64")  # refused


def split_offsets() -> None:
    offsets: list[int] = ags1.split_offsets(1000, 100)
    ags1.split_offsets(offsets, 100)  # refused


def encrypt_file() -> None:
    metadata: ags1.KeyMetadata = ags1.encrypt_file("plain", io.BytesIO(), KEY, durable=True)
    ags1.encrypt_file("plain", "sealed", "key")  # refused
    _wrong: bytes = metadata  # refused


def decrypt_file() -> None:
    count: int = ags1.decrypt_file("sealed", "plain", key_metadata=METADATA)
    ags1.decrypt_file("sealed", "plain", length=str(count))  # refused


def verify_file() -> None:
    is_whole: bool = ags1.verify_file("sealed", KEY).ok
    ags1.verify_file("sealed", KEY, threads=str(is_whole))  # refused


def open_() -> None:
    reader: ags1.Reader = ags1.open("sealed", key=KEY)
    writer: ags1.Writer = ags1.open("sealed", "wb", key_metadata=METADATA.encode())
    text: io.TextIOWrapper = ags1.open("sealed", "r", key=KEY, encoding="utf-8")
    _wrong: ags1.Writer = ags1.open("sealed", "rb", key=KEY)  # refused
    ags1.open("sealed", "rb", key=5)  # refused
    writer.write("text")  # refused
    text.write(b"bytes")  # refused
    piece: bytes = reader.pread(0, 10)
    reader.pread(piece, 10)  # refused


def backend() -> None:
    found: dict[str, Any] = ags1.backend()
    _wrong: str = ags1.backend()  # refused
    ags1.backend(found)  # refused


def get_include() -> None:
    path: str = ags1.get_include()
    ags1.get_include(path)  # refused
