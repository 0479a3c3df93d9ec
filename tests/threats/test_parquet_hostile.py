"""Parquet metadata made to crash or exhaust whoever reads it, by somebody who may even have the keys.

Each is refused with an error that is documented, within a moment and without memory for what is only claimed, and
leaves no file behind.
"""

from __future__ import annotations

import functools
import io
import json
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ags1
from ags1 import parquet
from tests.checks import KEYS, run_python
from tests.parquet.reference_model import module_aad
from tests.parquet.reference_thrift import BINARY, I16, I32, I64, LIST, STRUCT, Sequence, Struct, decode, encode
from tests.parquet.reference_writer import AESGCM, Encryption, encrypt_reference

KEY, COLUMN_KEY = KEYS[16], KEYS[32]
DECRYPTION = parquet.DecryptionConfig(KEY, column_keys={"a": COLUMN_KEY})
ENCRYPTION = parquet.EncryptionConfig(KEY, encrypt_all=True)
REFUSED = (ags1.FormatError, ags1.LimitError, ags1.AuthenticationError)
LARGEST = (1 << 63) - 1
# What any of these may take. They take milliseconds; a machine may be busy.
SECONDS = 10

Change = Callable[[Struct], object]


@functools.cache
def plain() -> bytes:
    table = pa.table({"a": [1, 2, None, 4] * 20, "b": ["x", "y", "z", None] * 20})
    made = io.BytesIO()
    blooms: Any = {"a": {"ndv": 10, "fpp": 0.1}}
    pq.write_table(
        table, made, row_group_size=40, write_page_index=True, bloom_filter_options=blooms, compression="none"
    )
    return made.getvalue()


@functools.cache
def encrypted(plaintext_footer: bool) -> bytes:
    return encrypt_reference(
        plain(), Encryption(KEY, {"a": COLUMN_KEY}, encrypt_all=True, plaintext_footer=plaintext_footer)
    )


def footer_of(data: bytes) -> tuple[int, Struct, int]:
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    structure, end = decode(data, begin)
    return begin, structure, end


def with_tail(data: bytes, begin: int, tail: bytes) -> bytes:
    return data[:begin] + tail + struct.pack("<I", len(tail)) + data[-4:]


def seal(plaintext: bytes, key: bytes, aad: bytes) -> bytes:
    sealed = bytes(12) + AESGCM(key).encrypt(bytes(12), plaintext, aad)
    return struct.pack("<I", len(sealed)) + sealed


def open_(module: bytes, key: bytes, aad: bytes) -> bytes:
    return AESGCM(key).decrypt(module[4:16], module[16:], aad)


def resealed(change: Callable[[Struct, bytes], bytes], plaintext_footer: bool) -> bytes:
    """The encrypted file with another footer, authentic all the same; `change` is told the file AAD."""
    data = encrypted(plaintext_footer)
    begin, first, end = footer_of(data)
    if plaintext_footer:
        unique = first[8][1][2]
        tail = change(first, unique)
        tag = AESGCM(KEY).encrypt(bytes(12), tail, module_aad(unique, "footer signature"))[-16:]
        return with_tail(data, begin, tail + bytes(12) + tag)
    unique = first[1][1][2]
    aad = module_aad(unique, "footer")
    footer, _ = decode(open_(data[end:-8], KEY, aad), 0)
    return with_tail(data, begin, encode(first) + seal(change(footer, unique), KEY, aad))


def kinds_of_files(change: Change) -> dict[str, bytes]:
    """The change made to the footer of a plaintext file, and to those of encrypted ones by somebody with the keys."""

    def changed(footer: Struct, unique: bytes = b"") -> bytes:
        for row_group, group in enumerate(footer[4]):
            for column, chunk in enumerate(group[1]):
                if 9 in chunk:
                    aad = module_aad(unique, "column metadata", row_group, column)
                    key = COLUMN_KEY if 2 in chunk[8] else KEY
                    chunk.put(3, STRUCT, decode(open_(chunk[9], key, aad), 0)[0])
        before = encode(footer)
        raw = change(footer)
        tail = raw if isinstance(raw, bytes) else encode(footer)
        assert tail != before, "nothing was changed"
        if isinstance(raw, bytes):
            return raw
        for row_group, group in enumerate(footer.get(4, [])):
            for column, chunk in enumerate(group.get(1, []) if isinstance(group, Struct) else []):
                if isinstance(chunk, Struct) and {3, 8, 9} <= set(chunk.fields):
                    aad = module_aad(unique, "column metadata", row_group % 32_768, column)
                    key = COLUMN_KEY if 2 in chunk[8] else KEY
                    chunk.put(9, BINARY, seal(encode(chunk[3]), key, aad))
        return encode(footer)

    begin, footer, _ = footer_of(plain())
    return {
        "plaintext": with_tail(plain(), begin, changed(footer)),
        "encrypted": resealed(changed, False),
        "signed": resealed(changed, True),
    }


