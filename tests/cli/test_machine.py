"""info and bench: what this runs on, and how fast."""

from __future__ import annotations

from pathlib import Path

import pytest

import ags1
from tests.cli.conftest import Run


def test_info_shows_version_openssl_and_code_path(run: Run) -> None:
    result = run("info")
    assert (result.code, result.err) == (0, "")
    assert f"ags1       {ags1.__version__}, Python" in result.out
    assert ags1.backend()["openssl_version"] in result.out
    for word in ("AES-GCM", "CPU", "threads"):
        assert f"\n{word} " in result.out


def test_info_as_json_is_what_backend_says(run: Run) -> None:
    (record,) = run("info", "--json").records
    assert record.pop("ags1_version") == ags1.__version__
    assert record.pop("python")
    assert record == ags1.backend()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"aes_gcm": "generic", "cpu_features": []}, ["without AES instructions", "no AES instructions seen"]),
        (
            {"aes_gcm": "aesni-avx", "cpu_features": ["AVX512F", "VAES"]},
            ["CPU has VAES, but this OpenSSL does not use it"],
        ),
        ({"aes_gcm": "aesni-avx", "remedy": "bring the sources"}, ["to do      bring the sources"]),
        ({"aes_gcm": "new", "linkage": "new"}, ["AES-GCM    new", ": new"]),
    ],
)
def test_info_says_what_makes_it_slow(
    run: Run, monkeypatch: pytest.MonkeyPatch, found: dict[str, object], words: list[str]
) -> None:
    from ags1.cli import machine as cli_machine

    everything = {**ags1.backend(), **found}
    monkeypatch.setattr(cli_machine, "backend", lambda: everything)
    shown = run("info").out
    for word in words:
        assert word in shown


@pytest.mark.parametrize(
    ("path", "features"),
    [("aesni-avx", ["AES-NI", "AVX2", "VAES"]), ("vaes-avx2", ["AVX512F", "VAES"])],
    ids=["no AVX-512", "BoringSSL"],
)
def test_info_notes_no_slowness_that_no_openssl_would_mend(
    path: str, features: list[str], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ags1.cli import machine as cli_machine

    found = {**ags1.backend(), "aes_gcm": path, "cpu_features": features}
    monkeypatch.setattr(cli_machine, "backend", lambda: found)
    assert "VAES, but" not in run("info").out


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    from ags1.cli import bench as cli_bench

    for name, value in (("_SECONDS", 0.0), ("_LIMIT", 0.0), ("_ROUNDS", 3)):
        monkeypatch.setattr(cli_bench, name, value)


@pytest.mark.usefixtures("quick")
def test_bench_measures_even_a_little(run: Run) -> None:
    for size in ("1", "1K", "100K"):
        result = run("bench", "--bytes", size)
        assert (result.code, result.err) == (0, "")
        lines = result.out.splitlines()
        assert lines[2].split() == ["block", "length", "threads", "encrypt", "decrypt", "copy", "in", "cache"]
        assert len([line for line in lines[3:] if line[:1] == " "]) == 4 * len({1, ags1.backend()["threads"]})


@pytest.mark.usefixtures("quick")
def test_bench_as_json_has_the_numbers(run: Run) -> None:
    records = run("bench", "--bytes", "1M", "--json").records
    assert {record["block_length"] for record in records} == {1 << 20, 64 << 10, 4 << 10, 1 << 10}
    for record in records:
        assert record["bytes"] == 1 << 20
        assert min(record["copy_gb_s"], record["encrypt_gb_s"], record["decrypt_gb_s"]) > 0
        assert (record["cached_gb_s"] is None) == (record["threads"] > 1)


@pytest.mark.usefixtures("quick")
def test_bench_keeps_figures_and_compares_with_them(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The samples are made up: what is kept is what is compared, beside the copies of the same hour."""
    from ags1 import bench

    now = {"copy": 1.0, "encrypt": 2.0, "decrypt": 2.0, "cached": 1.0}
    monkeypatch.setattr(
        bench, "interleave", lambda subjects, **options: bench.Run({name: [now[name]] * 9 for name in subjects})
    )
    path = tmp_path / "figures.jsonl"
    done = run("bench", "--bytes", "1M", "--save", path)
    assert done.code == 0
    count = len(bench.read(path))
    assert count == 8 * len({1, ags1.backend()["threads"]})
    assert f"{count} figures added to {path}" in done.out
    # The whole machine is slower by half, and that is nobody's fault.
    now = {name: 1.5 * seconds for name, seconds in now.items()}
    assert run("bench", "--bytes", "1M", "--baseline", path).code == 0
    now["decrypt"] *= 1.1
    slower = run("bench", "--bytes", "1M", "--baseline", path)
    assert slower.code == 7
    assert "decrypt: 1.100 [1.100, 1.100] of the time before: slower" in slower.out
    assert run("bench", "--bytes", "1M", "--baseline", path, "--threshold", "20").code == 0
    assert (
        run("bench", "--bytes", "1M", "--baseline", path, "--json").records[0]["compared"]["decrypt"]["verdict"]
        == "slower"
    )
    wide = [bench.HistoryEntry(**{**vars(each), "low": 0.5, "high": 9.0}) for each in bench.read(path)]
    path.unlink()
    bench.append(path, wide)
    assert run("bench", "--bytes", "1M", "--baseline", path).code == 8


def test_bench_refuses_the_figures_of_another_machine_and_says_in_what_it_differs(run: Run, tmp_path: Path) -> None:
    from ags1 import bench

    path = tmp_path / "figures.jsonl"
    other = {**bench.machine(), "cpu_model": "Another CPU", "openssl": "OpenSSL 3.0.1"}
    bench.append(path, [bench.entry("encrypt", 1.0, 1.0, 1.0, {}, machine=other)])
    done = run("bench", "--bytes", "1K", "--baseline", path)
    assert (done.code, done.out) == (2, "")
    assert f"{path} is of another machine (cpu_model: Another CPU there" in done.err
    assert "openssl: OpenSSL 3.0.1 there" in done.err
    path.write_text("")
    assert "has no figures" in run("bench", "--bytes", "1K", "--baseline", path).err
    path.write_text("{}")
    assert "line 1: no figure" in run("bench", "--bytes", "1K", "--baseline", path).err


def test_bench_of_more_than_there_is_memory_says_so(run: Run) -> None:
    result = run("bench", "--bytes", "1000000T", "--json")
    assert (result.code, result.err) == (4, "ags1: there is not enough memory for this\n")
