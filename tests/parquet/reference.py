"""A slow and obvious reader of Parquet Modular Encryption, for checking other implementations.

Nothing here is shared with the ``ags1`` package: the two meet only in the tests. AES comes from the ``cryptography``
package; everything else is written out step by step. Values are never decoded: a page is a header and bytes.

``open_encrypted`` opens every module of a file, and ``open_plain`` walks a plaintext file the same way; both answer
a ``File``. What a module's tag or structure forbids is refused at once. What contradicts something else in the
file (a size, an offset, a CRC, an ordinal) is collected in ``File.complaints``, and refused at the end unless
``strict`` is off.
"""

from __future__ import annotations

import itertools
import re
import struct
import zlib
from collections.abc import Callable, Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from tests.parquet.reference_model import (
    CTR_PAGES,
    DATA_PAGE,
    DATA_PAGE_V2,
    DATA_PAGES,
    DICTIONARY_ENCODINGS,
    DICTIONARY_PAGE,
    GCM,
    Chunk,
    File,
    Inconsistent,
    Module,
    NotAuthentic,
    Page,
    Refused,
    RowGroup,
    module_aad,
    module_name,
)
from tests.parquet.reference_thrift import Struct, ThriftError, decode

KeySource = bytes | Callable[[bytes | None], bytes]
ColumnKeySource = Mapping[tuple[str, ...] | str, bytes] | Callable[[tuple[str, ...], bytes | None], bytes | None]


def _parse(data: bytes, position: int, what: str) -> tuple[Struct, int]:
    try:
        return decode(data, position)
    except ThriftError as error:
        raise Refused(f"{what}: {error}") from error


class _Opener:
    """Opens the modules of one file and keeps account of them."""

    def __init__(self, file: File, file_aad: bytes, footer_key: bytes) -> None:
        self.file = file
        self.data = file.data
        self.file_aad = file_aad
        self.footer_key = footer_key
        self.nonces: set[tuple[bytes, bytes]] = set()

    def open(
        self,
        kind: str,
        key: bytes,
        offset: int,
        row_group: int | None = None,
        column: int | None = None,
        page: int | None = None,
        *,
        ctr: bool = False,
        limit: int | None = None,
    ) -> tuple[bytes, int]:
        """The plaintext of the module at an offset, and the offset behind it, which `limit` must not be before."""
        name = module_name(kind, row_group, column, page)
        limit = len(self.data) if limit is None else limit
        if not 4 <= offset <= limit - 4:
            raise Refused(f"{name}: no module fits at offset {offset}")
        (length,) = struct.unpack_from("<I", self.data, offset)
        end = offset + 4 + length
        if length < (12 if ctr else 28) or end > limit:
            raise Refused(f"{name}: the module at {offset} says a length of {length}, which ends behind {limit}")
        nonce, sealed = self.data[offset + 4 : offset + 16], self.data[offset + 16 : end]
        aad = module_aad(self.file_aad, kind, row_group, column, page)
        if ctr:
            decryptor = Cipher(AES(key), CTR(nonce + b"\x00\x00\x00\x01")).decryptor()
            plaintext = decryptor.update(sealed) + decryptor.finalize()
        else:
            try:
                plaintext = AESGCM(key).decrypt(nonce, sealed, aad)
            except InvalidTag:
                raise NotAuthentic(f"{name}: the tag of the module at {offset} does not fit") from None
        self.record(Module(kind, offset, 4 + length, key, aad, row_group, column, page, ctr), nonce)
        return plaintext, end

    def record(self, module: Module, nonce: bytes) -> None:
        if (module.key, nonce) in self.nonces:
            self.file.complaints.append(f"{module}: its nonce was used before with the same key")
        self.nonces.add((module.key, nonce))
        self.file.modules.append(module)

    def open_struct(
        self, kind: str, key: bytes, offset: int, row_group: int, column: int, page: int | None = None
    ) -> tuple[Struct, int, int]:
        """The struct of a module, the offset behind the module, and how many zeros pad the struct in it."""
        plaintext, end = self.open(kind, key, offset, row_group, column, page)
        name = module_name(kind, row_group, column, page)
        decoded, used = _parse(plaintext, 0, name)
        if plaintext[used:].strip(b"\x00"):
            raise Refused(f"{name}: something other than zeros behind the struct")
        return decoded, end, len(plaintext) - used


