"""ags1.layout: a type checker accepts every line but those marked as refused."""

from ags1 import layout


def block_count() -> None:
    count: int = layout.block_count(100, 64)
    layout.block_count(str(count))  # refused


def block_to_ciphertext() -> None:
    offset: int = layout.block_to_ciphertext(3)
    layout.block_to_ciphertext(str(offset))  # refused


def cipher_block_index() -> None:
    index: int = layout.cipher_block_index(3)
    layout.cipher_block_index(str(index))  # refused


def ciphertext_to_plaintext() -> None:
    offset: int = layout.ciphertext_to_plaintext(3, exact=True)
    layout.ciphertext_to_plaintext(str(offset))  # refused


def encrypted_length() -> None:
    length: int = layout.encrypted_length(3)
    layout.encrypted_length(str(length))  # refused


def plaintext_length() -> None:
    length: int = layout.plaintext_length(36)
    layout.plaintext_length(str(length))  # refused


def plaintext_to_block() -> None:
    index: int = layout.plaintext_to_block(36)
    layout.plaintext_to_block(str(index))  # refused


def read_header() -> None:
    length: int = layout.read_header(b"AGS1")
    layout.read_header(length)  # refused


def split_offsets() -> None:
    offsets: list[int] = layout.split_offsets(1000, 100)
    layout.split_offsets(offsets, 10)  # refused


def stored_length() -> None:
    length: int = layout.stored_length(3)
    layout.stored_length(str(length))  # refused


def write_header() -> None:
    header: bytes = layout.write_header(64)
    layout.write_header(header)  # refused
