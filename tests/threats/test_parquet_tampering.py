"""Whoever can change an encrypted Parquet file, but has no key: bits, pages, chunks, footers, whole files.

Each change is refused by everything that reads the file, with the module named, and no target appears.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ags1
from ags1 import parquet
from tests.checks import KEYS, OTHER_KEY, flip
from tests.parquet import reference
from tests.parquet.reference_model import Module
from tests.parquet.reference_thrift import Struct, decode, encode

FOOTER_KEY, COLUMN_KEY, PREFIX = KEYS[16], OTHER_KEY, b"lake/table/file"
GCM, CTR = "AES_GCM_V1", "AES_GCM_CTR_V1"
DECRYPTION = parquet.DecryptionConfig(FOOTER_KEY, column_keys={"number": COLUMN_KEY})


@functools.cache
def plain(first: int = 0, *, checksum: bool = False) -> bytes:
    """Two row groups of three columns; all pages of "number" and "same" have one size."""
    rows = range(first, first + 600)
    table = pa.table(
        {"number": pa.array(rows, pa.int64()), "same": pa.array(rows, pa.int64()), "word": [f"w{n % 5}" for n in rows]},
        schema=pa.schema(
            [pa.field("number", pa.int64(), False), pa.field("same", pa.int64(), False), ("word", pa.string())]
        ),
    )
    made = io.BytesIO()
    pq.write_table(
        table, made, row_group_size=300, data_page_size=800, write_batch_size=100, compression="none",
        use_dictionary=["word"], write_page_index=True, write_page_checksum=checksum,
        bloom_filter_options={"number": {"ndv": 300, "fpp": 0.1}, "same": {"ndv": 300, "fpp": 0.1}},
    )  # fmt: skip
    return made.getvalue()


def encrypted(data: bytes, algorithm: str = GCM, *, plaintext_footer: bool = False, **options: Any) -> bytes:
    sink = io.BytesIO()
    config = parquet.EncryptionConfig(
        FOOTER_KEY,
        column_keys={"number": COLUMN_KEY},
        encrypt_all=True,
        algorithm=algorithm,
        plaintext_footer=plaintext_footer,
        **options,
    )
    parquet.encrypt_file(data, sink, config)
    return sink.getvalue()


@functools.cache
def file(algorithm: str = GCM, plaintext_footer: bool = False, checksum: bool = False) -> bytes:
    return encrypted(plain(checksum=checksum), algorithm, plaintext_footer=plaintext_footer)


def opened(data: bytes) -> reference.File:
    return reference.open_encrypted(data, FOOTER_KEY, {"number": COLUMN_KEY})


def view_all(path: Path, directory: Path) -> None:
    with parquet.open(path, DECRYPTION) as view:
        view.read()


READERS: dict[str, Callable[[Path, Path], object]] = {
    "decrypt_file": lambda path, directory: parquet.decrypt_file(path, directory / "out", DECRYPTION, threads=2),
    "decrypt_file of memory": lambda path, directory: parquet.decrypt_file(
        path.read_bytes(), directory / "out", DECRYPTION
    ),
    "rekey_file": lambda path, directory: parquet.rekey_file(
        path, directory / "out", DECRYPTION, parquet.EncryptionConfig(KEYS[32], encrypt_all=True)
    ),
    "open": view_all,
}


def refused(data: bytes, directory: Path, expected: str, *errors: type[Exception]) -> None:
    """Every reader refuses the file with a message that has `expected`, and leaves no target."""
    path = directory / "lake.parquet"
    path.write_bytes(data)
    for name, read in READERS.items():
        with pytest.raises(errors or ags1.AuthenticationError) as caught:
            read(path, directory)
        assert expected in str(caught.value), f"{name}: {caught.value}"
        assert os.listdir(directory) == ["lake.parquet"], f"{name} left something behind"


def name_of(module: Module) -> str:
    """What messages call a module."""
    names = ("number", "same", "word")
    if module.kind in ("footer", "footer signature"):
        return "footer"
    kind = module.kind
    if kind.endswith("page header"):
        kind = f"header of {kind.removesuffix(' header')}"
    page = "" if module.page is None else f" {module.page}"
    assert module.column is not None
    return f"{kind}{page} of column {names[module.column]!r} in row group {module.row_group}"


KINDS = (
    "footer", "footer signature", "column metadata", "data page", "dictionary page", "data page header",
    "dictionary page header", "column index", "offset index", "Bloom filter header", "Bloom filter bitset",
)  # fmt: skip


# -- bits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plaintext_footer", [False, True], ids=["PARE", "PAR1"])
@pytest.mark.parametrize("algorithm", [GCM, CTR])
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_in_each_kind_of_module(
    kind: str, algorithm: str, plaintext_footer: bool, tmp_path: Path
) -> None:
    data = file(algorithm, plaintext_footer)
    modules = [module for module in opened(data).find_modules(kind) if module.offset > 0 and not module.is_ctr]
    exists = {
        "footer": not plaintext_footer,
        "footer signature": plaintext_footer,
        # In an encrypted footer it is a module in a module.
        "column metadata": plaintext_footer,
        "data page": algorithm == GCM,
        "dictionary page": algorithm == GCM,
    }
    assert bool(modules) == exists.get(kind, True)
    for module in {modules[0], modules[-1]} if modules else ():
        skip = 0 if kind == "footer signature" else 4
        for position in (skip, skip + 12, module.length // 2, module.length - 1):
            # The bits of metadata in a signed footer are the signature's first.
            expected = "signed footer" if kind == "column metadata" else name_of(module)
            refused(flip(data, module.offset + position, 5), tmp_path, expected)


@pytest.mark.parametrize("algorithm", [GCM, CTR])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("footer signature", "column metadata")])
def test_a_flipped_bit_in_the_length_word_of_each_kind_of_module(kind: str, algorithm: str, tmp_path: Path) -> None:
    data = file(algorithm)
    modules = opened(data).find_modules(kind)
    for module in (modules[0], modules[-1]):
        for position in range(4):
            changed = flip(data, module.offset + position, 7)
            # A neighbour may be what does not fit then.
            column = name_of(module).partition(" of column ")[2] or "footer"
            refused(changed, tmp_path, column, ags1.FormatError, ags1.AuthenticationError)


def test_every_byte_between_the_magics_counts(tmp_path: Path) -> None:
    # Nothing is in the file but modules, and FileCryptoMetaData, which all AADs depend on.
    data = file()
    path = tmp_path / "lake.parquet"
    for position in [*range(4, len(data) - 8, 29), *range(len(data) - 900, len(data) - 8, 3)]:
        path.write_bytes(flip(data, position, position % 8))
        with pytest.raises((ags1.AuthenticationError, ags1.FormatError, ags1.KeyAccessError, ValueError)):
            parquet.decrypt_file(path, tmp_path / "out", DECRYPTION, threads=1)
    assert os.listdir(tmp_path) == ["lake.parquet"]


def test_a_cut_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    data = file()
    for end in [*range(20), *range(20, len(data), 499), *range(len(data) - 20, len(data))]:
        refused(data[:end], tmp_path, "", ags1.FormatError)


# -- pages without tags --------------------------------------------------------------------------------------


def test_contents_of_ctr_pages_are_not_authenticated_and_the_documentation_says_so(tmp_path: Path) -> None:
    data = file(CTR)
    before = [page.body for chunk in opened(data).chunks for page in chunk.pages]
    modules = [module for module in opened(data).modules if module.is_ctr]
    assert {module.kind for module in modules} == {"data page", "dictionary page"}
    path = tmp_path / "lake.parquet"
    for module in (modules[0], modules[-1]):
        path.write_bytes(flip(data, module.offset + 16 + 3, 2))
        parquet.decrypt_file(path, tmp_path / "out", DECRYPTION)
        view_all(path, tmp_path)
        made = reference.open_plain((tmp_path / "out").read_bytes())
        after = [page.body for chunk in made.chunks for page in chunk.pages]
        changed = [number for number, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
        assert len(changed) == 1, "a bit was changed and nothing came of it"
        assert after[changed[0]] == flip(before[changed[0]], 3, 2), "an attacker chooses which bit changes"
    for documented in (parquet.decrypt_file, parquet.ParquetView if hasattr(parquet, "ParquetView") else parquet.open):
        assert "AES_GCM_CTR_V1" in str(documented.__doc__), f"{documented} does not say what is not authenticated"


def test_checksums_of_ctr_pages_find_accidents(tmp_path: Path) -> None:
    data = file(CTR, checksum=True)
    module = opened(data).find_modules("data page")[3]
    refused(
        flip(data, module.offset + 20),
        tmp_path,
        f"{name_of(module)}: its CRC does not match its bytes",
        ags1.FormatError,
    )


# -- what is moved -------------------------------------------------------------------------------------------


def exchanged(data: bytes, first: tuple[int, int], second: tuple[int, int]) -> bytes:
    """The data with two ranges (offset, length) exchanged; they may have different lengths."""
    (a, n), (b, m) = sorted([first, second])
    assert a + n <= b
    return data[:a] + data[b : b + m] + data[a + n : b] + data[a : a + n] + data[b + m :]


def whole_page(document: reference.File, row_group: int, column: int, number: int) -> tuple[int, int]:
    page = document.row_groups[row_group].chunks[column].pages[number]
    return page.offset, page.stored_size


@pytest.mark.parametrize("algorithm", [GCM, CTR])
def test_pages_exchanged_within_a_chunk(algorithm: str, tmp_path: Path) -> None:
    data = file(algorithm)
    document = opened(data)
    changed = exchanged(data, whole_page(document, 0, 0, 0), whole_page(document, 0, 0, 2))
    refused(changed, tmp_path, "header of data page 0 of column 'number' in row group 0")


def test_bodies_of_pages_exchanged_within_a_chunk(tmp_path: Path) -> None:
    data = file()
    bodies = [
        module for module in opened(data).find_modules("data page") if (module.row_group, module.column) == (1, 1)
    ]
    assert bodies[0].length == bodies[2].length
    changed = exchanged(data, (bodies[0].offset, bodies[0].length), (bodies[2].offset, bodies[2].length))
    refused(changed, tmp_path, "data page 0 of column 'same' in row group 1: wrong key")


@pytest.mark.parametrize(("one", "other"), [((0, 1), (1, 1)), ((0, 0), (0, 1))], ids=["row groups", "columns"])
def test_pages_exchanged_between_chunks(one: tuple[int, int], other: tuple[int, int], tmp_path: Path) -> None:
    data = file()
    document = opened(data)
    changed = exchanged(data, whole_page(document, *one, 1), whole_page(document, *other, 1))
    refused(changed, tmp_path, f"header of data page 1 of column {('number', 'same')[one[1]]!r} in row group 0")


@pytest.mark.parametrize("algorithm", [GCM, CTR])
def test_chunks_exchanged_between_row_groups(algorithm: str, tmp_path: Path) -> None:
    data = file(algorithm)
    groups = opened(data).row_groups
    extents = []
    for group in groups:
        pages = group.chunks[1].pages
        extents.append((pages[0].offset, sum(page.stored_size for page in pages)))
    assert extents[0][1] == extents[1][1]
    refused(exchanged(data, *extents), tmp_path, "header of data page 0 of column 'same' in row group 0")


@pytest.mark.parametrize("kind", ["column index", "Bloom filter header", "Bloom filter bitset"])
def test_other_modules_exchanged_between_row_groups(kind: str, tmp_path: Path) -> None:
    data = file()
    one, other = (module for module in opened(data).find_modules(kind) if module.column == 1)
    assert one.length == other.length
    changed = exchanged(data, (one.offset, one.length), (other.offset, other.length))
    refused(changed, tmp_path, f"{kind} of column 'same' in row group 0")


@pytest.mark.parametrize("algorithm", [GCM, CTR])
def test_pieces_of_another_file_with_the_same_keys(algorithm: str, tmp_path: Path) -> None:
    # The same data encrypted twice: everything has the same place and size, but the files have different AADs.
    mine, other = encrypted(plain(), algorithm), encrypted(plain(), algorithm)
    document = opened(mine)
    assert len(mine) == len(other)
    for kind in KINDS:
        modules = [module for module in document.find_modules(kind) if module.offset > 0 and not module.is_ctr]
        for module in modules[-1:]:
            end = module.offset + module.length
            refused(mine[: module.offset] + other[module.offset : end] + mine[end:], tmp_path, name_of(module))


def test_the_footer_of_another_file(tmp_path: Path) -> None:
    for plaintext_footer in (False, True):
        mine = encrypted(plain(), plaintext_footer=plaintext_footer)
        other = encrypted(plain(1000), plaintext_footer=plaintext_footer)
        at = opened(mine).footer_offset
        assert at == opened(other).footer_offset
        refused(mine[:at] + other[at:], tmp_path, "header of data page 0 of column 'number' in row group 0")


def test_a_whole_file_in_place_of_another_is_refused_by_its_prefix(tmp_path: Path) -> None:
    # The only thing that tells two whole files with the same keys apart.
    other = encrypted(plain(1000), aad_prefix=b"lake/table/other", store_aad_prefix=False)
    path = tmp_path / "lake.parquet"
    path.write_bytes(other)
    wrong = parquet.DecryptionConfig(FOOTER_KEY, column_keys={"number": COLUMN_KEY}, aad_prefix=PREFIX)
    with pytest.raises(ags1.AuthenticationError, match="footer: wrong key, wrong AAD prefix, or damaged data"):
        parquet.decrypt_file(path, tmp_path / "out", wrong)
    with pytest.raises(ags1.AuthenticationError, match="footer: wrong key, wrong AAD prefix, or damaged data"):
        parquet.open(path, wrong)
    stored = encrypted(plain(1000), aad_prefix=b"lake/table/other")
    path.write_bytes(stored)
    with pytest.raises(ags1.AuthenticationError, match="the file has another AAD prefix than the one supplied"):
        parquet.decrypt_file(path, tmp_path / "out", wrong)
    path.write_bytes(file())
    with pytest.raises(ags1.AuthenticationError, match="the file was encrypted without an AAD prefix"):
        parquet.decrypt_file(path, tmp_path / "out", wrong)
    path.write_bytes(other)
    with pytest.raises(ValueError, match="AAD prefix that is not stored in it; the reader must supply it"):
        parquet.decrypt_file(path, tmp_path / "out", DECRYPTION)
    assert os.listdir(tmp_path) == ["lake.parquet"]


def test_row_groups_exchanged_in_a_signed_footer(tmp_path: Path) -> None:
    data = file(GCM, plaintext_footer=True)
    begin, footer = opened(data).footer_offset, decode(data, opened(data).footer_offset)[0]
    footer[4].items.reverse()
    refused(data[:begin] + encode(footer) + data[-36:], tmp_path, "signed footer: its signature does not verify")


def test_an_earlier_version_of_a_footer(tmp_path: Path) -> None:
    # Fewer rows: what is no longer there cannot be told apart from what never was, unless the pages are others.
    before, after = encrypted(plain(), plaintext_footer=True), encrypted(plain(7), plaintext_footer=True)
    at = opened(before).footer_offset
    refused(after[:at] + before[at:], tmp_path, "header of data page 0 of column 'number' in row group 0")


# -- signatures and algorithms -------------------------------------------------------------------------------


def footer_of(data: bytes) -> tuple[int, Struct, int]:
    """Where the footer's first structure begins, the structure, and where it ends."""
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    structure, end = decode(data, begin)
    return begin, structure, end


