"""Fixtures of the interoperability tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TypeVar

import pytest

from tests.interop.java_peer import JavaPeer, available
from tests.interop.parquet_peer import ParquetPeer

_Peer = TypeVar("_Peer", JavaPeer, ParquetPeer)


def _start(peer: type[_Peer], module: str) -> Iterator[_Peer]:
    if (reason := available()) is not None:
        refuse = pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip
        refuse(f"the Java classes of {module} cannot run here: {reason}")
    with peer(module) as started:
        yield started


@pytest.fixture(scope="session")
def java_peer() -> Iterator[JavaPeer]:
    """A running JVM with the Iceberg release that the project file names."""
    yield from _start(JavaPeer, "iceberg")


@pytest.fixture(scope="session")
def two_field_peer() -> Iterator[JavaPeer]:
    """A running JVM with an Iceberg release whose key metadata has no file length."""
    yield from _start(JavaPeer, "iceberg-1.10")


@pytest.fixture(scope="session")
def parquet_peer() -> Iterator[ParquetPeer]:
    """A running JVM with the parquet-java release that the project file names."""
    yield from _start(ParquetPeer, "parquet")


@pytest.fixture(scope="session")
def spark_parquet_peer() -> Iterator[ParquetPeer]:
    """A running JVM with the parquet-java release that Spark ships."""
    yield from _start(ParquetPeer, "parquet-1.16")
