"""What the reference reader answers: a Parquet file taken apart, and the modules that it was sealed in."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from tests.parquet.reference_thrift import Struct

DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)
DATA_PAGES = (DATA_PAGE, DATA_PAGE_V2)
PLAIN_DICTIONARY, RLE_DICTIONARY = 2, 8
DICTIONARY_ENCODINGS = (PLAIN_DICTIONARY, RLE_DICTIONARY)
MAX_ORDINAL = 0x7FFF
GCM, CTR_PAGES = "AES_GCM_V1", "AES_GCM_CTR_V1"

# The number that stands for each kind of module in its AAD.
MODULE_TYPES = {
    "footer": 0,
    "footer signature": 0,
    "column metadata": 1,
    "data page": 2,
    "dictionary page": 3,
    "data page header": 4,
    "dictionary page header": 5,
    "column index": 6,
    "offset index": 7,
    "Bloom filter header": 8,
    "Bloom filter bitset": 9,
}


class Refused(Exception):
    """The file cannot be what it should be; the text names the module or structure."""


class NotAuthentic(Refused):
    """A tag does not fit its key, AAD and ciphertext."""


class Inconsistent(Refused):
    """Everything opens, and one part of the file contradicts another."""


@dataclass(frozen=True)
class Module:
    """A piece of an encrypted file that was sealed as one: where it lies, and with what it opens."""

    kind: str
    offset: int
    length: int
    key: bytes
    aad: bytes
    row_group: int | None = None
    column: int | None = None
    page: int | None = None
    is_ctr: bool = False

    def __str__(self) -> str:
        return module_name(self.kind, self.row_group, self.column, self.page)


@dataclass
class Page:
    """A page: its header, and its bytes as its codec made them."""

    header: Struct
    body: bytes
    offset: int
    header_size: int
    body_size: int
    ordinal: int | None = None
    repetition_levels: bytes = b""
    definition_levels: bytes = b""
    # Of an encrypted V2 page with levels: "java" (levels before the module) or "arrow" (inside it).
    v2_form: str | None = None
    header_padding: int = 0

    @property
    def type(self) -> int:
        return int(self.header[1])

    @property
    def stored_size(self) -> int:
        """Bytes of header and body together, as they lie in the file."""
        return self.header_size + self.body_size

    @property
    def encoding(self) -> int | None:
        """The encoding of the values; None for a page of an unknown type."""
        number, encoding = {DATA_PAGE: (5, 2), DICTIONARY_PAGE: (7, 2), DATA_PAGE_V2: (8, 4)}.get(self.type, (0, 0))
        return int(self.header[number][encoding]) if number else None

    @property
    def num_values(self) -> int:
        number = {DATA_PAGE: 5, DATA_PAGE_V2: 8}.get(self.type)
        return int(self.header[number][1]) if number else 0


@dataclass
class Chunk:
    """A column chunk; `metadata` is the complete one, decrypted if it had to be."""

    path: tuple[str, ...]
    chunk: Struct
    metadata: Struct
    # "plaintext", "footer key" or "column key"; None for a file without encryption.
    encryption: str | None = None
    key_metadata: bytes | None = None
    # What a plaintext footer shows of an encrypted column.
    redacted: Struct | None = None
    pages: list[Page] = field(default_factory=list)
    column_index: Struct | None = None
    offset_index: Struct | None = None
    bloom_header: Struct | None = None
    bloom_bitset: bytes | None = None
    # Whether no key was given for it; nothing of it but the footer's part is known then.
    is_locked: bool = False

    @property
    def data_pages(self) -> list[Page]:
        return [page for page in self.pages if page.type in DATA_PAGES]


@dataclass
class RowGroup:
    """A row group; `fields` is its struct in the footer."""

    fields: Struct
    chunks: list[Chunk] = field(default_factory=list)


@dataclass
class File:
    """All of a Parquet file."""

    data: bytes
    footer: Struct
    row_groups: list[RowGroup] = field(default_factory=list)
    # "none", "encrypted" or "plaintext"; the last is that of an encrypted file whose footer is signed.
    footer_mode: str = "none"
    algorithm: str | None = None
    # The prefix in use, and whether the file holds it.
    aad_prefix: bytes = b""
    is_prefix_stored: bool = False
    supply_aad_prefix: bool | None = None
    aad_file_unique: bytes = b""
    footer_key_metadata: bytes | None = None
    footer_offset: int = 0
    modules: list[Module] = field(default_factory=list)
    # What the pages, indexes and Bloom filters cover: begin, end and name.
    regions: list[tuple[int, int, str]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    # Whether the pages are CTR although the footer says GCM, as Arrow C++ wrote it.
    says_gcm_for_ctr: bool = False

    @property
    def chunks(self) -> list[Chunk]:
        """The chunks of all row groups."""
        return [chunk for group in self.row_groups for chunk in group.chunks]

    def gaps(self) -> list[tuple[int, int]]:
        """Begin and end of what lies between the magic and the footer and belongs to nothing."""
        found, position = [], 4
        for begin, end, _ in [*sorted(self.regions), (self.footer_offset, self.footer_offset, "footer")]:
            if begin > position:
                found.append((position, begin))
            position = max(position, end)
        return found

    def find_modules(self, kind: str) -> list[Module]:
        """The modules of a kind, in the order in which they were opened."""
        return [module for module in self.modules if module.kind == kind]


def module_name(kind: str, row_group: int | None = None, column: int | None = None, page: int | None = None) -> str:
    ordinals = (("row group", row_group), ("column", column), ("page", page))
    return ", ".join([kind, *(f"{name} {number}" for name, number in ordinals if number is not None)])


def module_aad(
    file_aad: bytes, kind: str, row_group: int | None = None, column: int | None = None, page: int | None = None
) -> bytes:
    """The AAD of a module; ordinals that its kind does not have are None."""
    ordinals = [number for number in (row_group, column, page) if number is not None]
    for number in ordinals:
        if not 0 <= number <= MAX_ORDINAL:
            raise Refused(f"{module_name(kind, row_group, column, page)}: ordinal {number} is not 0 to {MAX_ORDINAL}")
    return file_aad + bytes([MODULE_TYPES[kind]]) + b"".join(struct.pack("<h", number) for number in ordinals)