def with_tail(data: bytes, begin: int, tail: bytes, magic: bytes) -> bytes:
    return data[:begin] + tail + len(tail).to_bytes(4, "little") + magic


def test_a_stripped_signature(tmp_path: Path) -> None:
    data = file(GCM, plaintext_footer=True)
    begin, footer, end = footer_of(data)
    unsigned = with_tail(data, begin, data[begin:end], b"PAR1")
    refused(unsigned, tmp_path, "signed footer: a footer signature has 28 bytes, not 0", ags1.FormatError)
    # Without the fields of encryption it is a plaintext file: that is no file that somebody with keys wants.
    footer.remove(8, 9)
    stripped = with_tail(data, begin, encode(footer), b"PAR1")
    refused(stripped, tmp_path, "the file is not encrypted", ags1.FormatError)
    for group in footer[4]:
        for chunk in group[1]:
            chunk.remove(8, 9)
    refused(with_tail(data, begin, encode(footer), b"PAR1"), tmp_path, "the file is not encrypted", ags1.FormatError)


def test_a_signed_footer_is_not_believed_without_its_key(tmp_path: Path) -> None:
    path = tmp_path / "lake.parquet"
    path.write_bytes(file(GCM, plaintext_footer=True))
    with pytest.raises(ags1.KeyAccessError, match="footer"):
        parquet.decrypt_file(path, tmp_path / "out", parquet.DecryptionConfig(column_keys={"number": COLUMN_KEY}))
    assert os.listdir(tmp_path) == ["lake.parquet"]


