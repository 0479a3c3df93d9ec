"""How many requests the work on a table in a store takes: a small file is one each way."""

from __future__ import annotations

import datetime
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from ags1.errors import AuthenticationError, FormatError, TruncatedError, UnsupportedError
from ags1.iceberg import (
    EncryptedTable,
    MaintenancePolicy,
    clean,
    create_table,
    decrypt_table,
    encrypt_table,
    expire_snapshots,
    load_table,
    open_table,
    plan_conversion,
    rekey_table,
    relocate_table,
)
from ags1.iceberg.conversion import engine
from ags1.iceberg.metadata.locations import location_of
from ags1.iceberg.scan import table_scan
from ags1.iceberg.walk import table_verification
from ags1.kms import MemoryKms
from ags1.parquet.rewrite import page_copy
from ags1.parquet.verify import module_walk
from ags1.storage import SEQUENTIAL_PIECE, SMALL, Location, identity_of, list_files, open_output, read_whole, remove
from tests.iceberg.warehouse import SparkTables, local_path
from tests.servers.proxy import ShapingProxy
from tests.servers.s3 import S3Server

FILES = 16
ROWS = pa.table({"id": range(200), "s": ["x", "y"] * 100})


class CountingKms(MemoryKms):
    """Counts the calls."""

    def __init__(self) -> None:
        super().__init__({"lake": bytes(16), "next": bytes(range(16))})
        self.calls = Counter[str]()

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        self.calls["wrap"] += 1
        return super()._wrap(key, key_id)

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        self.calls["unwrap"] += 1
        return super()._unwrap(wrapped, key_id)


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[ShapingProxy]:
    with ShapingProxy.start(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def kms() -> CountingKms:
    return CountingKms()


@pytest.fixture
def table(s3_server: S3Server, s3_bucket: str, proxy: ShapingProxy, kms: CountingKms) -> str:
    """Where a table of small files is; requests to it are counted."""
    place = f"s3://{s3_bucket}/t"
    made = create_table(None, place, ROWS.schema, kms=kms, key_id="lake", storage_options=options(s3_server))
    for _ in range(FILES):
        made.append(ROWS)
    kms.calls.clear()
    return place


def options(server: S3Server) -> dict[str, str]:
    return {
        "s3.endpoint": server.endpoint,
        "s3.region": server.region,
        "s3.access-key-id": server.access_key,
        "s3.secret-access-key": server.secret_key,
    }


def by_object(proxy: ShapingProxy, server: S3Server) -> dict[str, list[str]]:
    """The methods of all requests, by the path of the object, sorted."""
    found: dict[str, list[str]] = {}
    for each in proxy.log().requests:
        found.setdefault(each.path.partition("?")[0], []).append(each.method)
    return {path: sorted(methods) for path, methods in found.items()}


def data_files(found: dict[str, list[str]]) -> list[list[str]]:
    return [methods for path, methods in found.items() if path.endswith(".parquet")]


CONVERSIONS = {
    "re-key": lambda opened: rekey_table(opened, key_id="next", data_keys=True),
    "decrypt": decrypt_table,
    "encrypt": lambda opened: encrypt_table(opened, key_id="lake", steps=("enable", "convert")),
    "relocate": lambda opened: relocate_table(opened, f"{opened.table.location()}-moved"),
}


@pytest.mark.parametrize("which", CONVERSIONS)
def test_a_conversion_reads_a_small_file_once_and_writes_it_once(
    which: str, table: str, s3_server: S3Server, proxy: ShapingProxy, kms: CountingKms
) -> None:
    def opened() -> Any:
        return load_table(
            None, table, kms=kms, properties=options(s3_server.through(proxy.endpoint)), allow_plaintext=True
        )

    if which == "encrypt":
        decrypt_table(opened())
    kms.calls.clear()
    proxy.forget()
    report = CONVERSIONS[which](opened())
    assert report.files == FILES
    found = by_object(proxy, s3_server)
    # The plan reads rows of one file of each form, if it is not copied.
    read = 0 if which == "relocate" else 1
    expected = Counter({("GET",): FILES - read, ("GET", "GET"): read, ("PUT",): FILES})
    assert Counter(map(tuple, data_files(found))) == expected
    # What names the files is read once too, before and after; a re-key also asks what old keys open.
    if which in ("encrypt", "decrypt"):
        old = [methods for path, methods in found.items() if path.endswith(".avro") and "PUT" not in methods]
        assert len(old) == FILES + 1
        assert {tuple(each) for each in old} == {("GET",)}
    # No file of the table is asked for its length.
    assert not [path for path, methods in found.items() if "HEAD" in methods and path.endswith((".avro", ".parquet"))]
    # For the master key of each side: the work key, and the key that wraps those of manifests; not for each file.
    assert sum(kms.calls.values()) <= 8


def test_one_thread_checks_and_makes_the_small_files_of_a_conversion_while_others_read_and_write_them(
    table: str, s3_server: S3Server, kms: CountingKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, list[threading.Thread]] = {name: [] for name in ("opened", "check", "make", "run")}

    def told(name: str) -> Callable[..., Any]:
        function = getattr(engine, name)

        def call(*arguments: Any, **options: Any) -> Any:
            threads[name].append(threading.current_thread())
            return function(*arguments, **options)

        return call

    for name in threads:
        monkeypatch.setattr(engine, name, told(name))
    opened = load_table(None, table, kms=kms, properties=options(s3_server))
    assert rekey_table(opened, key_id="next", data_keys=True).files == FILES
    here = threading.current_thread()
    assert {name: [each is here for each in found] for name, found in threads.items()} == {
        "opened": [False] * FILES,
        "check": [True] * FILES,
        "make": [True] * FILES,
        "run": [False] * FILES,
    }
    assert opened.refresh().verify().ok


def test_damaged_small_files_are_all_named_and_nothing_is_written(
    table: str, s3_server: S3Server, kms: CountingKms
) -> None:
    opened = load_table(None, table, kms=kms, properties=options(s3_server))
    place = Location(table, s3_server.storage_options())
    flipped, cut, lost, swapped, other = [
        each.location for each in list_files(place) if each.name.endswith(".parquet")
    ][:5]
    content = bytearray(read_whole(flipped, SMALL))
    content[-40] ^= 1
    for where, data in ((flipped, content), (cut, read_whole(cut, SMALL)[:-1]), (swapped, read_whole(other, SMALL))):
        with open_output(where) as output:
            output.write(data)
            output.commit()
    remove([lost])
    before = {each.name for each in list_files(place)}
    plan = plan_conversion(opened, data_keys=True)
    assert [sum(each.path in problem for problem in plan.problems) for each in (flipped, cut, lost, swapped)] == [1] * 4
    assert len(plan.problems) == 4
    with pytest.raises(
        (FormatError, AuthenticationError, TruncatedError, FileNotFoundError), match="and 3 more problems"
    ):
        rekey_table(opened, key_id="next", data_keys=True)
    assert {each.name for each in list_files(place)} == before


def test_an_interrupt_amid_the_checks_leaves_no_thread_and_writes_nothing(
    table: str, s3_server: S3Server, kms: CountingKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = load_table(None, table, kms=kms, properties=options(s3_server))
    place = Location(table, s3_server.storage_options())
    before = {each.name for each in list_files(place)}
    checked = list[Any]()

    def interrupted(*arguments: Any) -> Any:
        checked.append(arguments)
        if len(checked) == 3:
            raise KeyboardInterrupt
        return check(*arguments)

    check = engine.check
    monkeypatch.setattr(engine, "check", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rekey_table(opened, key_id="next", data_keys=True)
    assert not [each for each in threading.enumerate() if each.name.startswith("ags1-parallel")]
    assert {each.name for each in list_files(place)} == before


@pytest.mark.parametrize("which", ["expire", "clean"])
def test_files_that_nobody_needs_are_removed_together_and_not_read(
    which: str, table: str, s3_server: S3Server, proxy: ShapingProxy, kms: CountingKms
) -> None:
    properties = options(s3_server.through(proxy.endpoint))
    opened = load_table(None, table, kms=kms, properties=properties)
    if which == "expire":
        rekey_table(opened, key_id="next", data_keys=True, expire=False)
    else:
        for number in range(FILES):
            with open_output(Location(f"{table}/data/orphan-{number}.parquet", s3_server.storage_options())) as output:
                output.write(b"PAR1 of a run that was killed")
                output.commit()
    opened.refresh()
    kms.calls.clear()
    proxy.forget()
    if which == "expire":
        assert expire_snapshots(opened).files["data"] == FILES
    else:
        assert len(clean(opened, older_than=datetime.timedelta(0)).paths) == FILES
    assert data_files(by_object(proxy, s3_server)) == []
    # One for a thousand files; expiry removes manifests after what they name, and manifest lists after these.
    assert len(proxy.log().only("POST", "delete")) == (3 if which == "expire" else 1)
    assert sum(kms.calls.values()) <= 4


def test_a_large_file_is_read_once_and_its_footer_with_its_beginning(
    s3_server: S3Server, s3_bucket: str, proxy: ShapingProxy, kms: CountingKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, chooser = f"s3://{s3_bucket}/large", random.Random(3)
    rows = pa.table({"b": [chooser.randbytes(chooser.randrange(400_000)) for _ in range(100)]})
    made = create_table(
        None, place, rows.schema, kms=kms, key_id="lake", storage_options=options(s3_server),
        properties={"write.parquet.page-row-limit": "1", "write.parquet.page-size-bytes": "1"},
    )  # fmt: skip
    made.append(rows)
    (size,) = (each.file.file_size_in_bytes for each in made.scan().plan_files())
    # Each window has one request, and ends inside of a page, with which the next one begins.
    window = -(-size // ((size + SEQUENTIAL_PIECE // 2) // SEQUENTIAL_PIECE))
    assert size > 3 * window
    for module in (page_copy, module_walk):
        monkeypatch.setattr(module, "_WINDOW", window)
    properties = options(s3_server.through(proxy.endpoint))
    kms.calls.clear()

    def fetched() -> tuple[int, list[tuple[float, float | None]]]:
        """Bytes of the data file that came, and when the requests for its ends were under way."""
        found = proxy.log().only("GET", r"/data/.*\.parquet")
        ends = [(each.started, each.ended) for each in found.requests if each.downloaded == 64 << 10]
        proxy.forget()
        return found.downloaded, ends

    proxy.forget()
    assert load_table(None, place, kms=kms, properties=properties).verify().ok
    nbytes, ends = fetched()
    assert len(ends) == 2
    assert nbytes <= size + sum(64 << 10 for _ in ends)
    rekey_table(load_table(None, place, kms=kms, properties=properties), key_id="next", data_keys=True)
    nbytes, ends = fetched()
    # Looked at before anything is written, rows read for the plan, then read, and what was made looked at.
    assert len(ends) == 8
    assert nbytes <= 2 * size + sum(64 << 10 for _ in ends)
    scanned = load_table(None, place, kms=kms, properties=properties).scan().to_arrow()
    assert scanned.equals(rows.cast(scanned.schema))


def test_a_store_tells_the_identity_of_what_was_written(s3_server: S3Server, s3_bucket: str) -> None:
    place = Location(f"s3://{s3_bucket}/x", s3_server.storage_options())
    for parts in ([b"small"], [bytes(9 << 20)] * 3):
        with open_output(place) as output:
            for part in parts:
                output.write(part)
            assert not output.identity
            output.commit()
        assert output.identity == identity_of(place)


def test_a_scan_and_a_verification_read_a_small_file_once(
    table: str, s3_server: S3Server, proxy: ShapingProxy, kms: CountingKms
) -> None:
    properties = options(s3_server.through(proxy.endpoint))
    opened = load_table(None, table, kms=kms, properties=properties)
    assert opened.scan().to_arrow().num_rows == FILES * ROWS.num_rows
    assert data_files(by_object(proxy, s3_server)) == [["GET"]] * FILES
    proxy.forget()
    assert load_table(None, table, kms=kms, properties=properties).verify().ok
    found = by_object(proxy, s3_server)
    assert data_files(found) == [["GET"]] * FILES
    assert {methods for path, of in found.items() if path.endswith(".avro") for methods in of} == {"GET"}


@pytest.mark.parametrize("work", ["scan", "verify"])
def test_small_files_are_requested_together_also_on_one_processor(
    work: str, table: str, s3_server: S3Server, proxy: ShapingProxy, kms: CountingKms, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (table_scan, table_verification):
        monkeypatch.setattr(module, "usable_cpus", lambda: 1)
    opened = load_table(None, table, kms=kms, properties=options(s3_server.through(proxy.endpoint)))
    proxy.shape(latency=0.2)
    proxy.forget()
    if work == "scan":
        assert opened.scan().to_arrow().num_rows == FILES * ROWS.num_rows
    else:
        assert opened.verify().ok
    found = proxy.log().only("GET", r".*\.parquet").requests
    assert len(found) == FILES
    first_response = min(each.ended for each in found if each.ended is not None)
    assert sum(each.started < first_response for each in found) > FILES // 2


@pytest.mark.parametrize("fault", ["missing", "damaged"])
def test_a_fault_in_a_file_that_was_requested_ahead_is_that_of_its_file_alone(
    fault: str, table: str, s3_server: S3Server, kms: CountingKms
) -> None:
    properties = options(s3_server)
    opened = load_table(None, table, kms=kms, properties=properties)
    victim = list(opened.scan().plan_files())[FILES // 2].file.file_path
    place = Location(victim, s3_server.storage_options())
    if fault == "missing":
        remove([place])
    else:
        data = bytearray(read_whole(place, 1 << 20))
        data[len(data) // 3] ^= 1
        with open_output(place) as output:
            output.write(data)
            output.commit()
    report = load_table(None, table, kms=kms, properties=properties).verify()
    assert [(each.code, each.subject) for each in report.having(fault)] == [(fault, victim)]
    assert (report.facts["by_kind"]["data"], len(report.findings)) == (FILES - 1, 1)
    expected = FileNotFoundError if fault == "missing" else AuthenticationError
    with pytest.raises(expected, match=Path(victim).name):
        load_table(None, table, kms=kms, properties=properties).scan().to_arrow()
    # What was requested ahead, and not taken, is not there for the next scan.
    rows = load_table(None, table, kms=kms, properties=properties).scan(limit=300).to_arrow()
    assert rows.num_rows == 300


def test_tables_of_spark_have_the_rows_and_the_report_in_a_store_that_they_have_on_the_disk(
    spark_tables: SparkTables, table_kms: MemoryKms, s3_server: S3Server, s3_bucket: str, proxy: ShapingProxy
) -> None:
    """Every form of data files and deletes; each small data file is requested once."""
    store = s3_server.store(s3_bucket)
    properties = options(s3_server.through(proxy.endpoint))
    for name, made in spark_tables.items():
        for path in made.location.rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                store.put(f"{name}/{path.relative_to(made.location)}", path.read_bytes())
        here = open_table(made.metadata, table_kms, allow_plaintext=True)
        there = open_table(
            f"s3://{s3_bucket}/{name}/metadata/{Path(made.metadata).name}", table_kms, properties=properties,
            allow_plaintext=True, moved_from=made.location.as_uri(), allowed_locations=[f"s3://{s3_bucket}/"],
        )  # fmt: skip
        proxy.forget()
        rows = rows_if_read(there)
        assert rows == rows_if_read(here), name
        requests = {path.rpartition("/")[2]: methods for path, methods in by_object(proxy, s3_server).items()}
        if rows is not None:
            paths = [local_path(each.file.file_path) for each in here.scan().plan_files()]
            data = {each.name for each in paths if each.is_relative_to(made.location) and each.stat().st_size <= SMALL}
            assert {each: requests[each] for each in data} == {each: ["GET"] for each in data}, name
        reports = [each.verify() for each in (there, here)]
        kinds = [sorted((each.severity, each.code) for each in report.findings) for report in reports]
        assert kinds[0] == kinds[1], name
        assert reports[0].facts == reports[1].facts, name


def rows_if_read(table: EncryptedTable) -> str | None:
    """The rows, in which NaN equals NaN; None if ags1 does not read this table."""
    try:
        return repr(table.scan().to_arrow().to_pylist())
    except UnsupportedError:
        return None


def test_a_table_in_a_store_is_rekeyed_and_the_old_key_opens_nothing(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    kms = MemoryKms({"lake": bytes(16), "next": bytes(range(16))})
    catalog = SqlCatalog(
        "store", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"s3://{s3_bucket}/lake", **options(s3_server)
    )
    catalog.create_namespace("db")
    made = create_table(catalog, "db.a", ROWS.schema, kms=kms, key_id="lake")
    made.append(ROWS)
    made.append(ROWS)
    rekey_table(made, key_id="next")
    report = rekey_table(made.refresh(), key_id="next", data_keys=True, expire=True)
    assert report.ok
    assert report.old_keys is not None
    assert (report.old_keys.opened, report.old_keys.snapshots, report.old_keys.files) == (["lake"], [], 0)
    assert report.old_keys.metadata_files
    only_new = load_table(catalog, "db.a", kms=MemoryKms({"next": bytes(range(16))}))
    assert only_new.scan().count() == 2 * ROWS.num_rows


def test_compaction_reads_a_small_file_once_and_leaves_one_of_them(
    table: str, s3_server: S3Server, proxy: ShapingProxy, kms: CountingKms
) -> None:
    opened = load_table(None, table, kms=kms, properties=options(s3_server.through(proxy.endpoint)))
    before = numbered(opened)
    old = opened.table.current_snapshot().snapshot_id
    opened.table.manage_snapshots().create_branch(old, "side").create_tag(old, "old").commit()
    proxy.forget()
    kms.calls.clear()
    report = opened.compact()
    assert (report.files, report.added_files) == (FILES, 1)
    found = by_object(proxy, s3_server)
    assert sorted(data_files(found)) == [["GET"]] * FILES + [["PUT"]]
    assert not [path for path, methods in found.items() if "HEAD" in methods and path.endswith((".avro", ".parquet"))]
    assert sum(kms.calls.values()) <= 4
    assert numbered(opened) == numbered(opened, ref="side") == numbered(opened, ref="old") == before
    # A branch goes on on its own, and the table goes back.
    opened.append(ROWS, ref="side")
    opened.compact(ref="side")
    assert len(opened.scan(ref="side").plan_files()) == 1
    assert numbered(opened) == before
    opened.table.manage_snapshots().rollback_to_snapshot(old).commit()
    opened.refresh()
    assert len(opened.scan().plan_files()) == FILES
    assert numbered(opened) == before
    opened.table.manage_snapshots().remove_branch("side").commit()


def test_maintenance_in_a_store_leaves_the_files_that_are_named(
    table: str, s3_server: S3Server, proxy: ShapingProxy, kms: CountingKms
) -> None:
    properties = options(s3_server.through(proxy.endpoint))
    opened = load_table(None, table, kms=kms, properties=properties)
    opened.delete("id < 3")
    before = numbered(opened)
    orphan = location_of(f"{table}/data/orphan.parquet", properties)
    with open_output(orphan) as output:
        output.write(b"left by a killed run")
        output.commit()
    now = datetime.timedelta(0)
    policy = MaintenancePolicy(expire_older_than=now, clean_older_than=now)
    planned = opened.maintain(policy, dry_run=True)
    assert planned.cleaned is not None
    assert planned.cleaned.paths == [orphan.text]
    proxy.forget()
    report = opened.maintain(policy)
    assert (report.compactions[0].added_files, len(opened.snapshots())) == (1, 1)
    # Hundreds of files are gone, by bulk requests.
    assert len([each for each in proxy.log().requests if each.method == "DELETE"]) == 0
    assert numbered(opened) == before
    names = {each.name for each in list_files(location_of(f"{table}/data", properties))}
    assert names == {path.rpartition("/")[2] for path in opened.files()["path"].to_pylist() if path.endswith("parquet")}
    assert opened.verify().ok
    assert not clean(opened, older_than=now).paths


def numbered(table: EncryptedTable, **options: str) -> list[dict[str, object]]:
    """The rows with their numbers."""
    scan = table.scan(columns=["*", "_row_id", "_last_updated_sequence_number"], **options)
    found: list[dict[str, object]] = scan.to_arrow().sort_by("_row_id").to_pylist()
    return found