# -- footers -------------------------------------------------------------------------------------------------


def _footer_range(data: bytes, magic: bytes) -> tuple[int, int]:
    """Where the footer begins and ends, its length word excluded."""
    if len(data) < 12 or data[:4] != magic or data[-4:] != magic:
        raise Refused(f"file: does not begin and end with {magic.decode()}")
    end = len(data) - 8
    (length,) = struct.unpack_from("<I", data, end)
    if not 0 < length <= end - 4:
        raise Refused(f"footer: its length {length} does not fit in a file of {len(data)} bytes")
    return end - length, end


def _resolve_key(source: KeySource, key_metadata: bytes | None) -> bytes:
    return source(key_metadata) if callable(source) else bytes(source)


def _read_algorithm(file: File, union: Struct, supplied: bytes | None) -> None:
    """Take the algorithm and what belongs to the AAD from the EncryptionAlgorithm union."""
    names = {1: GCM, 2: CTR_PAGES}
    if len(union.fields) != 1 or next(iter(union.fields)) not in names:
        raise Refused(f"encryption algorithm: an unknown one, {list(union.fields)}")
    ((number, (_, arm)),) = union.fields.items()
    file.algorithm = names[number]
    stored = arm.get(1)
    file.is_prefix_stored = stored is not None
    file.supply_aad_prefix = arm.get(3)
    file.aad_file_unique = arm.get(2) or b""
    if not file.aad_file_unique:
        file.complaints.append("encryption algorithm: no aad_file_unique")
    if stored is not None:
        if supplied is not None and supplied != stored:
            raise Refused("encryption algorithm: the stored AAD prefix is not the given one")
        if file.supply_aad_prefix:
            file.complaints.append("encryption algorithm: supply_aad_prefix although the prefix is stored")
    elif file.supply_aad_prefix and supplied is None:
        raise Refused("encryption algorithm: the file wants an AAD prefix, and none is given")
    elif not file.supply_aad_prefix and supplied is not None:
        raise Refused("encryption algorithm: an AAD prefix is given, and the file uses none")
    file.aad_prefix = stored if stored is not None else supplied or b""


def _open_encrypted_footer(file: File, footer_key: KeySource, supplied: bytes | None) -> _Opener:
    begin, end = _footer_range(file.data, b"PARE")
    crypto, position = _parse(file.data, begin, "FileCryptoMetaData")
    file.footer_mode, file.footer_offset = "encrypted", begin
    _read_algorithm(file, crypto[1], supplied)
    file.footer_key_metadata = crypto.get(2)
    key = _resolve_key(footer_key, file.footer_key_metadata)
    opener = _Opener(file, file.aad_prefix + file.aad_file_unique, key)
    plaintext, behind = opener.open("footer", key, position, limit=end)
    if behind != end:
        raise Refused(f"footer: its module ends at {behind}, not at {end}")
    file.footer, used = _parse(plaintext, 0, "footer")
    if plaintext[used:].strip(b"\x00"):
        raise Refused("footer: something other than zeros behind the struct")
    for number in (8, 9):
        if number in file.footer:
            file.complaints.append(f"footer: an encrypted one has field {number}")
    return opener


def _open_signed_footer(file: File, footer_key: KeySource, supplied: bytes | None) -> _Opener:
    begin, end = _footer_range(file.data, b"PAR1")
    file.footer, behind = _parse(file.data, begin, "footer")
    file.footer_mode, file.footer_offset = "plaintext", begin
    if 8 not in file.footer:
        raise Refused("footer: the file is not encrypted")
    if end - behind != 28:
        raise Refused(f"footer signature: {end - behind} bytes behind the footer, not 28")
    _read_algorithm(file, file.footer[8], supplied)
    file.footer_key_metadata = file.footer.get(9)
    key = _resolve_key(footer_key, file.footer_key_metadata)
    opener = _Opener(file, file.aad_prefix + file.aad_file_unique, key)
    nonce, tag = file.data[behind : behind + 12], file.data[behind + 12 : end]
    aad = module_aad(opener.file_aad, "footer signature")
    if AESGCM(key).encrypt(nonce, file.data[begin:behind], aad)[-16:] != tag:
        raise NotAuthentic(f"footer signature: the tag at {behind + 12} does not fit")
    opener.record(Module("footer signature", behind, 28, key, aad), nonce)
    return opener


