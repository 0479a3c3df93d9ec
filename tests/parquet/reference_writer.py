"""The reference reader's counterpart: lays out a file that was taken apart, in plaintext or encrypted.

It makes what no writer at hand makes: each form of V2 pages, modules padded as parquet-java pads them, CTR under a
plaintext footer, AES-192, row groups without ordinals, prefixes stored or not, several keys. ``write_plain`` also
serves for plaintext files with oddities, which its hooks add.
"""

from __future__ import annotations

import copy
import random
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from tests.parquet.reference import open_plain
from tests.parquet.reference_model import (
    CTR_PAGES,
    DATA_PAGE_V2,
    DATA_PAGES,
    DICTIONARY_PAGE,
    GCM,
    Chunk,
    File,
    Page,
    module_aad,
)
from tests.parquet.reference_thrift import BINARY, BOOL, I16, I32, I64, LIST, STRUCT, Sequence, Struct, encode


@dataclass
class Encryption:
    """How to encrypt; every field that has a default may be left out."""

    footer_key: bytes
    # By path (a tuple, or dotted); None encrypts every column with the footer key.
    column_keys: Mapping[tuple[str, ...] | str, bytes] | None = None
    # Whether columns without a key of their own take the footer key, and are not plaintext.
    encrypt_all: bool = False
    algorithm: str = GCM
    plaintext_footer: bool = False
    aad_prefix: bytes | None = None
    store_aad_prefix: bool = True
    # Unset it if there is no prefix, as arrow-rs does, rather than false.
    omit_supply_aad_prefix: bool = False
    footer_key_metadata: bytes | None = None
    column_key_metadata: Mapping[tuple[str, ...] | str, bytes] = field(default_factory=dict)
    # "java": levels of V2 pages in plaintext before the module; "arrow": inside it.
    data_page_v2: str = "java"
    # Zeros behind the structs in modules, as parquet-java leaves them.
    pad_thrift: bool = False
    write_ordinals: bool = True
    # What the footer says instead of the truth, as Arrow C++ before 26 did for CTR under a plaintext footer.
    declared_algorithm: str | None = None
    # Fields of the column metadata that a plaintext footer does not show; arrow-rs hides 12 to 17.
    hidden_fields: tuple[int, ...] = (12, 13)
    aad_file_unique: bytes = b"\x01\x02\x03\x04\x05\x06\x07\x08"
    # Where the nonces come from; None makes the same ones in every run.
    random: random.Random | None = None


def _lookup(mapping: Mapping[tuple[str, ...] | str, bytes], path: tuple[str, ...]) -> bytes | None:
    for name, value in mapping.items():
        if path == name or (isinstance(name, str) and ".".join(path) == name):
            return value
    return None


class _Sealer:
    def __init__(self, encryption: Encryption) -> None:
        self.encryption = encryption
        prefix = encryption.aad_prefix or b""
        self.file_aad = prefix + encryption.aad_file_unique
        self.random = encryption.random or random.Random(0)

    def seal(self, kind: str, key: bytes, plaintext: bytes, *ordinals: int | None, ctr: bool = False) -> bytes:
        nonce = self.random.randbytes(12)
        if ctr:
            encryptor = Cipher(AES(key), CTR(nonce + b"\x00\x00\x00\x01")).encryptor()
            sealed = encryptor.update(plaintext) + encryptor.finalize()
        else:
            sealed = AESGCM(key).encrypt(nonce, plaintext, module_aad(self.file_aad, kind, *ordinals))
        return struct.pack("<I", 12 + len(sealed)) + nonce + sealed

    def seal_struct(self, kind: str, key: bytes, value: Struct, *ordinals: int | None) -> bytes:
        plaintext = encode(value)
        if self.encryption.pad_thrift:
            size = 100
            while size < len(plaintext):
                size *= 2
            plaintext = plaintext.ljust(size, b"\x00")
        return self.seal(kind, key, plaintext, *ordinals)

    def sign(self, footer: bytes) -> bytes:
        nonce = self.random.randbytes(12)
        aad = module_aad(self.file_aad, "footer signature")
        return nonce + AESGCM(self.encryption.footer_key).encrypt(nonce, footer, aad)[-16:]

    def algorithm(self) -> Struct:
        """The EncryptionAlgorithm union."""
        encryption = self.encryption
        arm = Struct()
        has_prefix = encryption.aad_prefix is not None
        if has_prefix and encryption.store_aad_prefix:
            arm.put(1, BINARY, encryption.aad_prefix)
        arm.put(2, BINARY, encryption.aad_file_unique)
        if has_prefix or not encryption.omit_supply_aad_prefix:
            arm.put(3, BOOL, has_prefix and not encryption.store_aad_prefix)
        declared = encryption.declared_algorithm or encryption.algorithm
        return Struct().put(2 if declared == CTR_PAGES else 1, STRUCT, arm)


