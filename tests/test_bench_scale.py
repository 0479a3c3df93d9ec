"""The model of Spark at scale: it adds up, and what holds a run up is what was made to. No speed is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")
pytest.importorskip("pyspark")

from bench import scale, scale_report, scale_runs
from bench.scale import GIB, KIB, MIB, PIB, TIB, Cluster, Costs, Load, Storage, predict

ROOT = Path(__file__).resolve().parent.parent
FREE = Costs(
    run=0, wave=0, task=0, listed=0, planned=0, committed=0, cut_file=0, small_file=0, copied_byte=0, sealed_byte=0,
    manifest_bytes=0, unit_bytes=0, driver_bytes=0, worker_bytes=0,
)  # fmt: skip
SOME = Costs(
    run=0.02, wave=0.02, task=0.05, listed=6e-6, planned=6e-6, committed=17e-6, cut_file=2e-3, small_file=70e-6,
    copied_byte=1e-9, sealed_byte=2e-10, manifest_bytes=230, unit_bytes=2300, driver_bytes=190 << 20,
    worker_bytes=136 << 20,
)  # fmt: skip


# Slots and pipes


def test_tasks_wait_for_a_slot() -> None:
    slots = scale.Slots(3)
    assert slots.run(0.0, [(7, 2.0)]) == 6.0
    # One slot ended at 4 with its two, and gets what comes next.
    assert slots.run(1.0, [(1, 1.0)]) == 5.0
    assert slots.run(10.0, [(2, 1.0), (1, 5.0)]) == 15.0


def test_what_is_sent_together_goes_one_after_the_other() -> None:
    pipe = scale.Pipe(10.0)
    assert pipe.run(0.0, 50.0) == 5.0
    assert pipe.run(1.0, 10.0) == 6.0
    assert pipe.run(8.0, 10.0) == 9.0
    assert scale.Pipe(0.0).run(3.0, 1e18) == 3.0


# The pipeline's shape


def test_waves_are_those_of_the_engine() -> None:
    from ags1.spark._engine import _WAVE_UNITS

    sizes = [units for _, units in scale.wave_sizes(Load(200_000, 200_000 * KIB))]
    assert sizes[:3] == [4_000, 16_000, 64_000]
    assert max(sizes) <= _WAVE_UNITS
    assert sum(sizes) == 200_000
    # The ranges of a file are in one wave.
    assert list(scale.wave_sizes(Load(5, 5 * GIB), MIB)) == [(4, 4096), (1, 1024)]


def test_tasks_are_those_of_the_planner() -> None:
    bins = scale.bins_of(4_000, 4 * KIB, 8, 256 * MIB)
    assert sum(count for count, _, _ in bins) == 8
    assert sum(count * units for count, units, _ in bins) == 4_000
    assert sum(count * nbytes for count, _, nbytes in bins) == 4_000 * 4 * KIB
    assert scale.bins_of(1, GIB, 100, 256 * MIB) == ((4, 1, 256 * MIB),)
    assert scale.ranges_of(GIB + 1, 256 * MIB) == (256 * MIB,) * 4 + (1,)


@pytest.mark.parametrize("files", scale_report.FILES)
def test_everything_is_counted_once(files: int) -> None:
    found = predict(Load(files, files * 64 * KIB), Cluster(10), scale.S3, SOME)
    assert found.units == files
    assert (found.gets, found.puts) == (files, files)
    assert found.manifest == pytest.approx(230 * files, abs=MIB)


def test_a_file_that_is_cut_is_an_upload_of_many_parts() -> None:
    found = predict(Load(10, 10 * GIB), Cluster(10), scale.S3, SOME)
    assert found.units == 40
    assert found.puts == 10 * (4 * 32 + 2)


def test_time_is_never_less_than_what_one_resource_takes_alone() -> None:
    for storage in (*scale.STORAGES, scale.LOCAL):
        for files, nbytes in ((1_000, GIB), (10**6, 4 * TIB), (20_000, 64 * TIB)):
            found = predict(Load(files, nbytes), Cluster(20), storage, SOME)
            for kinds in scale.RESOURCES.values():
                alone = sum(found.alone[kind] for kind in kinds)
                assert found.seconds >= alone * 0.999, (storage.name, files, kinds)


def test_more_executors_are_never_slower() -> None:
    seconds = [predict(Load(10**6, TIB), Cluster(count), scale.S3, SOME).seconds for count in (1, 10, 100, 1000)]
    assert seconds == sorted(seconds, reverse=True)


def test_memory_of_the_driver_does_not_grow_with_the_tree() -> None:
    small, large = (predict(Load(files, files * KIB), Cluster(10), scale.S3, SOME) for files in (10**6, 10**8))
    assert small.driver_memory == large.driver_memory < 1.1 * GIB
    assert large.manifest > 20 * GIB


# What holds a run up is what costs most


SLOW = Storage("slow", latency=0.0, connection=0.0, is_object_store=True)


@pytest.mark.parametrize(
    ("costs", "storage", "load", "expected"),
    [
        (replace(FREE, run=100), SLOW, Load(10, KIB), "start of the run"),
        (replace(FREE, listed=1), SLOW, Load(10, KIB), "listing"),
        (FREE, replace(SLOW, latency=1, page=1), Load(100_000, GIB), "listing"),
        (replace(FREE, planned=1), SLOW, Load(10, KIB), "planning"),
        (replace(FREE, wave=1), SLOW, Load(10, KIB), "planning"),
        (replace(FREE, committed=1), SLOW, Load(10, KIB), "commit"),
        (replace(FREE, cut_file=1), scale.LOCAL, Load(10, 10 * GIB), "uploads begun and ended"),
        (replace(FREE, task=1), SLOW, Load(10, KIB), "start of tasks"),
        (replace(FREE, small_file=1), SLOW, Load(10, KIB), "waits for each file"),
        (replace(FREE, copied_byte=1), scale.LOCAL, Load(10, KIB), "bytes in tasks"),
        (FREE, replace(SLOW, connection=1.0), Load(10, KIB), "bytes in tasks"),
        (FREE, replace(SLOW, puts=1.0), Load(10, KIB), "requests a second"),
        (FREE, replace(SLOW, executor=1.0), Load(10, KIB), "network"),
        (FREE, replace(SLOW, total=1.0), Load(10, KIB), "network"),
    ],
)
def test_what_costs_most_is_the_bottleneck(costs: Costs, storage: Storage, load: Load, expected: str) -> None:
    found = predict(load, Cluster(1), storage, costs)
    assert found.bottleneck == expected
    assert found.seconds > 0


def test_what_shares_a_resource_is_added_before_it_is_compared() -> None:
    assert scale.bottleneck_of({"listing": 3.0, "commit": 4.0, "bytes in tasks": 6.0}) == "commit"


# Measuring, and the report


def test_a_tree_is_encrypted_for_real_without_spark(tmp_path: Path) -> None:
    from ags1 import dataset

    kms = scale_runs._keystore(tmp_path)
    source = scale_runs._fill(tmp_path / "source", 130, 100)
    before, tasks, after, vault = scale_runs._split(source, tmp_path, kms)
    assert min(before, tasks, after) > 0
    with dataset.open(vault, kms) as opened:
        assert len(list(opened.files)) == 130
        assert opened.verify().ok


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(scale_report, "FILES", (10**3, 10**6))
    machine = {"cores": 2, "cpu_model": "a CPU", "python_version": "3"}
    check = {
        "master": "local[1]", "what": "files", "predicted": 1.0, "actual": 2.0, "all": [1.9, 2.0, 2.5], "ratio": 0.5,
        "bottleneck": "start of tasks",
    }  # fmt: skip
    return {
        "costs": vars(SOME), "machine": machine, "load_average_at_start": 0.1, "date": "2026-11-21", "check": [check],
    }  # fmt: skip


def test_the_report_says_what_is_measured_and_what_is_assumed(measured: dict[str, Any]) -> None:
    text = scale_report.markdown(measured)
    assert "| a task, in its slot | 50.0 ms |" in text
    assert "Assumed, never measured here" in text
    for storage in scale.STORAGES:
        assert f"**{storage.name}**: {storage.words}." in text
    assert "| local[1] | files | 1.00 s | 2.00 s (1.90 to 2.50) | 0.50 | 0.53 | start of tasks |" in text
    assert "other work" in text


def test_tables_and_picture_are_made_from_what_was_measured(
    measured: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    assert scale.main(["--output", str(tmp_path)]) == 1
    assert "python -m bench.scale --measure" in capsys.readouterr().err
    (tmp_path / "scale.json").write_text(json.dumps(measured))
    assert scale.main(["--output", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["scale.json", "scale.md", "scale.png", "scale.svg"]
    assert capsys.readouterr().out.startswith("# ags1.spark at scale")


@pytest.mark.parametrize(
    ("show", "value", "expected"),
    [
        (scale_report.bytes_text, 10 * PIB, "10 PiB"),
        (scale_report.bytes_text, 12, "12 B"),
        (scale_report.time_text, 0.0213, "0.0213 s"),
        (scale_report.time_text, 119.0, "119 s"),
        (scale_report.time_text, 7200.0, "2 h"),
        (scale_report.count_text, 10**7, "10^7"),
        (scale_report.count_text, 4_000_000, "4,000,000"),
    ],
)
def test_numbers_for_people(show: Any, value: Any, expected: str) -> None:
    assert show(value) == expected


def test_it_has_a_help_without_measuring() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.scale", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "--measure" in done.stdout
