"""One Spark session for all tests, scripts with a Spark of their own, and the services that jobs talk to."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from tests.iceberg.keys import keystore as keystore_of
from tests.kms.conftest import Bao, bao, moto_url
from tests.spark.sessions import (
    LOCAL,
    LOCAL_CLUSTER,
    environment,
    need_spark,
    prepare,
    run_spark_script,
    start_cluster,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.s3 import S3Server

__all__ = ["bao", "moto_url"]

MASTER_KEY_IDS = ("lake", "lake2")

# Rows come to the driver over a socket that PySpark leaves to the garbage collector.
_PYSPARK_SOCKET = r"unclosed <socket\.socket .*laddr=\('127\.0\.0\.1'"

_bucket_numbers = count(1)
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let PySpark leave its sockets open in these tests; all others fail for that."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{_PYSPARK_SOCKET}:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def _no_garbage_for_other_tests() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", _PYSPARK_SOCKET, ResourceWarning)
        gc.collect()


# -- services ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Storage:
    """A bucket on a server of our own."""

    url: str
    bucket: str
    endpoint: str
    client: Any


@pytest.fixture(scope="session")
def storage_environment(s3_server: S3Server) -> dict[str, str]:
    """Where clients of S3 find the server, on the driver and in workers."""
    return {**s3_server.environment(), "NO_PROXY": "127.0.0.1,localhost"}


@pytest.fixture
def s3(storage_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """An empty bucket, which this process and the session's workers reach by its ``s3://`` name alone."""
    boto3 = pytest.importorskip("boto3")
    s3fs = pytest.importorskip("s3fs")
    for name, value in storage_environment.items():
        monkeypatch.setenv(name, value)
    bucket = f"lake-{os.getpid()}-{next(_bucket_numbers)}"
    client = boto3.session.Session().client("s3")  # the default session keeps what an earlier test gave it
    client.create_bucket(Bucket=bucket)
    yield Storage(f"s3://{bucket}", bucket, storage_environment["AWS_ENDPOINT_URL"], client)
    client.close()
    # They remember the listings of buckets.
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="session")
def kms_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A local keystore with the master keys "lake" and "lake2", and the key file that opens it."""
    return keystore(tmp_path_factory.mktemp("keystore"), *MASTER_KEY_IDS)


def keystore(directory: Path, *key_ids: str) -> str:
    """The URL of a local keystore with fresh master keys."""
    return keystore_of(directory, {each: os.urandom(32) for each in key_ids})


@pytest.fixture(scope="session")
def vault_url(bao: Bao, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A real OpenBao with the same master keys; workers find its token in the file that the URL names."""
    token_file = tmp_path_factory.mktemp("vault") / "token"
    token_file.write_text(bao.token)
    token_file.chmod(0o600)
    for key_id in MASTER_KEY_IDS:
        bao.client().secrets.transit.create_key(key_id, key_type="aes256-gcm96")
    return f"vault:{bao.url}?{urlencode({'token_file': token_file})}"


# -- Spark ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def spark_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the session, as tests/spark/sessions.py describes it."""
    return tmp_path_factory.mktemp("spark").resolve()


@pytest.fixture(scope="session")
def spark(spark_directory: Path, storage_environment: dict[str, str]) -> Iterator[SparkSession]:
    """A session with two slots, where a task is tried three times."""
    need_spark()
    configuration = prepare(spark_directory, LOCAL)
    before = dict(os.environ)
    try:
        # Only for the start: the JVM and through it the workers keep what they got, and other tests do not see it.
        _become(environment(configuration, storage_environment))
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        session = SparkSession.builder.appName("ags1-tests").getOrCreate()
    finally:
        _become(before)
    yield session
    session.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    SparkContext._gateway = SparkContext._jvm = None
    # The JVM lives until its standard input ends. It must be gone first: py4j closes the stream on which one of its
    # threads still waits for the JVM, and both would wait for ever.
    gateway.proc.stdin.close()
    gateway.proc.wait(600)
    gateway.shutdown()


def _become(variables: dict[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


Run = Callable[..., CompletedProcess[str]]


@pytest.fixture
def run_spark(storage_environment: dict[str, str], tmp_path: Path) -> Iterator[Run]:
    """Run a script in a process with a Spark of its own; see tests.spark.sessions.run_spark_script."""
    need_spark()
    numbers = count(1)

    def run(script: str | Path, *arguments: Any, **options: Any) -> CompletedProcess[str]:
        options["env"] = storage_environment | (options.get("env") or {})
        options.setdefault("directory", (tmp_path / f"spark-{next(numbers)}").resolve())
        return run_spark_script(script, *arguments, **options)

    return run


@pytest.fixture
def local_cluster(run_spark: Run) -> Run:
    """Run a script whose executors are processes of their own: two, with one slot each."""
    return partial(run_spark, master=LOCAL_CLUSTER)


@pytest.fixture
def standalone_cluster(run_spark: Run, storage_environment: dict[str, str], tmp_path: Path) -> Iterator[Run]:
    """Run a script on a master and two workers of one slot each, all in processes of their own."""
    directory = (tmp_path / "cluster").resolve()
    with start_cluster(directory, env=storage_environment) as master:
        yield partial(run_spark, master=master, directory=directory)


@pytest.fixture
def connect_spark(run_spark: Run) -> Run:
    """Run a script whose session is one of Spark Connect."""
    return partial(run_spark, master="local[2]", connect=True)