class _Layout:
    """Writes one file; `sealer` is None for a plaintext one."""

    def __init__(
        self,
        file: File,
        sealer: _Sealer | None,
        pad: Callable[[str], bytes] = lambda _: b"",
        finish: Callable[[Struct], object] = lambda _: None,
        backwards: bool = False,
    ) -> None:
        self.file, self.sealer = file, sealer
        self.pad, self.finish, self.backwards = pad, finish, backwards
        is_encrypted_footer = sealer is not None and not sealer.encryption.plaintext_footer
        self.magic = b"PARE" if is_encrypted_footer else b"PAR1"
        self.out = bytearray(self.magic)

    def key_of(self, path: tuple[str, ...]) -> tuple[bytes | None, bool]:
        """The key of a column, None if it stays plaintext, and whether it is its own."""
        if self.sealer is None:
            return None, False
        encryption = self.sealer.encryption
        if encryption.column_keys is None:
            return encryption.footer_key, False
        key = _lookup(encryption.column_keys, path)
        if key is not None:
            return key, True
        return (encryption.footer_key if encryption.encrypt_all else None), False

    def module(self, kind: str, key: bytes | None, value: Struct, *place: int | None) -> bytes:
        if key is None:
            return encode(value)
        assert self.sealer is not None
        return self.sealer.seal_struct(kind, key, value, *place)

    def page(self, page: Page, key: bytes | None, *place: int | None) -> tuple[bytes, bytes]:
        """A page's header and body as they are stored."""
        levels = page.repetition_levels + page.definition_levels
        kind = "dictionary page" if page.type == DICTIONARY_PAGE else "data page"
        body = levels + page.body
        if key is not None:
            assert self.sealer is not None
            ctr = self.sealer.encryption.algorithm == CTR_PAGES
            if page.type == DATA_PAGE_V2 and self.sealer.encryption.data_page_v2 == "java":
                body = levels + self.sealer.seal(kind, key, page.body, *place, ctr=ctr)
            else:
                body = self.sealer.seal(kind, key, body, *place, ctr=ctr)
        header = copy.deepcopy(page.header).put(3, I32, len(body))
        if 4 in header:
            header.put(4, I32, struct.unpack("<i", struct.pack("<I", zlib.crc32(body)))[0])
        return self.module(f"{kind} header", key, header, *place), body

    def pages(self, chunk: Chunk, metadata: Struct, key: bytes | None, row_group: int, column: int) -> list[list[int]]:
        """Write a chunk's pages; answers offset and stored size of its data pages."""
        begin = len(self.out)
        uncompressed, locations, dictionary_at = 0, [], None
        for page in chunk.pages:
            if page.type not in DATA_PAGES and page.type != DICTIONARY_PAGE and key is not None:
                # There is no type of module for it.
                continue
            offset = len(self.out)
            ordinal = None
            if page.type == DICTIONARY_PAGE:
                dictionary_at = offset
            elif page.type in DATA_PAGES:
                ordinal = len(locations)
            header, body = self.page(page, key, row_group, column, ordinal)
            self.out += header + body
            uncompressed += len(header) + page.header[2]
            if ordinal is not None:
                locations.append([offset, len(header) + len(body)])
        metadata.put(6, I64, uncompressed).put(7, I64, len(self.out) - begin)
        metadata.put(9, I64, locations[0][0] if locations else begin)
        metadata.remove(10, 11)
        if dictionary_at is not None:
            metadata.put(11, I64, dictionary_at)
        return locations

    def write(self) -> bytes:
        footer = copy.deepcopy(self.file.footer).remove(8, 9)
        written: list[tuple[Chunk, Struct, Struct, bytes | None, tuple[int, int], list[list[int]]]] = []
        for row_group, (group, fields) in enumerate(zip(self.file.row_groups, footer[4], strict=True)):
            self.out += self.pad("row group")
            columns = list(enumerate(zip(group.chunks, fields[1], strict=True)))
            for column, (chunk, fields_of_chunk) in reversed(columns) if self.backwards else columns:
                key, _ = self.key_of(chunk.path)
                metadata = copy.deepcopy(chunk.metadata)
                locations = self.pages(chunk, metadata, key, row_group, column)
                self.out += self.pad("chunk")
                written.append((chunk, fields_of_chunk, metadata, key, (row_group, column), locations))
            of_group = [entry for entry in written if entry[4][0] == row_group]
            start = next((_first(entry[2]) for entry in of_group if entry[4][1] == 0), len(self.out))
            self.set_row_group(fields, [entry[2] for entry in of_group], start, row_group)
        for entry in written:
            self.bloom_filter(*entry[:5])
        for entry in written:
            self.index(*entry[:5], "column index", entry[0].column_index, 6, 7)
        for chunk, fields, metadata, key, place, locations in written:
            index = _moved(chunk.offset_index, locations)
            self.index(chunk, fields, metadata, key, place, "offset index", index, 4, 5)
        for entry in written:
            self.column_chunk(*entry[:5])
        self.out += self.pad("footer")
        return self.footer(footer)

    def set_row_group(self, fields: Struct, metadata: list[Struct], start: int, ordinal: int) -> None:
        encrypted = self.sealer is not None
        fields.put(2, I64, sum(entry[6] for entry in metadata))
        if encrypted or 5 in fields:
            fields.put(5, I64, start)
        if encrypted or 6 in fields:
            fields.put(6, I64, sum(entry[7] for entry in metadata))
        if self.sealer is not None and not self.sealer.encryption.write_ordinals:
            fields.remove(7)
        elif encrypted or 7 in fields:
            fields.put(7, I16, ordinal)

    def bloom_filter(
        self, chunk: Chunk, _fields: Struct, metadata: Struct, key: bytes | None, place: tuple[int, int]
    ) -> None:
        has_length = 15 in metadata or key is not None
        metadata.remove(14, 15)
        if chunk.bloom_header is None or chunk.bloom_bitset is None:
            return
        offset = len(self.out)
        self.out += self.module("Bloom filter header", key, chunk.bloom_header, *place)
        bitset = chunk.bloom_bitset
        if key is not None:
            assert self.sealer is not None
            bitset = self.sealer.seal("Bloom filter bitset", key, bitset, *place)
        self.out += bitset
        metadata.put(14, I64, offset)
        if has_length:
            metadata.put(15, I32, len(self.out) - offset)

    def index(
        self,
        _chunk: Chunk,
        fields: Struct,
        _metadata: Struct,
        key: bytes | None,
        place: tuple[int, int],
        kind: str,
        index: Struct | None,
        offset_field: int,
        length_field: int,
    ) -> None:
        fields.remove(offset_field, length_field)
        if index is not None:
            module = self.module(kind, key, index, *place)
            fields.put(offset_field, I64, len(self.out)).put(length_field, I32, len(module))
            self.out += module

    def column_chunk(
        self, chunk: Chunk, fields: Struct, metadata: Struct, key: bytes | None, place: tuple[int, int]
    ) -> None:
        """What the footer says of a chunk, whose metadata are complete now."""
        fields.remove(3, 8, 9).put(2, I64, 0)
        if key is None:
            fields.put(3, STRUCT, metadata)
            return
        assert self.sealer is not None
        encryption = self.sealer.encryption
        _, is_own = self.key_of(chunk.path)
        crypto = Struct()
        if is_own:
            crypto.put(1, LIST, Sequence(BINARY, list(metadata[3])))
            key_metadata = _lookup(encryption.column_key_metadata, chunk.path)
            if key_metadata is not None:
                crypto.put(2, BINARY, key_metadata)
        fields.put(8, STRUCT, Struct().put(2 if is_own else 1, STRUCT, crypto))
        if is_own or encryption.plaintext_footer:
            fields.put(9, BINARY, self.sealer.seal_struct("column metadata", key, metadata, *place))
        if encryption.plaintext_footer:
            fields.put(3, STRUCT, metadata.without(*encryption.hidden_fields))
        elif not is_own:
            fields.put(3, STRUCT, metadata)

    def footer(self, footer: Struct) -> bytes:
        sealer = self.sealer
        if sealer is None:
            self.finish(footer)
            tail = encode(footer)
        elif sealer.encryption.plaintext_footer:
            footer.put(8, STRUCT, sealer.algorithm())
            if sealer.encryption.footer_key_metadata is not None:
                footer.put(9, BINARY, sealer.encryption.footer_key_metadata)
            tail = encode(footer)
            tail += sealer.sign(tail)
        else:
            crypto = Struct().put(1, STRUCT, sealer.algorithm())
            if sealer.encryption.footer_key_metadata is not None:
                crypto.put(2, BINARY, sealer.encryption.footer_key_metadata)
            tail = encode(crypto) + sealer.seal_struct("footer", sealer.encryption.footer_key, footer)
        self.out += tail + struct.pack("<I", len(tail)) + self.magic
        return bytes(self.out)


