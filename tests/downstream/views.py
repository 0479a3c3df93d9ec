"""polars and DuckDB over the view: every file of the corpus, encrypted, against the same file in plaintext."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa

from ags1 import parquet
from tests.downstream.suites import SuiteResult
from tests.parquet import corpus

KEY = bytes(range(16))


def _polars(source: Any) -> pa.Table:
    return pl.read_parquet(source).to_arrow()


def _duckdb(source: Any) -> pa.Table:
    settings = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    with duckdb.connect(config=settings) as connection:
        return connection.read_parquet(source).to_arrow_table()


def _view(data: bytes) -> parquet.ParquetView:
    target = io.BytesIO()
    parquet.encrypt_file(io.BytesIO(data), target, parquet.EncryptionConfig(KEY))
    return parquet.open(io.BytesIO(target.getvalue()), parquet.DecryptionConfig(KEY))


def run() -> Iterator[SuiteResult]:
    """Read each file of the corpus."""
    engines: dict[str, Callable[[Any], pa.Table]] = {
        f"polars {pl.__version__}": _polars,
        f"DuckDB {duckdb.__version__}": _duckdb,
    }
    for name, read in engines.items():
        result = SuiteResult(f"{name} through the view")
        for case in corpus.CORPUS:
            _compare(case, read, result)
        yield result


def _compare(case: str, read: Callable[[Any], pa.Table], result: SuiteResult) -> None:
    data = corpus.build(case)
    try:
        plain = read(io.BytesIO(data))
    except BaseException as error:  # polars panics with one that is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        result.skipped[case] = f"it does not read the plaintext file: {type(error).__name__}"
        return
    try:
        with _view(data) as view:
            found = read(view)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        result.failed[case] = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        return
    if found.equals(plain):
        result.passed += 1
    else:
        result.failed[case] = "other rows than those of the plaintext file"