@pytest.mark.parametrize("plaintext_footer", [False, True], ids=["PARE", "PAR1"])
@pytest.mark.parametrize(("before", "after"), [(GCM, CTR), (CTR, GCM)], ids=["GCM to CTR", "CTR to GCM"])
def test_a_file_that_says_another_algorithm(before: str, after: str, plaintext_footer: bool, tmp_path: Path) -> None:
    data = file(before, plaintext_footer)
    begin, structure, end = footer_of(data)
    union = structure[8] if plaintext_footer else structure[1]
    ((number, arm),) = union.fields.items()
    union.fields = {3 - number: arm}
    changed = with_tail(data, begin, encode(structure) + data[end:-8], data[-4:])
    if plaintext_footer:
        expected = "signed footer: its signature does not verify"
    elif before == GCM:
        expected = "data page 0 of column 'number' in row group 0: was encrypted with AES_GCM_V1, but the file says"
    else:
        expected = "data page 0 of column 'number' in row group 0"
    refused(changed, tmp_path, expected, ags1.AuthenticationError)


def test_the_wrong_algorithm_is_not_taken_for_damage_or_the_reverse(tmp_path: Path) -> None:
    data = file(GCM)
    begin, structure, end = footer_of(data)
    structure[1].fields = {7: structure[1].fields[1]}
    changed = with_tail(data, begin, encode(structure) + data[end:-8], data[-4:])
    refused(changed, tmp_path, "is encrypted with algorithm 7, which this version does not support", ags1.FormatError)
    structure[1].fields = {}
    changed = with_tail(data, begin, encode(structure) + data[end:-8], data[-4:])
    refused(changed, tmp_path, "is encrypted with algorithm None", ags1.FormatError)