def refused(kind: str, data: bytes, directory: Path, expected: str = "") -> None:
    path = directory / "lake.parquet"
    path.write_bytes(data)
    out = directory / "out"
    calls: list[Callable[[], object]] = [
        lambda: parquet.decrypt_file(path, out, DECRYPTION, threads=2),
        lambda: parquet.decrypt_file(data, io.BytesIO(), DECRYPTION),
        lambda: parquet.rekey_file(path, out, DECRYPTION, ENCRYPTION),
    ]
    if kind == "plaintext":
        calls = [
            lambda: parquet.encrypt_file(path, out, ENCRYPTION, threads=2),
            lambda: parquet.encrypt_file(io.BytesIO(data), io.BytesIO(), ENCRYPTION),
        ]
    for call in calls:
        start = time.process_time()
        with pytest.raises(REFUSED) as caught:
            call()
        assert time.process_time() - start < SECONDS
        assert expected in str(caught.value)
        assert len(str(caught.value)) < 600, "the message grows with the data"
        assert os.listdir(directory) == ["lake.parquet"], "it left something behind"


# -- footers -------------------------------------------------------------------------------------------------


def chunk_of(footer: Struct, column: int = 0) -> Struct:
    found: Struct = footer[4][0][1][column]
    return found


def in_metadata(field: int, type_: int, value: Any, column: int = 0) -> Change:
    return lambda footer: chunk_of(footer, column)[3].put(field, type_, value)


def in_chunk(field: int, type_: int, value: Any) -> Change:
    return lambda footer: chunk_of(footer).put(field, type_, value)


def same_pages(footer: Struct) -> None:
    one, other = chunk_of(footer)[3], chunk_of(footer, 1)[3]
    for field in (7, 9, 11):
        if field in one:
            other.put(field, I64, one[field])


def schema(*elements: tuple[bytes, int | None]) -> Change:
    """A schema of (name, children); None for a leaf."""

    def change(footer: Struct) -> None:
        footer[2].items = [
            Struct().put(4, BINARY, name).put(5, I32, children) if children is not None
            else Struct().put(1, I32, 1).put(3, I32, 0).put(4, BINARY, name)
            for name, children in elements
        ]  # fmt: skip

    return change


def nested(depth: int) -> Change:
    def change(footer: Struct) -> bytes:
        return encode(footer)[:-1] + b"\x0c\xfe\x01" + b"\x1c" * depth + b"\0" * (depth + 2)

    return change


