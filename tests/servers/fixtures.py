"""Fixtures of the servers; tests/conftest.py and bench/conftest.py take them in.

A server is started when the first test of a process asks for it, and lasts as long as the process. tests/conftest.py
keeps the tests of one server in one process.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NoReturn, TypeVar

import pytest

from tests.servers._install import MissingServerError
from tests.servers.azure import AzureServer
from tests.servers.gcs import GcsServer
from tests.servers.hdfs import HdfsServer
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import ShapingProxy
from tests.servers.s3 import KINDS, S3Server

_S = TypeVar("_S")


def missing(reason: object) -> NoReturn:
    """Skip, or fail where nothing may be skipped."""
    refuse = pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip
    refuse(str(reason))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """MinIO, whose conditional writes are atomic; moto where it is not built and tests may be skipped."""
    kind = "minio"
    try:
        KINDS[kind].find()
    except MissingServerError as error:
        if os.environ.get("AGS1_NO_SKIP"):
            missing(error)
        kind = "moto"
    yield from started(S3Server.start(kind=kind))


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> str:
    """A new bucket of `s3_server`."""
    return s3_server.make_bucket(f"lake-{secrets.token_hex(6)}")


@pytest.fixture(scope="session")
def _s3_proxy(s3_server: S3Server) -> Iterator[ShapingProxy]:
    credentials = (s3_server.access_key, s3_server.secret_key, s3_server.region)
    with ShapingProxy.start(s3_server.endpoint, credentials=credentials) as proxy:
        yield proxy


@pytest.fixture
def shaping_proxy(_s3_proxy: ShapingProxy) -> Iterator[ShapingProxy]:
    """A proxy in front of `s3_server`, without a shape, rules or requests: ``s3_server.through(proxy.endpoint)``."""
    _s3_proxy.reset()
    yield _s3_proxy
    _s3_proxy.reset()


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer]:
    """fake-gcs-server, which takes writes of obstore's."""
    yield from started(GcsServer.start())


@pytest.fixture(scope="session")
def azure_server() -> Iterator[AzureServer]:
    """Azurite."""
    yield from started(AzureServer.start())


@pytest.fixture(scope="session")
def hdfs_server() -> Iterator[HdfsServer]:
    """A cluster with one data node."""
    yield from started(HdfsServer.start())


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """PostgreSQL; each test makes a database of its own."""
    yield from started(PostgresServer.start())


def needs_credentials(server: S3Server) -> None:
    """Skip where the server lets everybody do everything: moto."""
    if server.kind == "moto":
        pytest.skip("moto asks for no credentials: make servers")


def started(server: AbstractContextManager[_S]) -> Iterator[_S]:
    """The server for as long as the fixture lasts; the test is skipped where it cannot be had."""
    try:
        started = server.__enter__()
    except MissingServerError as error:
        missing(error)
    try:
        yield started
    finally:
        server.__exit__(None, None, None)
