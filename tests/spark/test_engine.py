"""Planned work on Spark: an outcome for every unit, whatever happens to tasks, and few workers for many tasks."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import cloudpickle

from ags1.dataset.runs import RunReference
from ags1.errors import AuthenticationError, KeyAccessError
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.spark import datasets, parquet
from ags1.spark.engine import captured, parquet_run, planning, progress, runner
from ags1.spark.engine.planning import Unit, gathered
from ags1.spark.engine.progress import Meter
from ags1.spark.engine.results import Recorder
from ags1.spark.engine.runner import Engine, Outcome
from ags1.spark.engine.sealing import Opener, Sealer, kms_client, kms_reference
from ags1.spark.engine.sessions import Session
from ags1.storage import Location
from tests.checks import every, flip
from tests.spark.trees import write_tree
from tests.spark.works import Echo, Waiting, await_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRANGE = ["a", "b\udcff\udcfe", "c\x85d", "é", "日本/\U0001f600", "z'\"\\\n"]


def run(spark: Any, units: list[Unit], work: Any = None, **options: Any) -> list[Outcome]:
    engine = Engine(spark, work or Echo(), progress=options.pop("progress", False), **options)
    return list(itertools.chain.from_iterable(engine.run(units)))


def test_every_unit_has_its_outcome_in_order_with_what_it_carried(spark: SparkSession) -> None:
    units = [Unit(name, 10, {"key": b"\0\xff", "name": name}, start, 20) for name in STRANGE for start in (0, 10)]
    found = run(spark, units, parallelism=5)
    assert [(each.path, each.start) for each in found] == [(unit.path, unit.start) for unit in units]
    assert [each.detail["data"] for each in found] == [unit.data for unit in units]
    assert [each.target for each in found] == [f"at {unit.path}" for unit in units]
    assert {each.attempt for each in found} == {0}


def test_many_tasks_run_in_few_workers(spark: SparkSession) -> None:
    # A task that leaves some of its input costs its worker's life.
    found = run(spark, [Unit(str(index), 1) for index in range(24)], parallelism=24)
    assert len({each.detail["pid"] for each in found}) <= 4


@pytest.mark.parametrize("fault", ["kill", "raise"])
def test_a_task_whose_worker_dies_is_done_again_and_counted_once(fault: str, spark: SparkSession) -> None:
    units = [Unit(str(index), 7) for index in range(6)]
    told: list[tuple[int, int | None]] = []
    found = run(spark, units, Echo(fault, 1), parallelism=2, progress=lambda *done: told.append(done))
    assert [each.path for each in found] == [unit.path for unit in units]
    assert {each.attempt for each in found} == {1}
    assert told[-1] == (42, 42)
    assert all(done <= 42 for done, _ in told)


def test_a_task_that_always_fails_ends_the_run_and_says_why(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="a task that fails"):
        run(spark, [Unit("a", 1)], Echo("raise", 9))
    assert not [each for each in threading.enumerate() if each.name == "ags1-progress"]


def test_an_executor_that_the_kms_refuses_ends_the_run_as_such(spark: SparkSession) -> None:
    with pytest.raises(KeyAccessError, match=r"no permission.*every executor must reach the KMS"):
        list(Engine(spark, Echo("refuse", 9), progress=False).run([Unit("a", 1), Unit("b", 1)]))


def test_no_wave_waits_for_the_next_and_none_is_lost(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_WAVE_UNITS", 4)
    monkeypatch.setattr(planning, "_FIRST_WAVE_UNITS", 4)
    units: list[Unit] = [Unit(f"{index:02}", 1) for index in range(11)]
    engine = Engine(spark, Echo(), progress=False)
    waves = [[each.path for each in wave] for wave in engine.run(units)]
    assert [len(wave) for wave in waves] == [4, 4, 3]
    assert [path for wave in waves for path in wave] == [f"{index:02}" for index in range(11)]


def test_a_listing_that_fails_ends_the_run(spark: SparkSession) -> None:
    def units() -> Iterator[Unit]:
        yield Unit("a", 1)
        raise PermissionError("the listing")

    with pytest.raises(PermissionError, match="the listing"):
        list(Engine(spark, Echo(), progress=False).run(units()))


def test_a_wave_is_some_seconds_of_work() -> None:
    units = [Unit(f"{index:02}", 1 << 30) for index in range(64)]
    assert [len(wave) for wave in gathered(units, 2)] == [16, 16, 16, 16]


def test_a_wave_has_so_many_files_that_their_outcomes_fit_into_memory() -> None:
    units = [Unit(f"{index:06}", 1) for index in range(200_000)]
    assert [len(wave) for wave in gathered(units, 10_000)] == [16_000, 64_000, 100_000, 20_000]


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 8))
def test_the_ranges_of_a_file_stay_in_one_wave(counts: list[int], most: int) -> None:
    units: list[Unit] = []
    for index, count in enumerate(counts):
        units += [Unit(str(index), 1, {}, start, count) for start in range(count)] or [Unit(str(index), 1)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planning, "_WAVE_UNITS", most)
        patched.setattr(planning, "_FIRST_WAVE_UNITS", max(1, most // 2))
        waves = list(gathered(units, 1))
    assert [unit for wave in waves for unit in wave] == units
    paths = [{unit.path for unit in wave} for wave in waves]
    assert all(paths)
    assert sum(map(len, paths)) == len(counts)
    assert all(len(wave) <= most + 9 for wave in waves)


@pytest.mark.parametrize("numbers", [{"parallelism": 0}, {"parallelism": -1}, {"part_bytes": 0}])
def test_numbers_below_1_are_refused(numbers: dict[str, int], spark: SparkSession) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(numbers))} must be at least 1, got"):
        Engine(spark, Echo(), **numbers)


def test_something_else_than_a_session_is_refused() -> None:
    with pytest.raises(TypeError, match="spark must be a SparkSession, not NoneType"):
        Engine(None, Echo())


@pytest.mark.parametrize("missing", [("pandas",), ("pyspark",), ("pyarrow", "pandas")])
def test_what_is_not_installed_is_named(missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    import ags1.spark

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name in missing else find(name, *more))
    # An import also sets the attribute of the package above, which is put back, too.
    monkeypatch.setattr(ags1, "spark", ags1.spark)
    monkeypatch.delitem(sys.modules, "ags1.spark")
    found = importlib.import_module("ags1.spark")
    with pytest.raises(ImportError, match=rf"ags1.spark needs {' and '.join(missing)}: pip install 'ags1\[spark\]'"):
        _ = found.register
    monkeypatch.undo()
    assert sys.modules["ags1.spark"] is ags1.spark


# -- payloads ------------------------------------------------------------------------------------------------


def test_what_tasks_are_sent_is_sealed_for_one_task(kms_url: str) -> None:
    sealer = Sealer.create(kms_url, "lake")
    sealed = sealer.seal(b"where a file is", "label 3")
    assert b"file" not in sealed
    assert sealer.opener.open(sealed, "label 3") == b"where a file is"
    for data, label in ((sealed, "label 4"), (flip(sealed, -1), "label 3"), (sealed[:20], "label 3")):
        with pytest.raises(AuthenticationError, match="was changed on its way, or belongs to another task"):
            sealer.opener.open(data, label)
    assert sealer.seal(b"where a file is", "label 3") != sealed


SECRET = "A/secret+key of the storage"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What tasks are sent, where every location has a secret."""
    secret = SECRET
    sent: list[bytes] = []
    real = runner._run_bins
    for name in captured._ELSEWHERE.values():
        for each in name:
            monkeypatch.delenv(each, raising=False)
    for module in (datasets, parquet_run):
        locate = module.locate
        monkeypatch.setattr(
            module, "locate", lambda name, spark, real=locate: Location(real(name), {"secret_access_key": secret})
        )

    def made(function: Any, *given: Any) -> Any:
        found = functools.partial(function, *given)
        if function is real:
            sent.append(cloudpickle.dumps(found))
        return found

    monkeypatch.setattr(runner, "partial", made)
    return sent