FOOTERS: dict[str, tuple[Change, str]] = {
    "structs 70 deep": (nested(70), "nested deeper than 64"),
    "structs a million deep": (nested(1_000_000), "nested deeper than 64"),
    "no schema": (lambda footer: footer.remove(2), "the footer has no schema"),
    "an empty schema": (lambda footer: footer[2].items.clear(), "the footer has no schema"),
    "no row groups": (lambda footer: footer.remove(4), "the footer has no list of row groups"),
    "a schema of integers": (lambda footer: footer.put(2, LIST, Sequence(I32, [1, 2])), "is not a structure"),
    "a group of 2^31 - 1 columns": (schema((b"root", (1 << 31) - 1), (b"a", None), (b"b", None)), "2147483647 columns"),
    "a group of -1 columns": (schema((b"root", -1), (b"a", None), (b"b", None)), "-1 columns"),
    "groups that count too much": (schema((b"root", 3), (b"a", None), (b"b", None)), "fewer elements than its groups"),
    "groups that count too little": (schema((b"root", 1), (b"a", None), (b"b", None)), "than its groups count"),
    "groups 200 deep": (schema(*[(b"g", 1)] * 200, (b"a", None)), "nested deeper than 128"),
    "more leaves than chunks": (
        schema((b"root", 50_000), *[(b"x", None)] * 50_000), "the footer is too short for the 2 row groups that it has",
    ),
    "row groups that are integers": (lambda footer: footer.put(4, LIST, Sequence(I32, [1])), "items of kind i32, not"),
    "a row group without chunks": (lambda footer: footer[4][1].remove(1), "row group 1 has 0 column chunks"),
    "a row group of integers": (lambda footer: footer[4][1].put(1, LIST, Sequence(I32, [1, 2])), "invalid column"),
    "a list of 2^28 structs": (
        lambda footer: encode(footer)[:-1] + b"\x09\xfe\x01\xfc\x80\x80\x80\x80\x01",
        "larger than all that is left",
    ),
    "data in another file": (in_chunk(1, BINARY, b"/etc/shadow"), "its data is in another file"),
    "a size of an impossible kind": (in_metadata(7, BINARY, b"x"), "is of kind binary"),
    "a negative size": (in_metadata(7, I64, -1), "are not inside the file"),
    "the largest size": (in_metadata(7, I64, LARGEST), "are not inside the file"),
    "no size": (lambda footer: chunk_of(footer)[3].remove(7), "lacks the offset or size of its pages"),
    "pages behind the end": (lambda footer: chunk_of(footer)[3].remove(11).put(9, I64, LARGEST), "not inside the file"),
    "a dictionary behind the end": (in_metadata(11, I64, LARGEST), ""),
    "pages in the magic": (in_metadata(9, I64, 1), ""),
    "pages in the footer": (lambda footer: chunk_of(footer)[3].put(9, I64, 40).put(7, I64, 1 << 20), "not inside"),
    "two chunks with the same pages": (same_pages, ""),
    "more values than there are": (in_metadata(5, I64, LARGEST), "its metadata says 9223372036854775807"),
    "sizes that overflow": (
        lambda footer: [
            chunk[3].put(6, I64, LARGEST).put(10, I64, LARGEST).put(5, I64, LARGEST) for chunk in footer[4][0][1]
        ], "",
    ),
    "a column index behind the end": (in_chunk(6, I64, LARGEST), "column index of column 'a' in row group 0"),
    "a column index before the start": (in_chunk(6, I64, -1), "column index of column 'a' in row group 0"),
    "a column index of 2 GiB": (in_chunk(7, I32, (1 << 31) - 1), "column index of column 'a' in row group 0"),
    "an offset index behind the end": (in_chunk(4, I64, LARGEST), "offset index of column 'a' in row group 0"),
    "an offset index of 2 GiB": (in_chunk(5, I32, (1 << 31) - 1), "offset index of column 'a' in row group 0"),
    "an offset index that is a page": (lambda footer: chunk_of(footer).put(4, I64, 4), "index of column 'a' in row"),
    "a Bloom filter behind the end": (in_metadata(14, I64, LARGEST), "Bloom filter header of column 'a' in row"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOOTERS)
def test_hostile_footers(name: str, tmp_path: Path) -> None:
    change, expected = FOOTERS[name]
    for kind, data in kinds_of_files(change).items():
        refused(kind, data, tmp_path, expected)


ENCRYPTED_FOOTERS: dict[str, tuple[Change, str]] = {
    "an ordinal of 32768": (lambda footer: footer[4][0].put(7, I32, 32_768), "row group 32768 is outside 0 to 32767"),
    "an ordinal of -1": (lambda footer: footer[4][0].put(7, I16, -1), "row group -1 is outside 0 to 32767"),
    "an ordinal of 2^40": (lambda footer: footer[4][0].put(7, I64, 1 << 40), "is outside 0 to 32767"),
    "the ordinal of another row group": (lambda footer: footer[4][0].put(7, I16, 1), "in row group 1"),
    "a Bloom filter that is a page": (in_metadata(14, I64, 4), "Bloom filter header of column 'a' in row group 0"),
    "an unknown protection": (in_chunk(8, STRUCT, Struct().put(3, STRUCT, Struct())), "encrypted in a way that this"),
    "no protection": (lambda footer: chunk_of(footer, 1).remove(8), "column 'b' in row group 0"),
    "metadata that is no module": (
        lambda footer: chunk_of(footer).remove(3).put(9, BINARY, b"x"), "column metadata of column 'a' in row group 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENCRYPTED_FOOTERS)
def test_hostile_footers_of_encrypted_files(name: str, tmp_path: Path) -> None:
    change, expected = ENCRYPTED_FOOTERS[name]
    either: Change = lambda footer: change(footer) if 8 in chunk_of(footer) else footer.put(99, I32, 1)  # noqa: E731
    for kind, data in kinds_of_files(either).items():
        if kind != "plaintext":
            refused(kind, data, tmp_path, expected)


@pytest.mark.parametrize("length", [0, 1, 11, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
def test_lengths_of_footers(length: int, tmp_path: Path) -> None:
    for kind, data in (("plaintext", plain()), ("encrypted", encrypted(False)), ("signed", encrypted(True))):
        refused(kind, data[:-8] + struct.pack("<I", length) + data[-4:], tmp_path)


def test_files_of_nothing_but_magics(tmp_path: Path) -> None:
    for middle in (b"", bytes(4), bytes(100), b"\xff" * 100, struct.pack("<I", 92).rjust(100, b"\x15")):
        for magic in (b"PAR1", b"PARE"):
            for kind in ("plaintext", "encrypted"):
                data = magic + middle + magic
                if kind == "plaintext" and magic == b"PARE" and len(middle) > 4:
                    # Perhaps encrypted: then it is refused as that.
                    continue
                refused(kind, data, tmp_path)


@pytest.mark.parametrize("claimed", [-1, -(1 << 31), 1 << 20, (1 << 31) - 1])
def test_bloom_filters_of_any_size(claimed: int, tmp_path: Path) -> None:
    data = plain()
    _, footer, _ = footer_of(data)
    at = chunk_of(footer)[3][14]
    header, end = decode(data, at)
    made = encode(header.put(1, I32, claimed))
    changed = data[:at] + made + data[at + len(made) :]
    if len(made) > end - at:
        change = lambda tree: chunk_of(tree)[3].remove(15)  # noqa: E731
        change(footer)
    refused("plaintext", changed, tmp_path, "Bloom filter header of column 'a' in row group 0")


def test_a_footer_with_no_end_of_columns_takes_no_long_time(tmp_path: Path) -> None:
    # 32,769 columns, none of which has pages: too many for an AAD, which is found before anything is written.
    count = 32_769
    columns = pa.table({f"c{number}": pa.array([], pa.int8()) for number in range(count)})
    made = io.BytesIO()
    pq.write_table(columns, made, store_schema=False)
    begin, footer, _ = footer_of(made.getvalue())
    group = Struct().put(1, LIST, Sequence(STRUCT, [])).put(2, I64, 0).put(3, I64, 0)
    for element in footer[2][1:] if not isinstance(footer[2], Sequence) else footer[2].items[1:]:
        metadata = (
            Struct().put(1, I32, 1).put(2, LIST, Sequence(I32, [0])).put(3, LIST, Sequence(BINARY, [element[4]]))
            .put(4, I32, 0).put(5, I64, 0).put(6, I64, 0).put(7, I64, 0).put(9, I64, 4)
        )  # fmt: skip
        group[1].items.append(Struct().put(2, I64, 0).put(3, STRUCT, metadata))
    footer.put(4, LIST, Sequence(STRUCT, [group]))
    refused(
        "plaintext", with_tail(made.getvalue(), begin, encode(footer)), tmp_path, "column 32768 is outside 0 to 32767"
    )


def repeated(shared: str) -> bytes:
    """A plaintext file whose 50 row groups are all one: their pages, or an index or filter that lies behind these."""
    data = plain()
    begin, footer, _ = footer_of(data)
    del footer[4].items[1:], footer[4][0][1].items[1:], footer[2].items[2:]
    footer[2][0].put(5, I32, 1)
    chunk = chunk_of(footer)
    more = b""
    chunk.remove(4, 5, 6, 7)
    chunk[3].remove(14, 15)
    if shared == "pages of an old writer":
        # It forgot the headers of dictionary pages, so that column chunks may seem to overlap.
        footer.put(6, BINARY, b"parquet-mr version 1.2.0")
        chunk[3].put(7, I64, begin - chunk[3].get(11, chunk[3][9])).put(5, I64, 1)
    else:
        chunk[3].put(5, I64, 0).put(7, I64, 0).remove(11)
        more = encode(Struct().put(1, BINARY, bytes(20_000)))
    if shared == "column index":
        chunk.put(6, I64, begin).put(7, I32, len(more))
    elif shared == "offset index":
        more = encode(Struct().put(1, LIST, Sequence(STRUCT, [])).put(2, BINARY, bytes(20_000)))
        chunk.put(4, I64, begin).put(5, I32, len(more))
    elif shared == "Bloom filter":
        arm = Struct().put(1, STRUCT, Struct())
        header = Struct().put(1, I32, 20_000).put(2, STRUCT, arm).put(3, STRUCT, arm).put(4, STRUCT, arm)
        more = encode(header) + bytes(20_000)
        chunk[3].put(14, I64, begin)
    footer[4].items *= 50
    return with_tail(data[:begin] + more + data[begin:], begin + len(more), encode(footer))


@pytest.mark.parametrize("shared", ["pages of an old writer", "column index", "offset index", "Bloom filter"])
def test_what_columns_share_is_not_read_or_written_for_each_of_them(shared: str, tmp_path: Path) -> None:
    # For each of 32,768 row groups a mebibyte, say: that would fill the disk, and the memory with indexes.
    data = repeated(shared)
    refused("plaintext", data, tmp_path, "overlap" if "pages" in shared else "columns share pages, indexes or")
    report = parquet.verify_file(data, parquet.DecryptionConfig(allow_plaintext=True))
    assert not report.ok
    assert "columns share pages, indexes or" in str(report)
    assert report.checked["bytes"] <= len(data) + 20_000


def test_a_column_that_says_it_is_another_is_not_encrypted(tmp_path: Path) -> None:
    # parquet-java finds columns by these names: the pages of the one that has a key would have been left in plaintext.
    begin, footer, _ = footer_of(plain())
    for group in footer[4]:
        one, other = (chunk[3] for chunk in group[1])
        one.fields[3], other.fields[3] = other.fields[3], one.fields[3]
    data = with_tail(plain(), begin, encode(footer))
    refused("plaintext", data, tmp_path, "column 'a' in row group 0: its metadata says that it is column 'b'")
    report = parquet.verify_file(data, parquet.DecryptionConfig(allow_plaintext=True))
    assert "path_in_schema is that of column 'b'" in str(report)


def test_deep_schemas_are_inspected_and_shown_without_columns(tmp_path: Path) -> None:
    path = tmp_path / "deep.parquet"
    value: Any = pa.array([1, 2])
    other: Any = pa.array([3, 4])
    for _ in range(96):
        value, other = pa.StructArray.from_arrays([value], ["x"]), pa.StructArray.from_arrays([other], ["x"])
    pq.write_table(pa.table({"x": value, "y": other}), path, store_schema=False)
    json.dumps(parquet.inspect(path).to_dict())
    out = tmp_path / "out.parquet"
    parquet.encrypt_file(path, out, parquet.EncryptionConfig(KEY, column_keys={"x": COLUMN_KEY}))
    with parquet.open(out, parquet.DecryptionConfig(KEY), missing_keys="drop") as view:
        assert pq.read_table(view).equals(pq.read_table(path).select(["y"]))


def test_codes_that_no_format_has_are_not_listed() -> None:
    # Each was compared with all before it.
    begin, footer, _ = footer_of(plain())
    chunk_of(footer)[3].put(2, LIST, Sequence(I32, list(range(30_000))))
    found = parquet.inspect(with_tail(plain(), begin, encode(footer)))
    assert found.columns[0].encodings is not None
    assert found.columns[0].encodings[-1] == "unknown"
    assert len(found.columns[0].encodings) < 300


@pytest.mark.parametrize("name", ["\x1b[2J", "b), 1 page\nauthenticated: everything", "\udcff", "x" * 100_000])
def test_names_of_columns_are_no_part_of_a_report_or_message(name: str, tmp_path: Path) -> None:
    begin, footer, _ = footer_of(plain())
    footer[2][1].put(4, BINARY, name.encode("utf-8", "surrogateescape"))
    data = with_tail(plain(), begin, encode(footer))
    report = str(parquet.verify_file(data, parquet.DecryptionConfig(allow_plaintext=True)))
    assert len(report.split("\n")) == 4
    assert report.replace("\n", "").isprintable()
    chunk_of(footer)[3].put(5, I64, LARGEST)
    refused("plaintext", with_tail(plain(), begin, encode(footer)), tmp_path, "its metadata says")


def test_what_is_only_claimed_takes_no_memory(tmp_path: Path) -> None:
    run_python(
        """
        import resource, sys
        from pathlib import Path
        from tests.threats import test_parquet_hostile as hostile
        made = [
            (kind, data, expected)
            for change, expected in hostile.FOOTERS.values()
            for kind, data in hostile.kinds_of_files(change).items()
        ]
        directory = Path(sys.argv[1])
        kind, data, expected = made[0]
        hostile.refused(kind, data, directory, expected)
        with open("/proc/self/status") as status:
            taken = next(int(line.split()[1]) for line in status if line.startswith("VmPeak"))
        # Of address space, so that also memory that is never touched counts; two threads want stacks of 8 MiB.
        resource.setrlimit(resource.RLIMIT_AS, ((taken << 10) + (160 << 20),) * 2)
        for kind, data, expected in made:
            hostile.refused(kind, data, directory, expected)
        """,
        str(tmp_path),
    )
