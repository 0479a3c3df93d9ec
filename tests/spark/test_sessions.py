"""What the other tests of Spark rely on: tasks are retried, workers have our code, nothing leaves loopback."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ags1 import kms

pa = pytest.importorskip("pyarrow")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Run, Storage

_LISTENING = "0A"


def told(spark: SparkSession, tell: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a function answers in a worker."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Undrained input costs the worker its life.
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"told": [json.dumps(tell())]})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(work, "told string").collect()
    return json.loads(row.told)


def _environment_and_origin() -> dict[str, Any]:
    import pyspark

    import ags1
    import tests.checks

    names = ("AWS_ENDPOINT_URL", "SPARK_HOME", "PYSPARK_PYTHON")
    return {
        "ags1": ags1.__file__,
        "checks": tests.checks.__file__,
        "pyspark": pyspark.__version__,
        **{name: os.environ.get(name) for name in names},
    }


def test_a_task_that_fails_once_is_tried_again(spark: SparkSession) -> None:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        for _ in batches:
            pass
        attempt = TaskContext.get().attemptNumber()
        if attempt == 0:
            raise OSError("the first attempt fails")
        yield pa.RecordBatch.from_pydict({"attempt": [attempt]})

    assert [row.attempt for row in spark.range(0, 1, 1, 1).mapInArrow(work, "attempt long").collect()] == [1]


def test_a_task_that_always_fails_ends_after_its_third_attempt(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        (tmp_path / str(TaskContext.get().attemptNumber())).touch()
        raise OSError("no attempt succeeds")

    with pytest.raises(PySparkException, match="no attempt succeeds"):
        spark.range(0, 1, 1, 1).mapInArrow(work, "attempt long").collect()
    assert sorted(os.listdir(tmp_path)) == ["0", "1", "2"]


def test_workers_import_this_checkout_with_the_pyspark_of_the_driver(spark: SparkSession) -> None:
    found = told(spark, _environment_and_origin)
    here = _environment_and_origin()
    assert [found[name] for name in ("ags1", "checks")] == [here[name] for name in ("ags1", "checks")]
    assert found["pyspark"] == here["pyspark"] == spark.version


def test_the_variables_of_the_session_are_the_workers_and_not_this_process(
    spark: SparkSession, storage_environment: dict[str, str]
) -> None:
    found = told(spark, _environment_and_origin)
    assert found["AWS_ENDPOINT_URL"] == storage_environment["AWS_ENDPOINT_URL"]
    assert {"AWS_ENDPOINT_URL", "SPARK_HOME", "SPARK_LOCAL_IP", "SPARK_CONF_DIR"}.isdisjoint(os.environ)


def test_nothing_listens_on_another_address_than_loopback(spark: SparkSession) -> None:
    told(spark, dict)
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    addresses = listening(jvm)
    assert addresses
    assert [each for each in addresses if not each.is_loopback] == []


def listening(process: int) -> list[Any]:
    """Addresses on which a process listens, as Linux lists them."""
    from ipaddress import IPv4Address, IPv6Address, ip_address

    proc = Path(f"/proc/{process}")
    if not proc.is_dir():
        pytest.skip("there is no /proc")
    sockets = set()
    for descriptor in (proc / "fd").iterdir():
        try:
            sockets.add(os.readlink(descriptor))
        except FileNotFoundError:
            continue
    found = []
    for family in ("tcp", "tcp6"):
        for line in (proc / "net" / family).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] != _LISTENING or f"socket:[{fields[9]}]" not in sockets:
                continue
            # Words in the byte order of the machine.
            words = bytes.fromhex(fields[1].partition(":")[0])
            packed = b"".join(words[start : start + 4][::-1] for start in range(0, len(words), 4))
            address: IPv4Address | IPv6Address = ip_address(packed)
            found.append(getattr(address, "ipv4_mapped", None) or address)
    return found


def test_a_run_leaves_a_readable_event_log(spark: SparkSession, spark_directory: Path) -> None:
    told(spark, lambda: {"said": "in the worker"})
    (log,) = (spark_directory / "events").iterdir()
    events = [json.loads(line)["Event"] for line in log.read_text().splitlines()]
    assert "SparkListenerTaskEnd" in events


def test_workers_reach_the_bucket_of_a_test(spark: SparkSession, s3: Storage) -> None:
    def tell() -> dict[str, Any]:
        import fsspec

        with fsspec.open(f"{s3_url}/written", "wb") as file:
            file.write(b"by a worker")
        return {}

    s3_url = s3.url
    told(spark, tell)
    body = s3.client.get_object(Bucket=s3.bucket, Key="written")["Body"]
    with body:
        assert body.read() == b"by a worker"


@pytest.mark.parametrize("service", ["kms_url", "vault_url"])
def test_workers_unwrap_what_the_driver_wrapped(
    spark: SparkSession, service: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(service)
    with kms.load(url) as client:
        wrapped = [client.wrap_key(bytes(range(32)), key_id) for key_id in ("lake", "lake2")]

    def tell() -> dict[str, Any]:
        with kms.load(url) as client:
            keys = [client.unwrap_key(each, key_id) for each, key_id in zip(wrapped, ("lake", "lake2"), strict=True)]
        return {"same": keys == [bytes(range(32))] * 2}

    assert told(spark, tell) == {"same": True}


def test_a_script_that_fails_says_why(run_spark: Run) -> None:
    with pytest.raises(AssertionError, match="this script has no luck"):
        run_spark("raise SystemExit('this script has no luck')")
