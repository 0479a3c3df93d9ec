"""What a user is told whose workers do not start, or whose PySpark is too old."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ags1.spark.engine.failures import start_failure
from ags1.spark.engine.sessions import Session
from tests.checks import every
from tests.spark.conftest import Run
from tests.spark.sessions import ROOT

NO_PYTHON = """An error occurred while calling o1.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
Caused by: java.io.IOException: Cannot run program "./environment/bin/python": error=2, No such file or directory"""
ANOTHER_PYTHON = """pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has \
different version: 3.10 than that in driver: 3.12, PySpark cannot run with different minor versions."""
TEXTS = {
    "no Python": (NO_PYTHON, r"cannot run \./environment/bin/python, their Python: send the archive"),
    "another Python": (ANOTHER_PYTHON, r"the executors run Python 3\.10 and the driver 3\.12: set PYSPARK_PYTHON"),
    "no ags1": ("ModuleNotFoundError: No module named 'ags1'\n", "the executors' Python has no ags1: install ags1"),
}


class FromSpark(Exception):
    """As PySpark's errors: they are known by their module."""


FromSpark.__module__ = "pyspark.errors.exceptions.captured"


@every("name", TEXTS)
def test_the_reason_is_found_in_the_pages_of_java(name: str) -> None:
    text, message = TEXTS[name]
    found = start_failure(FromSpark(text))
    assert found is not None
    with pytest.raises(RuntimeError, match=message):
        raise found


def test_other_errors_are_left_alone() -> None:
    assert start_failure(FromSpark("Job aborted")) is None
    assert start_failure(ModuleNotFoundError("No module named 'ags1'")) is None


@every("version", ["3.5.6", "4.0.1"])
@pytest.mark.parametrize("how", ["import ags1.spark", "ags1 --spark"])
def test_an_older_pyspark_is_refused_before_a_session_starts(tmp_path: Path, how: str, version: str) -> None:
    package = tmp_path / "pyspark"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("raise SystemExit('it was imported')")
    (package / "version.py").write_text(f'__version__: str = "{version}"\n')
    path = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    job = ["-m", "ags1", "dataset", "verify", "vault", "--spark", "--kms", "aws:"]
    command = ["-c", how] if how.startswith("import") else job
    done = subprocess.run(
        [sys.executable, *command], env=path, capture_output=True, text=True, timeout=600, check=False
    )
    assert f"needs PySpark 4.1 or newer, and this is {version.rpartition('.')[0]}" in done.stderr
    assert done.returncode == (1 if how.startswith("import") else 2)


def test_workers_on_this_machine_use_this_python_unless_another_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(master: str, before: str) -> str:
        context = SimpleNamespace(master=master, pythonExec=before)
        Session(SimpleNamespace(range=None, createDataFrame=None, sparkContext=context))
        return context.pythonExec

    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert chosen("local[2]", "python3") == sys.executable
    assert chosen("local[2]", "/opt/python") == "/opt/python"
    assert chosen("spark://host:7077", "python3") == "python3"
    monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    assert chosen("local[2]", "python3") == "python3"


SCRIPT = """
import sys
from pyspark.sql import SparkSession
import ags1.spark

spark = SparkSession.builder.getOrCreate()
kms, source, target = sys.argv[1:]
try:
    ags1.spark.encrypt_files(spark, source, target, kms=kms, key_id="lake", progress=False)
except RuntimeError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.nightly
def test_an_archive_that_was_not_sent_is_said(local_cluster: Run, kms_url: str, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a").write_text("a")
    where = {"PYSPARK_PYTHON": "./environment/bin/python"}
    done = local_cluster(SCRIPT, kms_url, tmp_path / "raw", tmp_path / "vault", env=where)
    assert (
        "SparkFailed the executors cannot run ./environment/bin/python, their Python: send the archive" in done.stdout
    )