# -- chunks --------------------------------------------------------------------------------------------------


def _text(path: Struct, number: int) -> tuple[str, ...]:
    return tuple(part.decode("utf-8", "surrogateescape") for part in path[number])


def _column_key(source: ColumnKeySource | None, path: tuple[str, ...], key_metadata: bytes | None) -> bytes | None:
    if source is None:
        return None
    if callable(source):
        return source(path, key_metadata)
    for name, key in source.items():
        if path == name or (isinstance(name, str) and ".".join(path) == name):
            return bytes(key)
    return None


class _ChunkReader:
    """Reads one chunk: `key` is None if it is not encrypted."""

    def __init__(self, file: File, chunk: Chunk, opener: _Opener | None, key: bytes | None, place: tuple[int, int]):
        self.file, self.chunk, self.key = file, chunk, key
        self.opener = opener
        self.row_group, self.column = place
        self.ctr = file.algorithm == CTR_PAGES

    def name(self, what: str, page: int | None = None) -> str:
        return module_name(what, self.row_group, self.column, page) + f" ({'.'.join(self.chunk.path)})"

    def complain(self, what: str, text: str, page: int | None = None) -> None:
        self.file.complaints.append(f"{self.name(what, page)}: {text}")

    def note_region(self, what: str, begin: int, end: int) -> None:
        if end > self.file.footer_offset:
            raise Refused(f"{self.name(what)}: it reaches into the footer")
        self.file.regions.append((begin, end, self.name(what)))

    def read_struct(self, kind: str, offset: int, page: int | None = None) -> tuple[Struct, int, int]:
        if self.opener is not None and self.key is not None:
            return self.opener.open_struct(kind, self.key, offset, self.row_group, self.column, page)
        if not 4 <= offset < self.file.footer_offset:
            raise Refused(f"{self.name(kind, page)}: offset {offset} is outside the file's data")
        return *_parse(self.file.data, offset, self.name(kind, page)), 0

    def start(self) -> int:
        """Offset of the first page."""
        offsets = [self.chunk.metadata[9], self.chunk.metadata.get(11, 0)]
        return min((offset for offset in offsets if offset > 0), default=0)

    def read_pages(self) -> None:
        metadata = self.chunk.metadata
        if not metadata[7]:
            # Without pages the offsets mean nothing: Arrow C++ leaves 0 there.
            return
        position = self.start()
        end = position + metadata[7]
        data_pages = 0
        while position < end:
            page = self.read_page(position, data_pages)
            data_pages += page.type in DATA_PAGES
            position += page.stored_size
            self.chunk.pages.append(page)
            self.note_region("page", page.offset, position)
        if position != end:
            self.complain("column chunk", f"total_compressed_size ends at {end}, its pages at {position}")

    def read_header(self, position: int, ordinal: int) -> tuple[Struct, int, int]:
        """The page header, the offset behind it, and its padding."""
        if self.key is None:
            return self.read_struct("data page header", position)
        may_be_dictionary = not self.chunk.pages
        says_dictionary = may_be_dictionary and self.chunk.metadata.get(11, 0) > 0
        if says_dictionary:
            header, end, padding = self.read_struct("dictionary page header", position)
        else:
            try:
                header, end, padding = self.read_struct("data page header", position, ordinal)
            except NotAuthentic:
                if not may_be_dictionary:
                    raise
                header, end, padding = self.read_struct("dictionary page header", position)
                self.complain("dictionary page header", "the first page is one, but dictionary_page_offset is not set")
        is_dictionary = self.file.modules[-1].kind == "dictionary page header"
        if is_dictionary != (header[1] == DICTIONARY_PAGE) or (not is_dictionary and header[1] not in DATA_PAGES):
            raise Refused(f"{self.file.modules[-1]}: it is the header of a page of type {header[1]}")
        return header, end, padding

    def read_page(self, position: int, ordinal: int) -> Page:
        header, begin, padding = self.read_header(position, ordinal)
        is_dictionary = header[1] == DICTIONARY_PAGE
        what, number = ("dictionary page", None) if is_dictionary else ("data page", ordinal)
        size = header[3]
        if size < 0 or begin + size > self.file.footer_offset:
            raise Refused(f"{self.name(what, number)}: compressed_page_size {size} does not fit")
        stored = self.file.data[begin : begin + size]
        if 4 in header and zlib.crc32(stored) != header[4] & 0xFFFFFFFF:
            self.complain(what, "its CRC is not that of the bytes as they are stored", number)
        page = Page(header, stored, position, begin - position, size, number, header_padding=padding)
        repetition = definition = 0
        if page.type == DATA_PAGE_V2:
            definition, repetition = header[8][5], header[8][6]
        if self.key is not None:
            self.open_body(page, begin, what, repetition + definition)
        elif min(repetition, definition) < 0 or repetition + definition > size:
            raise Refused(f"{self.name(what, number)}: levels of {repetition} + {definition} bytes in a page of {size}")
        if page.type == DATA_PAGE_V2:
            body = page.body
            page.repetition_levels, page.definition_levels = body[:repetition], body[repetition:][:definition]
            page.body = body[repetition + definition :]
        return page

    def open_body(self, page: Page, begin: int, what: str, levels: int) -> None:
        """Open the module of a page, in place of its stored bytes."""
        end = begin + page.body_size

        def open_at(skip: int) -> bytes:
            assert self.opener is not None
            assert self.key is not None
            place = (self.row_group, self.column, page.ordinal)
            try:
                plaintext, behind = self.opener.open(what, self.key, begin + skip, *place, ctr=self.ctr, limit=end)
            except Refused:
                # A short CTR module has not even the length of a GCM module.
                if not self.may_say_gcm_for_ctr():
                    raise
                plaintext, behind = self.opener.open(what, self.key, begin + skip, *place, ctr=True, limit=end)
                if not self.file.says_gcm_for_ctr:
                    self.complain(what, "it is CTR although the footer says GCM", page.ordinal)
                self.file.says_gcm_for_ctr = True
            if behind != end:
                raise Refused(f"{module_name(what, *place)}: its module ends at {behind}, the page at {end}")
            return self.file.data[begin : begin + skip] + plaintext

        if not levels:
            page.body = open_at(0)
            return
        # Both forms have the same size: the length word tells them apart, and the tag decides.
        (length,) = struct.unpack_from("<I", self.file.data, begin)
        if length == page.body_size - 4:
            try:
                page.body, page.v2_form = open_at(0), "arrow"
                return
            except NotAuthentic:
                pass
        page.body, page.v2_form = open_at(levels), "java"

    def may_say_gcm_for_ctr(self) -> bool:
        """Arrow C++ before 26 names the wrong algorithm in a plaintext footer."""
        said = re.match(rb"parquet-cpp-arrow version (\d+)", self.file.footer.get(6, b""))
        return self.file.footer_mode == "plaintext" and said is not None and int(said[1]) < 26

    def read_indexes(self) -> None:
        for kind, offset_field, length_field, attribute in (
            ("column index", 6, 7, "column_index"),
            ("offset index", 4, 5, "offset_index"),
        ):
            offset = self.chunk.chunk.get(offset_field)
            if offset is None:
                continue
            index, end, _ = self.read_struct(kind, offset)
            if end - offset != self.chunk.chunk.get(length_field):
                self.complain(kind, f"{end - offset} bytes long, not {self.chunk.chunk.get(length_field)}")
            setattr(self.chunk, attribute, index)
            self.note_region(kind, offset, end)

    def read_bloom_filter(self) -> None:
        offset = self.chunk.metadata.get(14)
        if offset is None:
            return
        header, begin, _ = self.read_struct("Bloom filter header", offset)
        size = header[1]
        if self.opener is not None and self.key is not None:
            place = (self.row_group, self.column)
            bitset, end = self.opener.open("Bloom filter bitset", self.key, begin, *place)
        else:
            end = begin + size
            bitset = self.file.data[begin:end]
        if len(bitset) != size:
            raise Refused(f"{self.name('Bloom filter bitset')}: {len(bitset)} bytes, and the header says {size}")
        length = self.chunk.metadata.get(15)
        if length is None and self.key is not None:
            self.complain("Bloom filter header", "bloom_filter_length is not set")
        if length is not None and length != end - offset:
            self.complain("Bloom filter header", f"{end - offset} bytes with its bitset, not {length}")
        self.note_region("Bloom filter", offset, end)
        self.chunk.bloom_header, self.chunk.bloom_bitset = header, bitset

    # -- what must agree -------------------------------------------------------------------------------------

    def check(self) -> None:
        self.check_sizes()
        self.check_dictionary()
        self.check_offset_index()
        pages = len(self.chunk.data_pages)
        if self.chunk.column_index is not None:
            for number in (1, 2, 3, 5):
                if number in self.chunk.column_index and len(self.chunk.column_index[number]) != pages:
                    self.complain("column index", f"its field {number} is not one for each of {pages} pages")

    def check_sizes(self) -> None:
        metadata, pages = self.chunk.metadata, self.chunk.pages
        uncompressed = sum(page.header_size + page.header[2] for page in pages)
        values = sum(page.num_values for page in pages)
        for what, number, expected in (
            ("num_values", 5, values),
            ("total_uncompressed_size", 6, uncompressed),
        ):
            if metadata[number] != expected:
                self.complain("column metadata", f"{what} is {metadata[number]}, its pages have {expected}")
        if self.chunk.data_pages and metadata[9] != self.chunk.data_pages[0].offset:
            first = self.chunk.data_pages[0].offset
            self.complain("column metadata", f"data_page_offset is {metadata[9]}, the first data page is at {first}")
        stats = metadata.get(13)
        if stats is not None:
            counted: dict[tuple[int, int | None], int] = {}
            for page in pages:
                if page.encoding is None:
                    continue
                # Arrow C++ and parquet-java's rewriter count V2 pages as V1 pages.
                key = (DATA_PAGE if page.type == DATA_PAGE_V2 else page.type, page.encoding)
                counted[key] = counted.get(key, 0) + 1
            said: dict[tuple[int, int | None], int] = {}
            for entry in stats:
                key = (DATA_PAGE if entry[1] == DATA_PAGE_V2 else entry[1], entry[2])
                said[key] = said.get(key, 0) + entry[3]
            if counted != {key: number for key, number in said.items() if number}:
                self.complain("column metadata", f"encoding_stats are {said}, the pages are {counted}")

    def check_dictionary(self) -> None:
        """Both ways in which readers foretell that the first page is a dictionary must be right."""
        metadata, pages = self.chunk.metadata, self.chunk.pages
        has_dictionary = bool(pages) and pages[0].type == DICTIONARY_PAGE
        if any(page.type == DICTIONARY_PAGE for page in pages[1:]):
            self.complain("dictionary page", "it is not the first page")
        offset = metadata.get(11)
        if (offset is not None) != has_dictionary or (has_dictionary and offset != pages[0].offset):
            at = f"one at {pages[0].offset}" if has_dictionary else "none"
            self.complain("dictionary page", f"dictionary_page_offset is {offset}, and there is {at}")
        stats = metadata.get(13)
        if stats is not None:
            has_page = any(entry[1] == DICTIONARY_PAGE and entry[3] for entry in stats)
            is_used = any(entry[1] in DATA_PAGES and entry[2] in DICTIONARY_ENCODINGS and entry[3] for entry in stats)
            foretold = has_page and is_used
        else:
            foretold = any(encoding in DICTIONARY_ENCODINGS for encoding in metadata[2])
        uses = any(page.encoding in DICTIONARY_ENCODINGS for page in self.chunk.data_pages)
        # A dictionary that no page uses cannot be foretold by encoding_stats.
        if foretold != has_dictionary and (uses or not has_dictionary):
            self.complain("dictionary page", f"the encodings foretell {foretold}, and it is {has_dictionary}")

    def check_offset_index(self) -> None:
        index, pages = self.chunk.offset_index, self.chunk.data_pages
        if index is None:
            return
        if len(index[1]) != len(pages):
            self.complain("offset index", f"{len(index[1])} entries for {len(pages)} data pages")
        row = 0
        for number, (entry, page) in enumerate(zip(index[1], pages, strict=False)):
            if (entry[1], entry[2]) != (page.offset, page.stored_size):
                self.complain(
                    "offset index",
                    f"says offset {entry[1]} and size {entry[2]}; it is {page.offset} and {page.stored_size}",
                    number,
                )
            if page.type == DATA_PAGE_V2:
                if entry[3] != row:
                    self.complain("offset index", f"first_row_index is {entry[3]}, not {row}", number)
                row += page.header[8][3]
            elif entry[3] < row or (number == 0 and entry[3]):
                self.complain("offset index", f"first_row_index is {entry[3]}, behind {row}", number)
            else:
                # A V1 page does not say how many rows it has.
                row = index[1][number + 1][3] if number + 1 < len(index[1]) else entry[3]