def test_a_magic_that_says_something_else(tmp_path: Path) -> None:
    refused(file()[:-4] + b"PAR1", tmp_path, "", ags1.FormatError)
    refused(file(GCM, plaintext_footer=True)[:-4] + b"PARE", tmp_path, "", ags1.FormatError)


def test_columns_declared_plaintext_in_a_footer_that_is_not_checked(tmp_path: Path) -> None:
    # The one switch that turns the signature off: pages still have their tags.
    data = file(GCM, plaintext_footer=True)
    begin, footer, _ = footer_of(data)
    for group in footer[4]:
        for number, chunk in enumerate(group[1]):
            if number == 1:
                chunk.remove(8, 9)
    changed = with_tail(data, begin, encode(footer) + data[-36:-8], b"PAR1")
    lax = parquet.DecryptionConfig(FOOTER_KEY, column_keys={"number": COLUMN_KEY}, check_footer_integrity=False)
    path = tmp_path / "lake.parquet"
    path.write_bytes(changed)
    # What was encrypted is no page that anything could read.
    with pytest.raises(ags1.Ags1Error):
        parquet.rekey_file(path, tmp_path / "out", lax, parquet.EncryptionConfig(KEYS[32], encrypt_all=True))
    assert os.listdir(tmp_path) == ["lake.parquet"]


def test_the_reference_agrees_that_the_files_are_sound() -> None:
    for algorithm in (GCM, CTR):
        for plaintext_footer in (False, True):
            document = opened(file(algorithm, plaintext_footer))
            kinds = {module.kind for module in document.modules}
            assert kinds >= set(KINDS) - {"footer", "footer signature"}