def test_credentials_of_the_storage_travel_sealed(
    spark: SparkSession, spark_directory: Path, kms_url: str, tmp_path: Path, sent: list[bytes]
) -> None:
    write_tree(tmp_path / "raw", {"a": b"1", "d/b": b"2"})
    options: dict[str, Any] = {"kms": kms_url, "progress": False}
    assert datasets.encrypt_files(spark, tmp_path / "raw", tmp_path / "vault", key_id="lake", **options).ok
    assert datasets.verify_files(spark, tmp_path / "vault", **options).ok
    assert datasets.decrypt_files(spark, tmp_path / "vault", tmp_path / "plain", **options).ok
    (tmp_path / "table").mkdir()
    pq.write_table(pa.table({"x": list(range(9))}), tmp_path / "table" / "a.parquet")
    assert parquet.encrypt_parquet(spark, tmp_path / "table", tmp_path / "pme", footer_key_id="lake", **options).ok
    options["transfer_key_id"] = "lake"
    assert parquet.verify_parquet(spark, tmp_path / "pme", **options).ok
    assert parquet.decrypt_parquet(spark, tmp_path / "pme", tmp_path / "open", **options).ok
    assert len(sent) == 6
    written = [path.read_bytes() for path in spark_directory.rglob("*") if path.is_file()]
    for data in [*sent, *written]:
        assert SECRET.encode() not in data


