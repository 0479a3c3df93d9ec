"""The plaintext view: a sound file with all that the encrypted one holds, read from anywhere, kept to what is read."""

from __future__ import annotations

import errno
import io
import mmap
import os
import random
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ags1 import FormatError, KeyAccessError
from ags1.parquet import DecryptionConfig, EncryptionConfig, ParquetView, encrypt_file
from ags1.parquet.view import regions
from tests.checks import CountingFile
from tests.parquet import corpus, public_files
from tests.parquet.reference import open_encrypted, open_plain
from tests.parquet.reference_thrift import BINARY, Struct
from tests.parquet.reference_writer import Encryption, encrypt_reference
from tests.parquet.view_files import (
    COLUMN_KEYS,
    FOOTER_KEY,
    NAME,
    WAYS,
    decryption,
    differences_of_view,
    encrypted,
    opened,
    plain_table,
    table_of,
    view_of,
    view_of_plain,
)

# Pages of types that have no module type, so that they cannot be encrypted.
ENCRYPTABLE = [name for name in corpus.CORPUS if name not in ("index-pages", "unknown-pages")]


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remote files come in parts that are smaller than many pages."""
    monkeypatch.setattr(regions, "_REMOTE_PART", 300)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file.parquet"
    path.write_bytes(encrypted(NAME, "uniform"))
    return path


# -- what it holds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENCRYPTABLE)
def test_a_view_is_a_sound_file_with_all_that_was_encrypted(name: str) -> None:
    plain = open_plain(corpus.build(name), strict=False)
    with view_of(name, "java") as view:
        file, complaints = view_of_plain(view.read())
    if name not in corpus.INCONSISTENT:
        assert complaints == []
    assert differences_of_view(plain, file) == []


@pytest.mark.parametrize("way", WAYS)
def test_whatever_the_way_of_encryption(small_name: str, way: str) -> None:
    plain = open_plain(corpus.build(small_name), strict=False)
    with view_of(small_name, way) as view:
        file, complaints = view_of_plain(view.read())
    assert complaints == []
    assert differences_of_view(plain, file) == []


@pytest.mark.parametrize("way", WAYS)
def test_everything_has_the_place_that_it_has_in_the_encrypted_file(way: str) -> None:
    stored = opened(NAME, way)
    with view_of(NAME, way) as view:
        file, _ = view_of_plain(view.read())
        assert view.stored_size == len(stored.data)
    assert stored.footer_offset <= file.footer_offset < stored.footer_offset + (64 << 10)
    assert [region[:2] for region in sorted(file.regions)] == [region[:2] for region in sorted(stored.regions)]


@pytest.mark.parametrize("name", public_files.PUBLIC_FILES)
def test_public_files_show_what_they_hold(name: str) -> None:
    public = public_files.PUBLIC_FILES[name]
    data = public.read()
    keys = public.column_keys
    stored = open_encrypted(data, public.footer_key, keys, public.aad_prefix, strict=False)
    with ParquetView(data, DecryptionConfig(public.footer_key, column_keys=keys, aad_prefix=public.aad_prefix)) as view:
        file, complaints = view_of_plain(view.read())
        assert complaints == []
        assert [found for found in differences_of_view(stored, file) if "total_" not in found] == []
        assert table_of(view).num_rows == stored.footer[3]


def test_a_public_file_with_external_key_material_is_read_by_a_key_retriever() -> None:
    data = public_files.read(f"{public_files.EXTERNAL_MATERIAL}.parquet.encrypted")
    with ParquetView(data, DecryptionConfig(key_retriever=public_files.external_key)) as view:
        assert table_of(view).num_rows > 0


def test_a_plaintext_file_is_shown_as_it_is() -> None:
    data = corpus.build(NAME)
    with ParquetView(data, None) as view:
        assert view.read() == data
    with ParquetView(data, decryption(allow_plaintext=True)) as view:
        assert view.read() == data
    with pytest.raises(FormatError, match="not encrypted"):
        ParquetView(data, decryption())


def test_without_a_configuration_an_encrypted_file_is_refused() -> None:
    for way in ("uniform", "java-signed"):
        with pytest.raises(KeyAccessError, match=r"give its keys? with `decryption`"):
            ParquetView(encrypted(NAME, way), None)


# -- where it is read from -----------------------------------------------------------------------------------


class Counted(CountingFile):
    """A file that ags1 does not know, so that it reads it through Python."""


def _sources(data: bytes, path: Path) -> Iterator[tuple[str, Any]]:
    yield "path", path
    yield "text", str(path)
    yield "URL of a file", f"file://{path}"
    yield "bytes", data
    yield "bytearray", bytearray(data)
    yield "memoryview", memoryview(data)[:]
    yield "pyarrow", pa.py_buffer(data)
    yield "BytesIO", io.BytesIO(data)
    yield "another file", Counted(data)
    with path.open("rb") as file:
        yield "open file", file
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            yield "mmap", mapped
    with fsspec.open(str(path), "rb") as file:
        yield "fsspec", file
    with pa.memory_map(str(path)) as file:
        yield "native file", file
    fsspec.filesystem("memory").pipe("/view.parquet", data)
    yield "URL", "memory://view.parquet"
    with fsspec.open("memory://view.parquet", "rb") as file:
        yield "remote file", file


def test_every_source_gives_the_same_bytes(path: Path, small_parts: None) -> None:
    expected = view_of().read()
    kinds = 0
    for kind, source in _sources(path.read_bytes(), path):
        with ParquetView(source, decryption()) as view:
            assert view.read() == expected, kind
            # Backwards, too: what comes in parts comes from any of them.
            for offset in range(len(expected) - 100, -1, -977):
                assert view.pread(offset, 100) == expected[offset : offset + 100], (kind, offset)
        kinds += 1
    assert kinds == 15


def test_a_pipe_is_refused_with_advice() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as file, os.fdopen(writing, "wb"):
        with pytest.raises(ValueError, match="is not seekable, which Parquet needs: copy it"):
            ParquetView(file, decryption())


_WHOLE = {way: view_of(NAME, way).read() for way in ("java", "ctr", "arrow")}


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(_WHOLE)),
    st.booleans(),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 5000)), min_size=1, max_size=20),
)
def test_random_reads_are_parts_of_the_whole(way: str, in_memory: bool, reads: list[tuple[float, int]]) -> None:
    data = encrypted(NAME, way)
    whole = _WHOLE[way]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regions, "_REMOTE_PART", 700)
        patch.setattr(regions, "_KEPT_BYTES", 3000)
        with ParquetView(data if in_memory else Counted(data), decryption(way)) as view:
            assert view.size == len(whole)
            for share, size in reads:
                offset = int(share * (len(whole) + 10))
                assert view.pread(offset, size) == whole[offset : offset + size]
                view.seek(offset)
                buffer = bytearray(size)
                count = view.readinto(buffer)
                assert buffer[:count] == whole[offset : offset + size]
                assert view.tell() == offset + count
                view.seek(offset)
                assert view.read_buffer(size).to_pybytes() == whole[offset : offset + size]
                assert view.tell() == offset + count


def test_pyarrow_reads_into_memory_of_its_own_pool() -> None:
    with view_of() as view:
        held = pa.total_allocated_bytes()
        given = view.read_buffer()
        assert pa.total_allocated_bytes() - held >= given.size == view.size
        with pytest.MonkeyPatch.context() as patch:
            # What is read for PyArrow is read by this alone.
            patch.delattr(ParquetView, "read")
            patch.delattr(ParquetView, "pread")
            assert pq.read_table(view).equals(plain_table(NAME))


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "_KEPT_BYTES", 2000)
    with view_of() as view:
        for offset in range(4, view.size, 50):
            view.pread(offset, 10)
            cache = view._cache
            kept = cache.parts.newest_first()
            assert sum(map(len, kept)) <= 2000 or len(kept) == 1


def test_a_copy_is_a_valid_file(path: Path, tmp_path: Path) -> None:
    copied = tmp_path / "plain.parquet"
    with ParquetView(path, decryption()) as view, copied.open("wb") as target:
        shutil.copyfileobj(view, target, 1000)
    assert pq.read_table(copied).equals(plain_table(NAME))
    assert copied.stat().st_size == view.size


# -- what is read for it -------------------------------------------------------------------------------------


def _large() -> tuple[bytes, list[tuple[int, int]]]:
    """A file with columns of 40 kB, and where those of its first row group are."""
    table = pa.table({name: pa.array(random.Random(name).randbytes(40_000)) for name in "abcdef"})
    plain = io.BytesIO()
    pq.write_table(table, plain, compression="none", use_dictionary=False, data_page_size=4000, write_batch_size=500)
    target = io.BytesIO()
    encrypt_file(plain.getvalue(), target, EncryptionConfig(FOOTER_KEY))
    file = open_encrypted(target.getvalue(), FOOTER_KEY)
    return target.getvalue(), [(c.pages[0].offset, c.pages[0].offset + c.metadata[7]) for c in file.chunks]


def test_opening_reads_the_footer_only() -> None:
    data, chunks = _large()
    file = CountingFile(data)
    with ParquetView(file, decryption()):
        assert file.bytes_read < 70_000
        # And the first four bytes, which must be those that the last four want.
        assert min(each for each in file.reads if each != (0, 4))[0] >= len(data) - (64 << 10)
        assert chunks[-1][1] > len(data) - (64 << 10)


@pytest.mark.parametrize("parts", [8000, 16 << 20])
def test_a_projection_touches_only_its_columns(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "_REMOTE_PART", parts)
    data, chunks = _large()
    file = CountingFile(data)
    with ParquetView(file, decryption()) as view:
        file.reads.clear()
        table_of(view, columns=["b", "e"])
    wanted = (chunks[1], chunks[4])
    assert sum(size for _, size in file.reads) >= sum(end - start for start, end in wanted)
    for offset, size in file.reads:
        assert any(start <= offset and offset + size <= end for start, end in wanted), (offset, size)
    # The page in which a part ends is fetched again, and no other.
    assert file.bytes_read < 3 * sum(end - start for start, end in wanted)


def test_later_pages_take_no_more_than_the_requests_to_find_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "_REMOTE_PART", 10_000)
    data, chunks = _large()
    file = CountingFile(data)
    start, end = chunks[2]
    with ParquetView(file, decryption()) as view:
        file.reads.clear()
        view.pread(end - 100, 100)
        assert len(file.reads) <= 2 + (end - start) // 5000
        file.reads.clear()
        view.pread(end - 2000, 100)
        assert file.reads == []


# -- columns -------------------------------------------------------------------------------------------------


def _only(*names: str) -> DecryptionConfig:
    """The footer key, and those of some columns."""
    return DecryptionConfig(FOOTER_KEY, column_keys={name: COLUMN_KEYS[name] for name in names})


def test_a_missing_key_is_an_error_that_names_the_column() -> None:
    for way in ("java", "java-signed"):
        with pytest.raises(KeyAccessError, match=r"column list\.list\.element is encrypted with a key that was not"):
            ParquetView(encrypted(NAME, way), _only("name"))


@pytest.mark.parametrize("way", ["java", "arrow", "ctr", "java-signed"])
def test_columns_without_keys_are_left_out_by_choice(way: str) -> None:
    with ParquetView(encrypted(NAME, way), _only("name", "struct.y"), missing_keys="drop") as view:
        # The keys of the map are there, and those of its values are not.
        dropped = ["list.list.element", "map.key_value.key", "map.key_value.value", "number"]
        assert view.dropped == dropped
        assert table_of(view).equals(plain_table(NAME, columns=["struct", "deep", "name"]))
        assert pq.ParquetFile(view).metadata.num_columns == len(opened(NAME, way).chunks) // 3 - len(dropped)


def test_a_field_of_a_struct_is_left_out_alone() -> None:
    with ParquetView(encrypted(NAME, "java"), _only("name"), missing_keys="drop") as view:
        table = table_of(view)
    assert table.schema.field("struct").type == pa.struct([("x", pa.int64())])
    expected = [None if each is None else {"x": each["x"]} for each in plain_table(NAME)["struct"].to_pylist()]
    assert table["struct"].to_pylist() == expected


def test_nothing_may_be_left_of_a_file() -> None:
    with ParquetView(encrypted("small-nested-v1", "arrow"), decryption("arrow"), columns=[]) as view:
        assert table_of(view).shape == (60, 0)
        assert view.dropped == []


@pytest.mark.parametrize("name", ["types-v1", "types-v2"])
def test_types_that_only_arrow_has_survive_what_is_left_out(name: str) -> None:
    target = io.BytesIO()
    encrypt_file(corpus.build(name), target, EncryptionConfig(FOOTER_KEY, column_keys={"decimal": FOOTER_KEY}))
    with ParquetView(target.getvalue(), DecryptionConfig(FOOTER_KEY), missing_keys="drop") as view:
        table = table_of(view)
    assert view.dropped == ["decimal"]
    expected = plain_table(name).drop_columns("decimal")
    assert table.schema.field("category").type == pa.dictionary(pa.int32(), pa.string())
    assert table.equals(expected)
    assert table.schema.equals(expected.schema)


def test_without_pyarrow_the_arrow_schema_is_left_out_rather_than_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        view = view_of("types-v1", columns=["date", "category"])
    with view:
        assert b"ARROW:schema" not in (pq.ParquetFile(view).metadata.metadata or {})
        assert table_of(view).to_pylist() == plain_table("types-v1", columns=["date", "category"]).to_pylist()


def test_an_arrow_schema_of_another_file_is_left_out() -> None:
    wrong = pq.read_metadata(io.BytesIO(corpus.build("types-v1"))).metadata[b"ARROW:schema"]
    for value in (wrong, b"", b"no base64!", b"AAAA"):
        file = open_plain(corpus.build(NAME))
        for pair in file.footer[5]:
            if pair[1] == b"ARROW:schema":
                pair.put(2, BINARY, value)
        file.footer[5].items.append(Struct().put(1, BINARY, b"other").put(2, BINARY, b"kept"))
        with ParquetView(encrypt_reference(file, Encryption(FOOTER_KEY)), decryption(), columns=["name"]) as view:
            assert pq.ParquetFile(view).metadata.metadata == {b"other": b"kept"}
            assert table_of(view).column_names == ["name"]


def test_pandas_metadata_survives_an_index_without_its_key() -> None:
    import pandas as pd

    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}, index=pd.Index([7, 8], name="secret"))
    plain, target = io.BytesIO(), io.BytesIO()
    frame.to_parquet(plain)
    encrypt_file(plain.getvalue(), target, EncryptionConfig(FOOTER_KEY, column_keys={"secret": b"1234567890123456"}))
    with ParquetView(target.getvalue(), DecryptionConfig(FOOTER_KEY), missing_keys="drop") as view:
        pd.testing.assert_frame_equal(pd.read_parquet(view), frame.reset_index(drop=True))


def test_sorting_columns_are_those_that_are_still_there() -> None:
    # Sorted by the first column, then by the third.
    for columns, expected in (
        (["number", "name"], [(0, False), (1, True)]),
        (["number"], [(0, False)]),
        (["name"], []),
    ):
        with view_of("sorting-columns", columns=columns) as view:
            found = pq.ParquetFile(view).metadata.row_group(0).sorting_columns
            assert [(each.column_index, each.descending) for each in found] == expected, columns


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["name"], ["name"]),
        (["number", "struct"], ["struct", "number"]),
        (["struct.x"], ["struct"]),
        ([("struct", "y"), "name"], ["struct", "name"]),
        (["map.key_value.key"], ["map"]),
        (lambda path: path[0] in ("deep", "number"), ["deep", "number"]),
        (lambda path: path == ("list", "list", "element"), ["list"]),
    ],
)
def test_columns_are_chosen_by_leaf_group_or_function(columns: Any, expected: list[str]) -> None:
    with view_of(columns=columns) as view:
        table = table_of(view)
        assert table.column_names == expected
        for name in set(expected) - {"struct"}:
            assert table[name].equals(plain_table(NAME)[name])


def test_keys_of_columns_that_are_not_shown_are_not_asked_for() -> None:
    asked = []

    def retriever(key_metadata: bytes) -> bytes:
        asked.append(key_metadata)
        return COLUMN_KEYS["name"]

    with ParquetView(
        encrypted(NAME, "java"), DecryptionConfig(FOOTER_KEY, key_retriever=retriever), columns=["deep", "struct.x"]
    ) as view:
        assert table_of(view).column_names == ["struct", "deep"]
    assert asked == []


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"there is no column 'nam'; did you mean 'name'\?"):
        view_of(columns=["nam"])
    with pytest.raises(TypeError, match="columns must be a list of column names, not str"):
        view_of(columns="name")
    with pytest.raises(TypeError, match="neither a str nor a tuple of str"):
        view_of(columns=[1])
    with pytest.raises(ValueError, match="missing_keys must be 'error' or 'drop', not 'ignore'"):
        view_of(missing_keys="ignore")
    with pytest.raises(ValueError, match="negative offset"):
        view_of().pread(-1, 1)
    for whence, base in ((0, 0), (1, 0), (2, view_of().size)):
        with pytest.raises(OSError, match="negative seek position") as found:
            view_of().seek(-base - 1, whence)
        assert found.value.errno == errno.EINVAL
    assert not zipfile.is_zipfile(view_of())
    with pytest.raises(ValueError, match="whence must be 0, 1 or 2, not 7"):
        view_of().seek(0, 7)