def _read_chunk(
    file: File,
    fields: Struct,
    opener: _Opener | None,
    keys: ColumnKeySource | None,
    place: tuple[int, int],
    skip_missing: bool,
) -> Chunk:
    name = module_name("column metadata", *place)
    crypto, visible, sealed = fields.get(8), fields.get(3), fields.get(9)
    key: bytes | None = None
    chunk = Chunk((), fields, visible or Struct(), None if opener is None else "plaintext")
    if crypto is None:
        if visible is None:
            raise Refused(f"{name}: a plaintext column without its metadata")
        if sealed is not None:
            raise Refused(f"{name}: encrypted_column_metadata in a plaintext column")
    elif opener is None:
        raise Refused(f"{name}: an encrypted column in a plaintext file")
    elif set(crypto.fields) == {1}:
        key, chunk.encryption = opener.footer_key, "footer key"
    elif set(crypto.fields) == {2}:
        chunk.encryption, chunk.key_metadata = "column key", crypto[2].get(2)
        chunk.path = _text(crypto[2], 1)
        key = _column_key(keys, chunk.path, chunk.key_metadata)
        if key is None:
            if not skip_missing:
                raise Refused(f"{name} ({'.'.join(chunk.path)}): no key is given for it")
            chunk.is_locked, chunk.redacted = True, visible
            return chunk
    else:
        raise Refused(f"{name}: unknown ColumnCryptoMetaData {list(crypto.fields)}")
    if opener is not None and key is not None:
        must_be_sealed = chunk.encryption == "column key" or file.footer_mode == "plaintext"
        if (sealed is not None) != must_be_sealed:
            raise Refused(f"{name}: encrypted_column_metadata is {'missing' if must_be_sealed else 'not expected'}")
        if sealed is not None:
            chunk.metadata = _open_column_metadata(opener, sealed, key, place)
            chunk.redacted = visible
            _check_redacted(file, chunk, place)
        elif visible is None:
            raise Refused(f"{name}: missing")
    path = _text(chunk.metadata, 3)
    if chunk.path and chunk.path != path:
        file.complaints.append(f"{name}: path {path}, and in crypto_metadata {chunk.path}")
    chunk.path = path
    reader = _ChunkReader(file, chunk, opener, key, place)
    reader.read_pages()
    reader.read_indexes()
    reader.read_bloom_filter()
    reader.check()
    return chunk