@every("read", [parquet.verify_parquet, parquet.decrypt_parquet])
def test_credentials_that_nothing_seals_stay(
    read: Any,
    spark: SparkSession,
    spark_directory: Path,
    kms_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    sent: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work = tmp_path_factory.mktemp("unsealed")
    (work / "table").mkdir()
    pq.write_table(pa.table({"x": list(range(9))}), work / "table" / "a.parquet")
    assert parquet.encrypt_parquet(
        spark, work / "table", work / "pme", footer_key_id="lake", kms=kms_url, progress=False
    ).ok
    del sent[:]
    target = [work / "open"] if read is parquet.decrypt_parquet else []
    with pytest.raises(
        PermissionError, match=r"secret_access_key, which does not go to tasks.*transfer_key_id"
    ) as caught:
        read(spark, work / "pme", *target, kms=kms_url, progress=False)
    assert SECRET not in str(caught.value)
    with pytest.raises(ValueError, match="transfer_key_id is a master key of the service kms"):
        parquet.verify_parquet(spark, work / "pme", transfer_key_id="lake", progress=False)
    assert sent == []
    # The machines have credentials of their own.
    with monkeypatch.context() as there:
        there.setenv("AWS_PROFILE", "lake")
        assert read(spark, work / "pme", *target, kms=kms_url, progress=False)
    assert len(sent) == 1
    assert b"_run_bins" in sent[0]
    for data in [*sent, *(path.read_bytes() for path in spark_directory.rglob("*") if path.is_file())]:
        assert SECRET.encode() not in data


def test_a_sealer_does_not_travel(kms_url: str) -> None:
    import pickle

    with pytest.raises(TypeError, match="a Sealer cannot be pickled: it holds a key; send its opener"):
        pickle.dumps(Sealer.create(kms_url, "lake"))


@pytest.mark.parametrize("kms", [b"key", None, 7, object()])
def test_a_kms_is_a_reference(kms: Any) -> None:
    with pytest.raises(TypeError, match=r"kms must be a URL such as .*, so that no secret travels"):
        kms_reference(kms)


def test_a_process_asks_the_kms_once_for_a_run(kms_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reference = RunReference.create(WrappedKey("lake"), kms_client(kms_url))
    calls: list[Any] = []
    unwrap = RunReference.unwrap
    monkeypatch.setattr(RunReference, "unwrap", lambda self, kms: (calls.append(kms), unwrap(self, kms))[1])
    assert Opener(reference, kms_url).keys() is Opener(reference, kms_url).keys()
    assert len(calls) == 1
    assert kms_client(kms_url) is kms_client(kms_url)


# -- progress ------------------------------------------------------------------------------------------------


def test_the_line_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now, over = [100.0], [0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    made = Meter("encrypt", lambda: over[0])
    now[0] += 4.0
    made.expect(1500, 4 << 30)
    made.begun(4, 1500, 4 << 30)
    assert made.line() == "ags1 encrypt: 0 of 1,500 files and more, 0 B, 0 B/s"
    over[0] = 1
    assert made.line() == "ags1 encrypt: 375 of 1,500 files and more, 1.1 GB, 268.4 MB/s"
    made.listed()
    assert made.line() == "ags1 encrypt: 375 of 1,500 files, 1.1 GB of 4.3 GB, 268.4 MB/s, 12 s left"
    over[0] = 4
    assert made.line() == "ags1 encrypt: 1,500 of 1,500 files, 4.3 GB of 4.3 GB, 1.1 GB/s"


def test_where_nobody_knows_the_tasks_waves_are_counted() -> None:
    made = Meter("encrypt", lambda: None)
    made.expect(2, 100)
    made.begun(1, 2, 100)
    made.listed()
    assert made.read() == (0, 0, 100)
    made.finished(1, 60)
    assert made.read() == (1, 60, 100)


def test_tasks_that_are_over_are_counted_once() -> None:
    over = [0]
    made = Meter("encrypt", lambda: over[0])
    for tasks, files in ((4, 100), (10, 1000)):
        made.expect(files, 1000 * files)
        made.begun(tasks, files, 1000 * files)
    found = []
    for count in (0, 1, 4, 9, 3):
        over[0] = count
        found.append(made.read()[0])
    # A task that begins anew takes nothing back.
    assert found == [0, 25, 100, 600, 600]
    made.finished(100, 100_000)
    assert made.read()[0] == 600


def test_progress_is_shown_on_a_terminal_and_written_to_no_log(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(spark, [Unit("a", 1 << 20)], progress=True)
    progress.phase_lines("echo", True)("listing", 0, None)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    run(spark, [Unit("a", 1 << 20)], progress=True)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.rpartition("\r")[2].startswith("\x1b[Kags1 echo: 1 of 1 files, 1.0 MB of 1.0 MB, ")
    assert said.err.count("\n") == 1


def test_progress_that_fails_does_not_fail_the_run_before_its_end(spark: SparkSession) -> None:
    assert run(spark, [Unit("a", 1)], progress=lambda done, total: None)


def test_spark_says_what_runs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[str] = []
    real = Session.tagged
    monkeypatch.setattr(Session, "tagged", lambda self, tag, text: (described.append(text), real(self, tag, text))[1])
    run(spark, [Unit("a", 1 << 20), Unit("b", 2 << 20)])
    assert described == ["ags1 echo: 2 files, 3.1 MB in 2 tasks"]


# -- the caller's job group ----------------------------------------------------------------------------------


@contextmanager
def in_job_group(spark: SparkSession, group: str) -> Iterator[Any]:
    """A scheduler's thread: its jobs have a group, a description, a tag and a pool."""
    context = spark.sparkContext
    context.setJobGroup(group, "the nightly run")
    context.setLocalProperty("spark.scheduler.pool", "nights")
    context.addJobTag(f"tag-{group}")
    try:
        yield context
    finally:
        context.removeJobTag(f"tag-{group}")
        for name in (
            "spark.jobGroup.id",
            "spark.job.description",
            "spark.job.interruptOnCancel",
            "spark.scheduler.pool",
        ):
            context.setLocalProperty(name, None)


def own_tags(context: Any, jobs: list[int]) -> set[str]:
    """The tags of ags1 that some jobs have, as Spark's status store has them."""
    found = set()
    for job in jobs:
        tags = context._jsc.sc().statusStore().job(job).jobTags()
        found |= {tags.apply(at) for at in range(tags.size()) if tags.apply(at).startswith("ags1-")}
    return found


def test_the_jobs_of_a_run_keep_the_callers_group_tags_description_and_pool(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "_WAVE_UNITS", 2)
    monkeypatch.setattr(planning, "_FIRST_WAVE_UNITS", 2)
    properties: list[dict[str, str]] = []
    real = Session.tagged

    @contextmanager
    def watched(self: Session, tag: str, text: str) -> Iterator[None]:
        with real(self, tag, text):
            names = ("spark.job.description", "spark.scheduler.pool")
            properties.append({name: str(context.getLocalProperty(name)) for name in names})
            yield

    monkeypatch.setattr(Session, "tagged", watched)
    with in_job_group(spark, "nightly") as context:
        before = context.statusTracker().getJobIdsForGroup("nightly")
        run(spark, [Unit(str(index), 1) for index in range(6)])
        jobs = sorted(context.statusTracker().getJobIdsForGroup("nightly"))
        assert (before, len(jobs)) == ([], 3)
        assert sorted(context._jsc.sc().statusTracker().getJobIdsForTag("tag-nightly")) == jobs
        (tag,) = own_tags(context, jobs)
        assert sorted(context._jsc.sc().statusTracker().getJobIdsForTag(tag)) == jobs
        assert tag.startswith("ags1-echo-")
        assert context.getLocalProperty("spark.jobGroup.id") == "nightly"
        assert context.getLocalProperty("spark.job.description") == "the nightly run"
        assert list(context.getJobTags()) == ["tag-nightly"]
    assert {each["spark.scheduler.pool"] for each in properties} == {"nights"}
    assert {each["spark.job.description"] for each in properties} == {
        "the nightly run: ags1 echo: 2 files, 2 B in 2 tasks"
    }


@pytest.mark.parametrize("by", ["group", "tag", "own tag"])
def test_a_scheduler_cancels_a_run_by_its_own_group_or_tag_or_that_of_the_run(
    by: str, spark: SparkSession, tmp_path: Path
) -> None:
    group = f"cancelled by {by}"

    def cancel() -> None:
        await_file(str(tmp_path / "waiting"))
        if by == "group":
            context.cancelJobGroup(group)
        elif by == "tag":
            context.cancelJobsWithTag(f"tag-{group}")
        else:
            (tag,) = own_tags(context, context.statusTracker().getJobIdsForGroup(group))
            context.cancelJobsWithTag(tag)

    with in_job_group(spark, group) as context:
        canceller = threading.Thread(target=cancel)
        canceller.start()
        try:
            with pytest.raises(Exception, match=r"(?i)cancelled"):
                run(spark, [Unit("a", 1)], Waiting(str(tmp_path)))
        finally:
            (tmp_path / "go").touch()
            canceller.join()
        assert context.getLocalProperty("spark.jobGroup.id") == group


# -- results -------------------------------------------------------------------------------------------------


def test_a_result_has_all_rows_and_is_made_a_dataframe_when_asked(spark: SparkSession) -> None:
    recorder = Recorder(spark, "encrypt")
    recorder.add(
        [
            Outcome("a", "/t/a", 100, 136, seconds=0.5, attempt=2),
            Outcome("b\udcff", "/t/b\udcff", 0, 36),
            Outcome("c", status="error", error="no \udcfe", kind="OSError"),
        ]
    )
    result = recorder.close()
    result.counts["unchanged"] = 7
    result.seconds = 2.0
    assert not result.ok
    assert result.counts == {"ok": 2, "error": 1, "unchanged": 7}
    assert result.errors == [("c", "no \udcfe")]
    rows = [row.asDict() for row in result.dataframe.orderBy("path").collect()]
    assert [row["path"] for row in rows] == ["a", "b\\xff", "c"]
    assert rows[0] == {
        "path": "a", "target": "/t/a", "plaintext_length": 100, "file_length": 136, "status": "ok", "error": None,
        "attempt": 2, "seconds": 0.5, "bytes_per_second": 200.0,
    }  # fmt: skip
    assert rows[2]["error"] == "no \\xfe"
    assert rows[1]["bytes_per_second"] is None
    text = str(result)
    assert text.splitlines()[0] == ("ags1 encrypt: 2 files (100 B) in 2.0 s, 50 B/s, 7 unchanged, 1 failed")
    assert "  c: no" in text
    file = Path(result._file)
    assert file.exists()
    del result, recorder
    assert not file.exists()


def test_an_empty_result_has_an_empty_dataframe(spark: SparkSession) -> None:
    result = Recorder(spark, "encrypt").close()
    assert result.ok
    assert result.dataframe.count() == 0
    assert result.dataframe.columns == list(result.table().column_names)
