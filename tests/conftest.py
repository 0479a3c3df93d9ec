"""How the tests are spread over processes, and how long each may take; tests/README.md tells it to authors of tests."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.checks import HANG_SECONDS
from tests.servers.fixtures import (
    _s3_proxy,
    azure_server,
    gcs_server,
    hdfs_server,
    postgres_server,
    s3_bucket,
    s3_server,
    shaping_proxy,
)

__all__ = [
    "_s3_proxy",
    "azure_server",
    "gcs_server",
    "hdfs_server",
    "postgres_server",
    "s3_bucket",
    "s3_server",
    "shaping_proxy",
]

# What a session-wide fixture starts or shares: its tests run in one process, so that it is there once.
# An item is in the group of the first fixture here that it uses. They stand in the order in which the groups are
# handed out, which is the longest first.
GROUPS = {
    # Before Spark's, because some tests damage these tables for a moment: no other process may use them then.
    "spark_tables": "iceberg-tables",
    "spark_reader": "iceberg-tables",
    "hive_lake": "iceberg-tables",
    "spark": "spark",
    "parquet_peer": "parquet-java",
    "spark_parquet_peer": "parquet-java",
    "java_peer": "iceberg-java",
    "two_field_peer": "iceberg-java",
    "bao": "servers",
    "moto_url": "servers",
    "s3_server": "s3-server",
    "hdfs_server": "hdfs",
    "azure_server": "azure",
    "gcs_server": "gcs",
}
# Files of tests that start whole systems (an install, a cluster, a metastore, a link with faults) for a promise that
# others test without: `make test-long` runs them, and `make test` does not. The longest come first, so that none of
# them is left to one process at the end.
LONG = (
    "test_packaging",
    "packaging/test_wheels",
    "test_extras",
    "cli/test_demo",
    "bench/test_bench_iceberg",
    "spark/test_leaks",
    "dataset/test_interleavings",
    "dataset/test_power_cut",
    "iceberg/test_maintenance_kills",
    "iceberg/test_compaction_moves",
    "iceberg/test_large_plans",
    "iceberg/test_many_files_in_a_store",
    "iceberg/test_catalogs_hive",
    "iceberg/test_catalogs_rest",
    "iceberg/test_compaction_spark",
    "iceberg/test_spark_conversion",
    "iceberg/test_turns",
    "iceberg/test_what_changed_spark",
    "iceberg/test_writing_spark",
    "interop/test_conformance",
    "interop/test_iceberg_rust",
    "interop/test_parquet_java",
    "spark/test_cluster",
    "spark/test_columns",
    "spark/test_compaction",
    "spark/test_connect",
    "spark/test_docs",
    "spark/test_commands",
    "spark/test_iceberg",
    "spark/test_kills",
    "spark/test_object_store",
    "spark/test_parquet",
    "spark/test_shipping",
    "spark/test_source_gzip",
    "spark/test_source_session",
    "spark/test_source_stream",
    "spark/test_source_writer",
    "storage/test_ends",
    "storage/test_faulty_links",
    "storage/test_memory",
    "typing/test_programs",
    "bench/test_bench",
    "test_examples",
)
# Those of them that say how it goes with thousands of files, or on a system of its own: each takes minutes, and `make
# nightly` and `make test-long` run it, not CI. Other files have the mark `nightly` on single tests: what starts a Spark
# of its own, or draws further cases, for what a test beside it shows already.
NIGHTLY = (
    "test_extras",
    "iceberg/test_large_plans",
    "iceberg/test_many_files_in_a_store",
    "packaging/test_wheels",
    "spark/test_cluster",
    "spark/test_shipping",
)
_ROOT = Path(__file__).parent

# A shell has what it runs in the background ignore Ctrl-C. The children of tests, which inherit that, are to obey it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in each run, however slow the machine is: a change fails by what it changed. Those of
# --hypothesis-profile=default are others each time.
settings.register_profile(
    "fixed", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their number: what is random or has the time in it differs between processes."""
    return f"{argname}-{len(val)}-bytes" if isinstance(val, bytes) and len(val) > 16 else None


# Before xdist's, which reads the marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test its group: its own mark's, that of a fixture, or that of its file."""
    if moving := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(f"names of tests with addresses, which differ between processes: {moving}")
    order = list(dict.fromkeys((*GROUPS.values(), *LONG)))
    for item in items:
        file = item.path.relative_to(_ROOT).with_suffix("").as_posix()
        if file in NIGHTLY:
            item.add_marker(pytest.mark.nightly)
        if file in LONG or item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("xdist_group") is None:
            used = getattr(item, "fixturenames", ())
            group = next((group for fixture, group in GROUPS.items() if fixture in used), None)
            item.add_marker(pytest.mark.xdist_group(group or file))
        # A time limit finds hangs, and a machine under load is not one.
        limit = item.get_closest_marker("timeout")
        if limit is not None and limit.args[0] < HANG_SECONDS:
            item.add_marker(pytest.mark.timeout(HANG_SECONDS), append=False)

    def rank(item: pytest.Item) -> int:
        name = _group(item)
        return order.index(name) if name in order else len(order)

    items.sort(key=rank)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run without groups, which would start each server and each JVM in each process."""
    # Millions of objects that stay until the end: without them, a collection of garbage takes a tenth of the time.
    gc.collect()
    gc.freeze()
    session.config.add_cleanup(gc.unfreeze)
    ungrouped = [item.nodeid for item in session.items if "@" not in item.nodeid]
    if getattr(session.config.option, "loadgroup", False) and ungrouped:
        raise pytest.UsageError(f"pytest-xdist did not group {len(ungrouped)} tests: this pytest is too new for it")


def _group(item: pytest.Item) -> str:
    mark = item.get_closest_marker("xdist_group")
    assert mark is not None
    return str(mark.args[0] if mark.args else mark.kwargs["name"])


@pytest.fixture(scope="session", autouse=True)
def a_machine_that_is_never_slow() -> Iterator[None]:
    """Lines say how long something took, and how far it is, where it is slow: no test of other words depends on it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_RATE_AFTER_SECONDS", "_LINE_EVERY_SECONDS"):
            patch.setattr(f"ags1.cli.report.{name}", float("inf"))
        yield