def _open_column_metadata(opener: _Opener, sealed: bytes, key: bytes, place: tuple[int, int]) -> Struct:
    """The struct of encrypted_column_metadata, a module inside the footer."""
    inside = File(b"\x00" * 4 + sealed, Struct())
    nested = _Opener(inside, opener.file_aad, opener.footer_key)
    metadata, end, _ = nested.open_struct("column metadata", key, 4, *place)
    if end != len(inside.data):
        raise Refused(f"{module_name('column metadata', *place)}: {len(inside.data) - end} bytes behind the module")
    # It is found in the file only if the footer is not encrypted.
    at = opener.data.find(sealed, opener.file.footer_offset)
    module = inside.modules[0]
    opener.record(Module(module.kind, at, module.length, key, module.aad, *place), sealed[4:16])
    return metadata


def _check_redacted(file: File, chunk: Chunk, place: tuple[int, int]) -> None:
    name = module_name("column metadata", *place)
    if (chunk.redacted is not None) != (file.footer_mode == "plaintext"):
        file.complaints.append(f"{name}: meta_data of an encrypted column beside a footer that is {file.footer_mode}")
    if chunk.redacted is None:
        return
    if 12 in chunk.redacted:
        file.complaints.append(f"{name}: the plaintext footer shows the statistics of an encrypted column")
    different = [n for n, value in chunk.redacted.fields.items() if chunk.metadata.fields.get(n) != value]
    if different:
        file.complaints.append(f"{name}: fields {different} of the plaintext copy are not those of the encrypted one")


