"""Readers of Parquet that know no encryption, or not all of it, read the plaintext view as they read the plain file."""

from __future__ import annotations

import datetime
import importlib
import io
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import fsspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ags1.parquet import DecryptionConfig, EncryptionConfig, ParquetView, encrypt_file
from tests.checks import CountingFile
from tests.parquet import corpus, public_files
from tests.parquet.view_files import decryption, encrypted, plain_table, view_of

FILES = ("everything-v1", "everything-v2", "bloom-filters-v1", "pages-v2", "types-v1", "polars", "duckdb-v2")
SOME_WAYS = ("java", "arrow", "ctr", "prefix-not-stored")


# -- PyArrow -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pre_buffer", [True, False])
@pytest.mark.parametrize("use_threads", [True, False])
@pytest.mark.parametrize("name", FILES)
def test_pyarrow(name: str, use_threads: bool, pre_buffer: bool) -> None:
    for way in SOME_WAYS:
        with view_of(name, way) as view:
            table = pq.read_table(view, use_threads=use_threads, pre_buffer=pre_buffer, page_checksum_verification=True)
        assert table.equals(plain_table(name)), way


def test_pyarrow_in_pieces() -> None:
    with view_of("everything-v2", "java") as view:
        file = pq.ParquetFile(view, buffer_size=300)
        expected = plain_table("everything-v2")
        assert pa.Table.from_batches(file.iter_batches(batch_size=37)).equals(expected)
        assert file.read_row_group(1).equals(expected.slice(150, 150))
        assert file.metadata.num_row_groups == 3


def test_pyarrow_sees_statistics_and_indexes() -> None:
    with view_of("everything-v2", "java") as view:
        found = pq.ParquetFile(view).metadata.row_group(0)
    plain = pq.read_metadata(io.BytesIO(corpus.build("everything-v2"))).row_group(0)
    for column in range(found.num_columns):
        one, other = found.column(column), plain.column(column)
        assert one.statistics == other.statistics
        assert (one.has_column_index, one.has_offset_index) == (other.has_column_index, other.has_offset_index)


# -- other engines -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_pandas(name: str) -> None:
    expected = pd.read_parquet(io.BytesIO(corpus.build(name)))
    for way in SOME_WAYS:
        with view_of(name, way) as view:
            pd.testing.assert_frame_equal(pd.read_parquet(view), expected)
            some = list(expected.columns[:2])
            pd.testing.assert_frame_equal(pd.read_parquet(view, columns=some), expected[some])


@pytest.mark.parametrize("name", FILES)
def test_polars(name: str) -> None:
    expected = pl.read_parquet(io.BytesIO(corpus.build(name)))
    for way in SOME_WAYS:
        with view_of(name, way) as view:
            assert pl.read_parquet(view).equals(expected)
            view.seek(0)
            assert pl.scan_parquet(view).select(expected.columns[-1]).collect().equals(expected[:, -1:])


def test_polars_takes_projections_of_the_view() -> None:
    """It reads all of a file object, and so all that the view shows."""
    data = encrypted("everything-v2", "uniform")
    with ParquetView(data, decryption(), columns=["number", "struct"]) as view:
        found = pl.read_parquet(view)
    assert found.equals(pl.read_parquet(io.BytesIO(corpus.build("everything-v2")))[["struct", "number"]])


class Handle(io.RawIOBase):
    """A view with a position for each thread: DuckDB shares a handle, and seeks and reads without a lock."""

    def __init__(self, view: ParquetView) -> None:
        super().__init__()
        self._view = view
        self._local = threading.local()
        self.size = view.size

    def tell(self) -> int:
        return getattr(self._local, "position", 0)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._local.position = offset + {0: 0, 1: self.tell(), 2: self.size}[whence]
        return self.tell()

    def read(self, size: int | None = -1, /) -> bytes:
        data = self._view.pread(self.tell(), self.size if size is None or size < 0 else size)
        self._local.position = self.tell() + len(data)
        return data

    def close(self) -> None:
        self._view.close()
        super().close()


class ViewFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Views by name, for engines that want paths."""

    protocol = "views"
    cachable = False

    def __init__(self, open_view: Callable[[str], ParquetView]) -> None:
        super().__init__()
        self._open_view = open_view

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Handle:
        return Handle(self._open_view(path))

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        with self._open_view(path) as view:
            return {"name": path, "size": view.size, "type": "file"}

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        info = self.info(path)
        return [info] if detail else [info["name"]]


@pytest.fixture
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB without a network."""
    settings = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "threads": "2"}
    with duckdb.connect(config=settings) as connection:
        yield connection


def _by_duckdb(name: str, tmp_path: Any, database: duckdb.DuckDBPyConnection, what: str) -> pa.Table:
    path = tmp_path / "plain.parquet"
    path.write_bytes(corpus.build(name))
    return database.sql(what.format(f"read_parquet('{path}')")).to_arrow_table()


