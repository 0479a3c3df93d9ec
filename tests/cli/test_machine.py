"""info and bench: what this runs on, and how fast."""

from __future__ import annotations

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
    from ags1.cli import _machine

    everything = {**ags1.backend(), **found}
    monkeypatch.setattr(_machine, "backend", lambda: everything)
    shown = run("info").out
    for word in words:
        assert word in shown


def test_info_notes_no_slowness_that_no_openssl_would_mend(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from ags1.cli import _machine

    without = {**ags1.backend(), "aes_gcm": "aesni-avx", "cpu_features": ["AES-NI", "AVX2", "VAES"]}
    monkeypatch.setattr(_machine, "backend", lambda: without)
    assert "VAES, but" not in run("info").out


@pytest.mark.parametrize("size", ["1", "1K", "100K"])
def test_bench_measures_even_a_little(run: Run, size: str) -> None:
    result = run("bench", "--bytes", size)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert lines[2].split() == ["block", "length", "threads", "encrypt", "decrypt", "copy"]
    assert len(lines) == 3 + 4 * len({1, ags1.backend()["threads"]})


def test_bench_as_json_has_the_numbers(run: Run) -> None:
    records = run("bench", "--bytes", "1M", "--json").records
    assert {record["block_length"] for record in records} == {1 << 20, 64 << 10, 4 << 10, 1 << 10}
    for record in records:
        assert set(record) == {"block_length", "threads", "bytes", "copy_gb_s", "encrypt_gb_s", "decrypt_gb_s"}
        assert record["bytes"] == 1 << 20
        assert min(record["copy_gb_s"], record["encrypt_gb_s"], record["decrypt_gb_s"]) > 0


def test_bench_of_more_than_there_is_memory_says_so(run: Run) -> None:
    result = run("bench", "--bytes", "1000000T", "--json")
    assert (result.code, result.err) == (4, "ags1: there is not enough memory for this\n")