# -- row groups and files ------------------------------------------------------------------------------------


def _check_row_group(file: File, group: RowGroup, position: int) -> None:
    """Sums, ordinal and file_offset of a row group."""
    name, fields = module_name("row group") + f" {position}", group.fields
    ordinal = fields.get(7)
    if ordinal is not None and ordinal != position:
        file.complaints.append(f"{name}: its ordinal is {ordinal}")
    if any(chunk.is_locked for chunk in group.chunks):
        return
    sums = ((2, "total_byte_size", 6), (6, "total_compressed_size", 7))
    for number, what, metadata_number in sums:
        total = sum(chunk.metadata[metadata_number] for chunk in group.chunks)
        if fields.get(number, total) != total:
            file.complaints.append(f"{name}: {what} is {fields[number]}, its columns have {total}")
    pages = group.chunks[0].pages if group.chunks else []
    if not pages:
        return
    if file.footer_mode != "none" and 5 not in fields:
        file.complaints.append(f"{name}: file_offset is not set")
    if 5 in fields and fields[5] != pages[0].offset:
        file.complaints.append(f"{name}: file_offset is {fields[5]}, its first page is at {pages[0].offset}")


def _check_overlaps(file: File) -> None:
    for (_, end, name), (begin, _, other) in itertools.pairwise(sorted(file.regions)):
        if begin < end:
            file.complaints.append(f"{other}: overlaps {name}")