@pytest.mark.parametrize("name", FILES)
def test_duckdb_by_file_object(name: str, tmp_path: Any, database: duckdb.DuckDBPyConnection) -> None:
    expected = _by_duckdb(name, tmp_path, database, "SELECT * FROM {}")
    for way in SOME_WAYS:
        with view_of(name, way) as view:
            assert database.read_parquet(view).to_arrow_table().equals(expected)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM {}",
        "SELECT name FROM {} WHERE number BETWEEN 200 AND 220",
        "SELECT count(*) AS n, sum(number) AS s FROM {} WHERE name = 'name 16'",
        "SELECT count(*) AS n FROM {} WHERE name = 'not there'",
    ],
)
def test_duckdb_by_registered_file_system(query: str, tmp_path: Any, database: duckdb.DuckDBPyConnection) -> None:
    """Its own reads at positions, its statistics and Bloom filters."""
    for name in ("everything-v2", "bloom-filters-v1"):
        for way in SOME_WAYS:
            database.register_filesystem(ViewFileSystem(lambda _, name=name, way=way: view_of(name, way)))  # type: ignore[misc]
            found = database.sql(query.format("read_parquet('views://file.parquet')")).to_arrow_table()
            database.unregister_filesystem("views")
            assert found.equals(_by_duckdb(name, tmp_path, database, query)), way


def test_duckdb_passes_over_columns_that_are_not_asked_for(database: duckdb.DuckDBPyConnection) -> None:
    table = pa.table({name: pa.array(range(seed, 50_000 + seed)) for seed, name in enumerate("abcdef")})
    plain = corpus.written(table, compression="none", use_dictionary=False)
    target = io.BytesIO()
    encrypt_file(plain, target, EncryptionConfig(b"0123456789012345"))
    file = CountingFile(target.getvalue())
    database.register_filesystem(ViewFileSystem(lambda _: ParquetView(file, DecryptionConfig(b"0123456789012345"))))
    assert database.sql("SELECT sum(c) FROM read_parquet('views://file')").fetchall() == [(sum(range(2, 50_002)),)]
    database.unregister_filesystem("views")
    # Every opening reads the end of the file.
    assert sum(size for offset, size in file.reads if offset < len(plain) - (64 << 10)) < len(plain) // 3


def _fastparquet() -> Any:
    try:
        return importlib.import_module("fastparquet")
    except ImportError:
        refuse = pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip
        refuse("fastparquet is not installed")


# Without V2 pages over nulls, lists of structs, and types that it reads otherwise, also from the plain file.
@pytest.mark.parametrize("name", ["everything-v1", "bloom-filters-v1", "pages-v1", "types-v1", "snappy-v1", "duckdb"])
def test_fastparquet(name: str) -> None:
    fastparquet = _fastparquet()
    expected = fastparquet.ParquetFile(io.BytesIO(corpus.build(name))).to_pandas()
    for way in SOME_WAYS:
        with view_of(name, way) as view:
            pd.testing.assert_frame_equal(fastparquet.ParquetFile(view).to_pandas(), expected)


# -- filters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["everything-v1", "everything-v2", "bloom-filters-v1"])
@pytest.mark.parametrize("way", SOME_WAYS)
def test_filters_find_the_same_rows(name: str, way: str) -> None:
    expected = plain_table(name)
    filters = [
        (pc.field("number") > 380, pc.greater(expected["number"], 380)),
        (pc.field("name") == "name 16", pc.equal(expected["name"], "name 16")),
        (pc.field("name") == "not there", pc.equal(expected["name"], "not there")),
    ]
    for wanted, mask in filters:
        with view_of(name, way) as view:
            assert pq.read_table(view, filters=wanted, pre_buffer=False).equals(expected.filter(mask))


# -- public files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", public_files.PUBLIC_FILES)
def test_public_files_are_the_same_for_every_engine(name: str, database: duckdb.DuckDBPyConnection) -> None:
    public = public_files.PUBLIC_FILES[name]
    data = public.read()
    decrypt = DecryptionConfig(public.footer_key, column_keys=public.column_keys, aad_prefix=public.aad_prefix)

    def view() -> ParquetView:
        return ParquetView(data, decrypt)

    table = pq.read_table(view(), pre_buffer=False)
    assert table.num_rows > 0
    pd.testing.assert_frame_equal(pd.read_parquet(view()), table.to_pandas())
    types = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
    numbers = [field.name for field in table.schema if field.type in types]
    found = pl.read_parquet(view(), columns=numbers).to_arrow()
    assert found.to_pydict() == table.select(numbers).to_pydict()
    relation = database.read_parquet(view())
    assert relation.select(*numbers).to_arrow_table().to_pydict() == table.select(numbers).to_pydict()