def _first(metadata: Struct) -> int:
    """Offset of a chunk's first page."""
    return int(metadata.get(11, metadata[9]))


def _moved(index: Struct | None, locations: list[list[int]]) -> Struct | None:
    """The offset index with its pages where they lie now."""
    if index is None:
        return None
    moved = copy.deepcopy(index)
    for entry, (offset, size) in zip(moved[1], locations, strict=True):
        entry.put(1, I64, offset).put(2, I32, size)
    return moved


def write_plain(
    file: File,
    *,
    pad: Callable[[str], bytes] = lambda _: b"",
    finish: Callable[[Struct], object] = lambda _: None,
    backwards: bool = False,
) -> bytes:
    """The plaintext file that holds what a file holds.

    `pad` answers bytes to put before a "row group", behind a "chunk" or before the "footer"; `finish` may change the
    footer at last, when every offset is known. `backwards` puts the chunks of a row group in the reverse order.
    """
    return _Layout(file, None, pad, finish, backwards).write()


def encrypt_reference(plain: bytes | File, encryption: Encryption) -> bytes:
    """A plaintext file, encrypted; the same bytes for the same arguments, so never use it for real data."""
    file = plain if isinstance(plain, File) else open_plain(plain, strict=False)
    return _Layout(file, _Sealer(encryption)).write()