def _read_row_groups(file: File, opener: _Opener | None, keys: ColumnKeySource | None, skip_missing: bool) -> None:
    for row_group, fields in enumerate(file.footer[4]):
        group = RowGroup(fields)
        file.row_groups.append(group)
        ordinal = fields.get(7, row_group) if opener is not None else row_group
        for column, chunk_fields in enumerate(fields[1]):
            place = (ordinal, column)
            group.chunks.append(_read_chunk(file, chunk_fields, opener, keys, place, skip_missing))
        _check_row_group(file, group, row_group)
    if (rows := sum(fields[3] for fields in file.footer[4])) != file.footer[3]:
        file.complaints.append(f"footer: num_rows is {file.footer[3]}, its row groups have {rows}")


def _finish(file: File, strict: bool) -> File:
    _check_overlaps(file)
    if strict and file.complaints:
        raise Inconsistent("\n".join(file.complaints))
    return file


def open_encrypted(
    data: bytes,
    footer_key: KeySource,
    column_keys: ColumnKeySource | None = None,
    aad_prefix: bytes | None = None,
    *,
    strict: bool = True,
    skip_missing: bool = False,
) -> File:
    """Open every module of an encrypted file.

    Keys are bytes by path (a tuple, or its parts joined by dots), or functions: of the key metadata for the footer,
    of the path and the key metadata for a column. With `skip_missing` a column without a key is left alone.
    """
    file = File(bytes(data), Struct())
    if data[:4] == b"PARE":
        opener = _open_encrypted_footer(file, footer_key, aad_prefix)
    else:
        opener = _open_signed_footer(file, footer_key, aad_prefix)
    _read_row_groups(file, opener, column_keys, skip_missing)
    return _finish(file, strict)


def open_plain(data: bytes, *, strict: bool = True) -> File:
    """Walk a file that is not encrypted in the same way."""
    file = File(bytes(data), Struct())
    begin, end = _footer_range(file.data, b"PAR1")
    file.footer, behind = _parse(file.data, begin, "footer")
    file.footer_offset = begin
    if 8 in file.footer or 9 in file.footer:
        raise Refused("footer: the file is encrypted, or says so")
    if behind != end:
        raise Refused(f"footer: {end - behind} bytes behind it")
    _read_row_groups(file, None, None, False)
    return _finish(file, strict)
