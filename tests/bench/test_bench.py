"""The benchmark harness: its arithmetic, its floors and its reports. Nothing here asserts a speed."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("numpy")

import numpy as np

import ags1
from ags1.bench import Run
from bench import bench_memory, compare, floors, measure, peer, processes, questions, report, settings, trials
from tests import checks

ROOT = Path(__file__).resolve().parents[2]
KEY = bytes(range(32))


# Figures


@pytest.mark.parametrize(
    ("value", "low", "high", "bound", "expected"),
    [
        (0.98, 0.975, 0.985, "at least", (True, True)),
        (0.98, 0.96, 0.99, "at least", (True, False)),
        (0.90, 0.88, 0.92, "at least", (False, True)),
        (0.90, 0.88, 0.92, "at most", (True, True)),
        (1.10, 0.90, 1.20, "at most", (False, False)),
        (1.00, 0.90, 1.20, None, (None, None)),
    ],
)
def test_targets_are_judged(value, low, high, bound, expected):
    target = None if bound is None else 0.97
    assert measure.judge(value, low, high, bound, target) == expected


def _figures():
    run = Run({"ags1": [0.5, 0.52, 0.51], "C loop": [0.5] * 3, "bare": [0.47] * 3})
    return [
        measure.figure(run, "encrypt | into", "C loop", target=0.97, nbytes=10**9),
        measure.figure(run, "new object", "C loop", measure="time", target=1.1, note="fresh memory counts"),
        measure.figure(run, "import", "bare", measure="ms", kind="reference", target=30.0),
        measure.figure(run, "pread", "C loop", calls=1000),
        measure.memory_figure("peak", "import ags1", 80 << 20, 14 << 20, target=64.0),
    ]


def test_figures_carry_what_the_results_promise():
    speed, time_, more, pread, memory = _figures()
    assert speed.value == pytest.approx(0.5 / 0.51)
    assert (speed.bound, speed.met) == ("at least", True)
    assert speed.subject_gbps == pytest.approx(1 / 0.51)
    assert "GB/s" in speed.subject_text
    assert time_.value == pytest.approx(speed.ratio)
    assert (time_.bound, time_.met) == ("at most", True)
    assert more.value == pytest.approx(40.0)
    assert more.met is False
    assert "µs each" in pread.subject_text
    assert (pread.target, pread.met, pread.bound) == (None, None, None)
    assert memory.value == 66.0
    assert memory.met is False
    fields = json.loads(json.dumps(speed.to_json()))
    assert {"question", "subject", "reference", "kind", "ratio", "value", "low", "high", "target", "met"} <= set(fields)


# Reports


def _results(figures, **extra):
    machine = {**measure.machine(), "python_version": "3"}
    info = {"figures": [figure.to_json() for figure in figures], **extra}
    return {"machine_info": machine, "datetime": "2026-11-21T00:00:00", "benchmarks": [{"extra_info": info}]}


def test_the_table_has_a_row_for_each_figure():
    results = _results(_figures())
    lines = report.table(report.figures_of(results)).splitlines()
    assert lines[0] == "| question | ags1 | floor or peer | ratio [90% interval] | target | met |"
    assert lines[1] == "|---|---|---|---|---|---|"
    assert len(lines) == 2 + len(_figures())
    # A bar in a cell would be another column.
    assert lines[2].startswith(r"| encrypt \| into |")
    assert "at least 0.97 | yes" in lines[2]
    assert "66.0 MiB more | at most 64 | **no** |" in lines[6]


def test_the_report_says_that_a_run_was_quick():
    results = _results(_figures())
    quick, full = (report.markdown(results, quick=each, picture=False) for each in (True, False))
    assert "prove nothing" in quick
    assert "prove nothing" not in full
    assert "3 of 4 targets met" not in full
    assert "2 of 4 targets met" in full
    assert "- new object: fresh memory counts." in full
    assert "load not recorded" in full


def test_the_picture_has_its_data_sorted():
    results = _results([], gbps={"ags1": 2.0, "C loop": 2.1}, block_length=4096, threads=1)
    results["benchmarks"].append(
        {"extra_info": {"gbps": {"ags1": 1.0, "C loop": 1.1}, "block_length": 256, "threads": 1}}
    )
    assert report.throughput_of(results) == {
        1: {"ags1": [(256, 1.0), (4096, 2.0)], "C loop": [(256, 1.1), (4096, 2.1)]},
    }
    assert report.draw(_results([]), Path("nowhere")) is False


def test_the_machine_is_described_without_names():
    machine = measure.machine()
    assert {"cpu_model", "cores", "kernel", "openssl", "file_system", "cryptography"} <= set(machine)
    assert os.uname().nodename not in json.dumps(machine).split('"')
    assert str(Path.home()) not in json.dumps(machine)


# The floors


@pytest.fixture(scope="module", params=["OpenSSL", "BoringSSL"])
def native(request):
    loops = floors.loops()
    if request.param not in loops:
        pytest.skip("BoringSSL cannot be built here")
    return loops[request.param]


def _plain(nbytes):
    return np.random.default_rng(7).integers(0, 256, nbytes, np.uint8)


def test_the_floors_run_on_the_openssl_of_ags1_and_on_boringssl():
    names = {"OpenSSL": ags1.backend()["openssl_version"], "BoringSSL": "BoringSSL"}
    loops = floors.loops()
    assert {name: loop.library for name, loop in loops.items()} == {name: names[name] for name in loops}
    found = ags1.backend()
    assert floors.load() is loops[found["cipher"] if found["openssl_from"] is None else "OpenSSL"]


def test_the_faster_loop_is_the_floor_and_its_library_is_named():
    run = Run({"ags1": [1.0], "C loop, OpenSSL": [1.9], "C loop, BoringSSL": [0.95]})
    assert measure.best_loop(run) == "the C loop is BoringSSL's; OpenSSL's has 0.50 of its speed"
    assert run.seconds["C loop"] == [0.95]
    alone = Run({"ags1": [1.0], "C loop, OpenSSL": [1.9]})
    assert measure.best_loop(alone) == "the C loop is OpenSSL's"


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("nbytes", "block_length"), [(1, 16), (4096, 4096), (100_001, 1000), (3_000_000, 1 << 20)])
def test_what_the_floor_encrypts_ags1_decrypts(native, nbytes, block_length, threads):
    data = _plain(nbytes)
    out = np.zeros(ags1.encrypted_length(nbytes, block_length), np.uint8)
    native.seal(data, out, KEY, block_length, threads)
    assert ags1.decrypt(out, KEY, length=out.nbytes) == data.tobytes()
    back = np.zeros(nbytes, np.uint8)
    native.open(out, nbytes, back, KEY, block_length, threads)
    assert back.tobytes() == data.tobytes()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("piece", [700, 1000, 2500, 100_001])
def test_the_floors_of_streams_do_the_work(native, threads, piece, tmp_path):
    data, path = _plain(100_001), tmp_path / "stream"
    native.write_stream(path, data, KEY, 1000, threads, piece)
    assert ags1.decrypt(path.read_bytes(), KEY) == data.tobytes()
    out = np.zeros(piece, np.uint8)
    native.read_stream(path, len(data), KEY, 1000, threads, piece, out)
    last = (len(data) - 1) // piece * piece
    assert out[: len(data) - last].tobytes() == data[last:].tobytes()
    native.read_stream(path, len(data), KEY, 1000, threads, piece)
    with subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE) as process:
        native.read_pipe(process.stdout.fileno(), len(data), KEY, 1000, piece)
    piped = tmp_path / "piped"
    with piped.open("wb") as target, subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=target) as process:
        native.write_pipe(process.stdin.fileno(), data, KEY, 1000, piece)
    assert ags1.decrypt(piped.read_bytes(), KEY) == data.tobytes()
    path.write_bytes(checks.flip(path.read_bytes(), -1))
    with pytest.raises(floors.FloorError, match="floors_read_stream: a tag did not verify"):
        native.read_stream(path, len(data), KEY, 1000, threads, piece)


def test_the_floor_checks_tags(native):
    stream = np.frombuffer(bytearray(ags1.encrypt(bytes(5000), KEY, block_length=1000)), np.uint8)
    stream[-1] ^= 1
    with pytest.raises(floors.FloorError, match="floors_open: a tag did not verify"):
        native.open(stream, 5000, np.zeros(5000, np.uint8), KEY, 1000, 2)


def test_the_batch_floor_makes_a_stream_of_each_buffer(native):
    buffers = [bytes([i]) * (1 + 13 * i) for i in range(200)]
    arena = np.zeros(sum(ags1.encrypted_length(len(each)) for each in buffers), np.uint8)
    data, offsets = np.frombuffer(b"".join(buffers), np.uint8), np.cumsum([0, *map(len, buffers)])
    # By Intel's library too, where it is.
    for ipsec_mb in {False, native.has_ipsec_mb}:
        arena[:] = 0
        native.many(data, offsets, KEY, 1 << 20, 2, arena, ipsec_mb=ipsec_mb)
        start = 0
        for each in buffers:
            stream = arena[start : start + ags1.encrypted_length(len(each))]
            assert ags1.decrypt(stream, KEY) == each
            start += stream.nbytes
    native.many(data, offsets, KEY, 1 << 20, 1)
    sealed, back = np.cumsum([0, *(ags1.encrypted_length(len(each)) for each in buffers)]), np.zeros_like(data)
    native.many(arena, sealed, KEY, 1 << 20, 2, back, encrypt=False)
    assert (back == data).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_the_file_floor_and_ags1_understand_each_other(native, tmp_path, threads):
    data = _plain(2_500_000).tobytes()
    plain, sealed, back = (tmp_path / name for name in ("plain", "sealed", "back"))
    plain.write_bytes(data)
    native.file(plain, sealed, len(data), KEY, 1 << 20, threads, True)
    assert ags1.decrypt(sealed.read_bytes(), KEY) == data
    native.file(sealed, back, len(data), KEY, 1 << 20, threads, False)
    assert back.read_bytes() == data
    with pytest.raises(floors.FloorError, match="a file could not be opened"):
        native.file(tmp_path / "missing", back, 1, KEY, 1 << 20, 1, True)


def test_the_read_floor_opens_the_block_of_each_offset(native, tmp_path):
    data = _plain(50_000)
    stream = ags1.encrypt(data, KEY, block_length=1000)
    path = tmp_path / "stream"
    path.write_bytes(stream)
    out = np.zeros(100, np.uint8)
    offsets = np.array([0, 49_900, 12_345], np.int64)
    native.read_blocks(stream, offsets, out, data.nbytes, KEY, 1000)
    assert out.tobytes() == data[12_345:12_445].tobytes()
    out[:] = 0
    with open(path, "rb") as file:
        native.read_blocks(file.fileno(), offsets, out, data.nbytes, KEY, 1000)
    assert out.tobytes() == data[12_345:12_445].tobytes()


def test_the_memory_floors_run(native):
    for huge in (True, False):
        native.touch(5 << 20, huge=huge, threads=2)
    data, out = _plain(1000), np.zeros(1000, np.uint8)
    native.copy(out, data)
    assert out.tobytes() == data.tobytes()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("nbytes", "block_length"), [(1000, 1000), (10_001, 1000)])
def test_the_peer_makes_and_reads_ags1(nbytes, block_length, threads):
    data = _plain(nbytes)
    out = bytearray(ags1.encrypted_length(nbytes, block_length))
    peer.seal(data, out, KEY, block_length, threads)
    assert ags1.decrypt(out, KEY) == data.tobytes()
    back = bytearray(nbytes)
    peer.open_(out, nbytes, back, KEY, block_length, threads)
    assert bytes(back) == data.tobytes()
    assert len(peer.seal_each([b"x" * 10] * 3, KEY)) == 3


# Running it


def test_sizes_come_from_the_environment(monkeypatch):
    for name in ("BYTES", "FILE_BYTES", "SECONDS", "QUICK", "DIR"):
        monkeypatch.delenv(f"AGS1_BENCH_{name}", raising=False)
    full = settings.load()
    assert (full.nbytes, full.file_bytes, full.batch_count, full.quick) == (1 << 28, 1 << 28, 1 << 18, False)
    monkeypatch.setenv("AGS1_BENCH_QUICK", "1")
    assert settings.load().nbytes < 1 << 26
    monkeypatch.setenv("AGS1_BENCH_BYTES", "4096")
    assert (settings.load().nbytes, settings.load().file_bytes) == (4096, 4096)
    assert settings.load().threads[0] == 1


def test_peak_memory_is_that_of_the_child_alone():
    # This process holds more than the child ever will.
    ballast = np.ones(96 << 20, np.uint8)
    bare = processes.peak_memory([sys.executable, "-c", "pass"])
    more = processes.peak_memory([sys.executable, "-c", "x = b'1' * (48 << 20)"])
    assert bare < 64 << 20
    assert 40 << 20 < more - bare < 60 << 20
    assert ballast[-1] == 1


def test_a_program_that_fails_is_not_timed_in_silence():
    with pytest.raises(RuntimeError, match=r"failed \(3\): too bad"):
        processes.run([sys.executable, "-c", "import sys; sys.stderr.write('too bad'); sys.exit(3)"])


def test_a_run_ends_in_table_and_json(tmp_path):
    # What pytest-xdist leaves in the environment says that nothing can be measured.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"AGS1_BENCH_BYTES": "4194304", "AGS1_BENCH_SECONDS": "0.01"}
    command = [sys.executable, "-m", "bench", "--quick", "--output", str(tmp_path), "-k"]
    command.append("(encrypt_into and 4KiB-1 and not 64KiB) or pread_memory or (peak_memory and Writer)")
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Quick run" in done.stdout
    results = json.loads((tmp_path / "results.json").read_text())
    assert {"cpu_model", "cores", "openssl", "kernel"} <= set(results["machine_info"])
    assert "node" not in results["machine_info"]
    figures = report.figures_of(results)
    assert len(figures) >= 4
    for each in results["benchmarks"]:
        assert each["extra_info"]["quick"] is True
        assert {"machine", "commit", "date", "load", "samples"} <= set(each["extra_info"]) | {"samples"}
        assert each["stats"]["rounds"] == each["extra_info"]["figures"][0]["rounds"]
    timed = [each for each in results["benchmarks"] if "test_encrypt_into" in each["name"]]
    measured = timed[0]["extra_info"]["figures"][0]["subject_seconds"]
    # pytest-benchmark's own statistics are of the same rounds.
    assert timed[0]["stats"]["median"] == pytest.approx(measured)
    assert "prove nothing" in (tmp_path / "results.md").read_text()


# Comparing revisions


def test_both_sides_answer_over_a_pipe(monkeypatch):
    monkeypatch.setitem(questions.QUESTIONS, "unknown", questions.QUESTIONS["encrypt"])

    started = []

    def start(head_first):
        started.append(head_first)
        return compare.Sides(ROOT, ROOT, 1 << 20, head_first)

    line = compare.ask_both("encrypt_into-4KiB-1", start, seconds=0, limit=0)
    assert line.verdict in ("same", "slower", "faster", "undecided")
    assert line.rounds >= 3
    assert line.base_bytes < 64 << 20
    assert {name: len(samples) for name, samples in line.samples.items()} == dict.fromkeys(
        ["head", "base"], line.rounds
    )
    # What the first process has more of than the second is no difference between revisions.
    assert started == [number % 2 == 1 for number in range(line.rounds)]
    # The other process knows no such question: that is said, and the next one is answered.
    assert compare.ask_both("unknown", start, seconds=0, limit=0).verdict == "not asked"
    assert compare.ask_both("encrypt_file", start, seconds=0, limit=0).ratio > 0


def test_an_injected_slow_down_is_found_between_two_processes(tmp_path):
    """`python -m bench.trials` does it with 5 % on an idle machine; three times as long is found on any."""
    slow = trials.slower_tree(tmp_path, "encrypt_many", 2.0)
    line = compare.ask_both("encrypt_many-1KiB-list", partial(compare.Sides, ROOT, slow, 4 << 20), seconds=0, limit=60)
    assert line.verdict == "slower", line


def test_a_revision_that_is_none_is_refused(capsys):
    assert compare.main(["no-such-revision-of-ags1", "-k", "import"]) == 2
    assert "no-such-revision-of-ags1" in capsys.readouterr().err


def test_one_file_runs_under_plain_pytest_as_the_readme_says(tmp_path):
    """And the extra `bench` has what pytest needs for it, also without the extra `test`."""
    project = pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())
    assert "timeout" in project["tool"]["pytest"]["ini_options"]
    assert any(each.startswith("pytest-timeout") for each in project["project"]["optional-dependencies"]["bench"])
    page = (ROOT / "bench" / "README.md").read_text()
    said = re.search(r"`pytest (bench/bench_\w+\.py[^`]*)`", page)[1].split()
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"AGS1_BENCH_BYTES": "1048576", "AGS1_BENCH_QUICK": "1", "AGS1_BENCH_SECONDS": "0.01"}
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", *said]
    done = subprocess.run([*command, "-k", "decrypt"], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


# -- floors that are none ------------------------------------------------------------------------------------


@checks.every(
    "seconds",
    [
        {"C loop": 1.00, "cryptography": 1.01},
        {"C loop": 1.00, "cryptography": 0.99},
        {"C loop": 1.00, "C loop, OpenSSL 4": 0.80, "cryptography": 0.81},
        {"C loop": 1.00, "ags1": 0.5},
    ],
)
def test_a_floor_that_no_peer_beats_passes(seconds: dict[str, float]) -> None:
    bench_memory.check_floor(Run({name: [each] * 9 for name, each in seconds.items()}))


@checks.every("newer", [None, 0.95])
def test_a_floor_that_a_peer_beats_fails_the_benchmark(newer: float | None) -> None:
    run = Run({"C loop": [1.0] * 9, "cryptography": [0.9] * 9})
    if newer is not None:
        run.seconds[bench_memory.NEWER] = [newer] * 9
    with pytest.raises(AssertionError, match=r"find what the loop in floors\.c does worse"):
        bench_memory.check_floor(run)
