"""Fixtures of the interoperability tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.interop.java_peer import JavaPeer, available
from tests.interop.parquet_peer import ParquetPeer


def _start(module: str) -> Iterator[JavaPeer]:
    if (reason := available()) is not None:
        refuse = pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip
        refuse(f"Iceberg's Java classes cannot run here: {reason}")
    with JavaPeer(module) as started:
        yield started


@pytest.fixture(scope="session")
def java_peer() -> Iterator[JavaPeer]:
    """A running JVM with the Iceberg release that the project file names."""
    yield from _start("iceberg")


@pytest.fixture(scope="session")
def two_field_peer() -> Iterator[JavaPeer]:
    """A running JVM with an Iceberg release whose key metadata has no file length."""
    yield from _start("iceberg-1.10")


def _start_parquet(module: str) -> Iterator[ParquetPeer]:
    if (reason := available()) is not None:
        refuse = pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip
        refuse(f"parquet-java cannot run here: {reason}")
    with ParquetPeer(module) as started:
        yield started


@pytest.fixture(scope="session")
def parquet_peer() -> Iterator[ParquetPeer]:
    """A running JVM with the parquet-java release that the project file names."""
    yield from _start_parquet("parquet")


@pytest.fixture(scope="session")
def spark_parquet_peer() -> Iterator[ParquetPeer]:
    """A running JVM with the parquet-java release that Spark ships."""
    yield from _start_parquet("parquet-1.16")
