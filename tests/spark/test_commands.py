"""Commands with ``--spark``: exit codes, reports, JSON and messages as its help promises."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")
pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

import ags1.spark
from ags1 import dataset, kms
from ags1.cli import cluster, main
from ags1.dataset.names import run_of
from ags1.errors import AuthenticationError, KeyAccessError
from ags1.spark.command_session import SparkFailed, as_error
from ags1.spark.engine.results import raise_for
from ags1.spark.engine.runner import Outcome
from tests import checks
from tests.checks import HANG_SECONDS, pattern
from tests.pages import ROOT, blocks
from tests.parquet import corpus
from tests.spark.conftest import keystore
from tests.spark.sessions import LOCAL, environment, need_spark, prepare
from tests.spark.trees import give_up, objects, unfinished, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Run

FILES = {"a/big.bin": pattern(3 << 20), "a/b/c.txt": b"small", "empty": b""}


@dataclass(frozen=True)
class Answer:
    """What a job answered."""

    code: int
    out: str
    err: str

    @property
    def record(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        (line,) = self.out.splitlines()
        return json.loads(line)


Job = Callable[..., Answer]


@pytest.fixture(autouse=True)
def _no_kms_of_the_tester(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGS1_KMS", raising=False)


@pytest.fixture
def job(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Job:
    """A command in this process, with any session, which stays open."""

    def run(*arguments: object, spark: Any = None) -> Answer:
        with monkeypatch.context() as patched:
            if spark is not None:
                patched.setattr(cluster, "make_session", lambda *_, **__: spark)
                patched.setattr(cluster._Job, "close", lambda job: None)
                patched.setattr(cluster._Job, "_check_source", lambda job: None)
            code = main([*map(str, arguments), "--spark"])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Answer(code, captured.out, captured.err)

    return run


@pytest.fixture
def spark_job(job: Job, spark: SparkSession, kms_url: str, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job in this process, on the tests' session and keystore."""
    monkeypatch.setenv("AGS1_KMS", kms_url)
    return lambda *arguments: job(*arguments, spark=spark)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make(tmp_path / "source", FILES)


def make(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


# -- before there is a session -------------------------------------------------------------------------------------


class NoSession:
    """Must not be used."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the session's {name} was asked for")


@checks.every(
    "command",
    [
        "iceberg encrypt lake.db.t --key-id k",
        "iceberg decrypt t",
        "iceberg rekey t",
        "iceberg compact t",
    ],
)
def test_nothing_that_cannot_be_undone_is_done_without_being_told_so(command: str, job: Job, kms_url: str) -> None:
    answer = job(*command.split(), "--kms", kms_url, spark=NoSession())
    assert answer.code == 2
    assert "--dry-run to see what it would do, or --yes to have it done" in answer.err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--kms ftp:x", "there is no KMS 'ftp'; the forms are aws:?region=R"),
        ("--kms aws:?secret=x", "a KMS URL must not contain a secret (secret)"),
        ("--kms local:k.json --report no/such/r.json", "--report: there is no directory "),
    ],
)
def test_what_cannot_work_is_told_before_spark_is_started(job: Job, more: str, message: str) -> None:
    answer = job("dataset", "encrypt", "a", "b", "--key-id", "k", *more.split(), spark=NoSession())
    assert answer.code == 2
    assert message in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_master_beside_that_of_spark_submit_is_refused(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    answer = job("parquet", "verify", "x", "--remote", "sc://x", "--master", "local")
    assert answer.code == 2
    assert "spark-submit has chosen the master already: give it --master" in answer.err


# -- what an error becomes -----------------------------------------------------------------------------------------


def raiser(error: BaseException) -> Callable[..., Any]:
    def function(spark: Any, **arguments: Any) -> Any:
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyAccessError("KMS says no"), 3, "KMS says no"),
        (AuthenticationError("manifest 1 is damaged"), 1, "manifest 1 is damaged"),
        (FileNotFoundError(2, "there is no dataset", "/x"), 4, "/x: there is no dataset"),
        (BlockingIOError(11, "another process is changing it", "/x"), 4, "/x: another process is changing it"),
        (ValueError("the source lies in the target"), 2, "the source lies in the target"),
        (ImportError("s3fs is missing: pip install 'ags1[s3]'"), 2, "s3fs is missing: pip install 'ags1[s3]'"),
        (MemoryError(), 4, "there is not enough memory for this"),
        (RuntimeError("two\nlines"), 4, "RuntimeError: two lines (--traceback shows where)"),
        (KeyboardInterrupt(), 130, "interrupted: finished work is kept; run the same command again to continue"),
    ],
)
def test_an_error_is_a_line_and_an_exit_code(
    job: Job, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    monkeypatch.setattr(ags1.spark, "decrypt_files", raiser(error))
    arguments = ("dataset", "decrypt", "a", "b", "--kms", "local:k.json?password_file=p")
    answer = job(*arguments, spark=object())
    assert (answer.code, answer.out, answer.err) == (code, "", f"ags1: {message}\n")
    answer = job(*arguments, "--json", spark=object())
    assert (answer.code, answer.err) == (code, "")
    assert (answer.record["ok"], answer.record["error"]) == (False, message)
    assert answer.record["counts"] == {}


@pytest.mark.parametrize(("kind", "code"), [("AuthenticationError", 1), ("OSError", 4), ("KeyAccessError", 3)])
def test_a_file_that_ends_a_run_gives_it_the_exit_code_of_its_error(
    job: Job, monkeypatch: pytest.MonkeyPatch, kind: str, code: int
) -> None:
    def fail(spark: Any, **arguments: Any) -> None:
        raise_for(Outcome("a/b", status="error", error="no good", kind=kind), "decrypt", None)

    monkeypatch.setattr(ags1.spark, "decrypt_files", fail)
    answer = job("dataset", "decrypt", "a", "b", "--kms", "local:k.json?password_file=p", spark=object())
    assert answer.code == code
    assert "a/b: no good" in answer.err
    assert "run it again to continue, or with --keep-going" in answer.err


def test_a_traceback_is_shown_to_who_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(ags1.spark, "decrypt_files", raiser(RuntimeError("odd")))
    monkeypatch.setattr(cluster, "make_session", lambda *_, **__: object())
    (tmp_path / "a").touch()
    line = f"dataset decrypt {tmp_path}/a b --kms local:k.json?password_file=p --traceback --spark"
    assert main(line.split()) == 4
    assert "in function" in capsys.readouterr().err


class FromSpark(Exception):
    """As PySpark's exceptions are."""


FromSpark.__module__ = "pyspark.errors.exceptions.captured"

_TRACE = "\n  An exception was thrown from the Python worker.\nTraceback (most recent call last):\n  File x, line 1\n"


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (f"{_TRACE}ags1.errors.KeyAccessError: KMS says no\n", KeyAccessError, "^KMS says no$"),
        (f"{_TRACE}pkg.mod.SomeError: odd\n", SparkFailed, r"^Spark failed: pkg.mod.SomeError: odd \(--traceback"),
        ("Job aborted.\n\tat org.apache.spark.X(X.scala:1)", SparkFailed, r"^Spark failed: Job aborted. \(--trace"),
        (
            "[JAVA_GATEWAY_EXITED] Java exited",
            SparkFailed,
            "^Spark could not be started; .* It needs Java 17 or later, .* and a --master that Spark knows",
        ),
    ],
)
def test_what_spark_raises_becomes_one_line(text: str, kind: type[Exception], message: str) -> None:
    found = as_error(FromSpark(text))
    assert type(found) is kind
    assert re.search(message, str(found))
    assert "\n" not in str(found)


def test_other_errors_stay_what_they_are() -> None:
    error = ValueError("x")
    assert as_error(error) is error


@pytest.mark.parametrize("command", ["encrypt", "decrypt", "verify"])
def test_a_missing_source_is_noticed_before_spark_is_started(
    command: str, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr("ags1.cli.cluster.make_session", start)
    where = tmp_path / "nowhere"
    target = [] if command == "verify" else [tmp_path / "out"]
    more = ["--key-id", "lake"] if command == "encrypt" else []
    answer = job("dataset", command, where, *target, *more, "--kms", "local:keys.json")
    assert (answer.code, answer.err) == (4, f"ags1: {where}: No such file or directory\n")


# -- with Spark ----------------------------------------------------------------------------------------------------


def test_a_tree_is_encrypted_verified_put_under_another_key_and_decrypted(
    spark_job: Job, source: Path, tmp_path: Path, kms_url: str
) -> None:
    vault, plain, report = tmp_path / "vault", tmp_path / "plain", tmp_path / "report.jsonl"
    made = spark_job("dataset", "encrypt", source, vault, "--key-id", "lake", "--part-bytes", "1M", "--report", report)
    assert made.code == 0
    assert re.fullmatch(r"ags1 encrypt: 3 files \(3\.1 MB\) in .* s, .*/s, version 1\n", made.out)
    assert made.err == "", "progress goes to a terminal"
    rows = {row["path"]: row for row in map(json.loads, report.read_text().splitlines())}
    assert set(rows) == set(FILES)
    assert rows["a/b/c.txt"]["target"] == str(objects(vault, kms_url)["a/b/c.txt"][0])

    quiet = spark_job("dataset", "encrypt", source, vault, "--key-id", "lake", "--quiet")
    assert quiet == Answer(0, "", "")

    report = tmp_path / "report.parquet"
    checked = spark_job("dataset", "verify", vault, "--json", "--quiet", "--report", report)
    assert (checked.code, checked.err) == (0, "")
    record = checked.record
    assert record.pop("seconds") > 0
    assert record == {
        "command": "dataset verify",
        "ok": True,
        "error": None,
        "counts": {"ok": 3},
        "bytes": (3 << 20) + 5,
        "version": 1,
        "errors": [],
        "notes": [],
        "report": str(report),
    }
    assert sorted(pq.read_table(report)["path"].to_pylist()) == sorted(FILES)

    refused = spark_job("dataset", "verify", vault, "--expected-key-id", "lake2")
    assert refused.code == 3
    assert "is under the master key 'lake', but 'lake2' is expected" in refused.err

    nothing = spark_job("dataset", "decrypt", vault, plain, "--exclude", "*", "--quiet")
    assert nothing == Answer(2, "", f"ags1: {vault}: no file is left by --exclude '*': correct the patterns\n")
    assert not contents(plain)
    assert spark_job("dataset", "decrypt", vault, plain, "--exclude", "empty").code == 0
    assert contents(plain) == {name: data for name, data in FILES.items() if name != "empty"}


def test_what_the_job_encrypts_python_reads(spark_job: Job, source: Path, tmp_path: Path, kms_url: str) -> None:
    assert spark_job("dataset", "encrypt", source, tmp_path / "vault", "--key-id", "lake").code == 0
    with dataset.open(tmp_path / "vault", kms.load(kms_url)) as vault, vault.open("a/big.bin") as file:
        assert file.read() == FILES["a/big.bin"]


def test_problems_are_found_reported_and_change_the_exit_code(
    spark_job: Job, source: Path, tmp_path: Path, kms_url: str
) -> None:
    vault = tmp_path / "vault"
    assert spark_job("dataset", "encrypt", source, vault, "--key-id", "lake", "--quiet").code == 0
    places = objects(vault, kms_url)
    places["empty"][0].unlink()
    shutil.copy(places["a/b/c.txt"][0], vault / "stranger")

    checked = spark_job("dataset", "verify", vault, "--report", tmp_path / "r.json")
    assert checked.code == 1
    assert re.search(r"^  empty: missing: ", checked.out, re.MULTILINE)
    assert re.search(r"^  stranger: foreign: ", checked.out, re.MULTILINE)
    rows = {row["path"]: row["status"] for row in map(json.loads, (tmp_path / "r.json").read_text().splitlines())}
    assert rows == {"a/big.bin": "ok", "a/b/c.txt": "ok", "empty": "error", "stranger": "error"}
    silent = spark_job("dataset", "verify", vault, "--quiet")
    assert (silent.code, silent.out) == (1, "")
    assert "  empty: missing: " in silent.err

    failed = spark_job("dataset", "decrypt", vault, tmp_path / "one", "--quiet")
    assert failed.code == 4
    assert re.fullmatch(r"ags1: decrypt: .*is in the manifest, but its object is missing .*'empty'.*\n", failed.err)
    others = spark_job("dataset", "decrypt", vault, tmp_path / "two", "--keep-going", "--json")
    assert (others.code, others.record["counts"], others.record["error"]) == (4, {"ok": 2, "error": 1}, "1 file failed")
    assert [each["path"] for each in others.record["errors"]] == ["empty"]
    assert set(contents(tmp_path / "two")) == {"a/big.bin", "a/b/c.txt"}


def test_what_cannot_be_begun_has_the_exit_code_of_its_error(spark_job: Job, source: Path, tmp_path: Path) -> None:
    for arguments, code, message in (
        (("dataset", "verify", tmp_path / "none"), 4, "there is no ags1 dataset here"),
        (
            ("dataset", "encrypt", source, tmp_path / "v", "--key-id", "nobody"),
            3,
            "there is no key with this id; the ids are lake, lake2",
        ),
        (("iceberg", "verify", tmp_path), 4, "there are no metadata files in"),
    ):
        answer = spark_job(*arguments)
        assert (answer.code, answer.out) == (code, "")
        assert message in answer.err
        assert len(answer.err.splitlines()) == 1


def test_a_table_is_judged_as_without_spark(spark_job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyiceberg")
    from ags1 import cli, iceberg

    client = kms.load(os.environ["AGS1_KMS"])
    for name in ("good", "plain", "half", "damaged", "missing", "foreign"):
        table = iceberg.create_table(
            None, str(tmp_path / name), pa.schema([("id", pa.int64())]), kms=client, key_id="lake"
        )
        for number in range(2):
            table.append(pa.table({"id": [number]}))
        if name in ("plain", "half"):
            iceberg.decrypt_table(iceberg.load_table(None, str(tmp_path / name), kms=client), expire=True)
        if name == "half":
            iceberg.encrypt_table(iceberg.load_table(None, str(tmp_path / name), kms=client), key_id="lake")
    data = {name: min((tmp_path / name / "data").rglob("*.parquet")) for name in ("damaged", "missing")}
    data["damaged"].write_bytes(checks.flip(data["damaged"].read_bytes(), 40))
    data["missing"].unlink()
    (tmp_path / "other").mkdir()
    other = keystore(tmp_path / "other", "else")
    allowed = ("--allow-plaintext",)
    for name, options, code in (
        ("good", (), 0),
        ("plain", (), 5),
        ("plain", allowed, 5),
        ("half", (), 5),
        ("half", allowed, 5),
        ("damaged", (), 1),
        ("missing", (), 1),
        ("foreign", ("--kms", other), 3),
    ):
        arguments = ["iceberg", "verify", str(tmp_path / name), *options]
        assert cli.main(arguments) == code, arguments
        capsys.readouterr()
        answer = spark_job(*arguments)
        assert answer.code == code, (arguments, answer)


def test_a_table_of_a_catalog_of_pyiceberg_is_converted_and_verified(
    spark_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.utils.config import Config

    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": (tmp_path / "lake").as_uri()}
    for name, value in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    catalog = SqlCatalog("prod", **settings)
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    options = ("db.t", "--catalog", "prod")
    assert spark_job("iceberg", "verify", *options).code == 5
    assert spark_job("iceberg", "encrypt", *options, "--key-id", "lake", "--expire", "--yes").code == 0
    verified = spark_job("iceberg", "verify", *options, "--expected-key-id", "lake")
    assert verified.code == 0, verified
    planned = spark_job("iceberg", "compact", *options, "--dry-run")
    assert (planned.code, "file" in planned.out) == (0, True), planned
    again = spark_job("iceberg", "rekey", *options, "--yes")
    assert (again.code, "the old keys STILL open data: 1 old snapshot" in again.out) == (5, True), again
    wrong = spark_job("iceberg", "verify", "db.t", "--catalog", "prd")
    assert wrong.code == 2
    assert "there is no catalog 'prd' in PyIceberg's configuration" in wrong.err
    other = spark_job("iceberg", "encrypt", "nowhere.db.t", "--key-id", "lake", "--dry-run")
    assert "with --catalog, a catalog of PyIceberg's is used instead" in other.err, other


def test_a_report_that_cannot_be_written_does_not_hide_what_was_done(
    spark_job: Job, source: Path, tmp_path: Path
) -> None:
    report = tmp_path / "r.json"
    report.symlink_to(tmp_path / "gone" / "r.json")
    answer = spark_job("dataset", "encrypt", source, tmp_path / "vault", "--key-id", "lake", "--report", report)
    assert answer.code == 4
    assert answer.out.startswith("ags1 encrypt: 3 files ")
    assert "ags1: the work is done, but the report could not be written: " in answer.err


def test_parquet_is_encrypted_verified_rekeyed_and_decrypted(spark_job: Job, tmp_path: Path) -> None:
    files = {"a.parquet": corpus.written(corpus.flat(50)), "day=1/b.parquet": corpus.written(corpus.flat(70))}
    make(tmp_path / "plain", files)
    vault, other, back = tmp_path / "vault", tmp_path / "other", tmp_path / "back"
    columns = ("--column-key-id", "name=lake2")
    for command, options in (
        ("encrypt", (tmp_path / "plain", vault, "--footer-key-id", "lake", *columns)),
        ("verify", (vault,)),
        ("rekey", (vault, other, "--footer-key-id", "lake2", "--encrypt-all", "--plaintext-footer")),
        ("decrypt", (other, back)),
    ):
        answer = spark_job("parquet", command, *options, "--json")
        assert (answer.code, answer.record["counts"]) == (0, {"ok": 2}), answer
    assert (vault / "a.parquet").read_bytes()[:4] == b"PARE"
    assert (other / "a.parquet").read_bytes()[:4] == b"PAR1"
    for name, data in files.items():
        assert pq.read_table(back / name, partitioning=None) == pq.read_table(pa.BufferReader(data))

    damaged = bytearray((other / "a.parquet").read_bytes())
    damaged[100] ^= 1
    (other / "a.parquet").write_bytes(damaged)
    answer = spark_job("parquet", "verify", other)
    assert answer.code == 1
    assert "  a.parquet: " in answer.out


class KmsOfTheDriver:
    """Refuses what tasks ask for."""

    def initialize(self, properties: dict[str, str]) -> None:
        self._client = kms.load(properties["of"])

    def unwrap_key(self, wrapped_key: bytes, key_id: str) -> bytes:
        from pyspark import TaskContext

        if TaskContext.get() is not None:
            raise KeyAccessError("the KMS does not know this executor")
        return self._client.unwrap_key(wrapped_key, key_id)

    def wrap_key(self, key: bytes, key_id: str) -> bytes:
        return self._client.wrap_key(key, key_id)

    def supports_key_generation(self) -> bool:
        return False

    def generate_key(self, key_id: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self._client.close()


def test_a_kms_that_refuses_executors_is_told_in_one_line(
    spark_job: Job, source: Path, tmp_path: Path, kms_url: str
) -> None:
    url = f"module:tests.spark.test_commands.KmsOfTheDriver?{urlencode({'of': kms_url})}"
    answer = spark_job("dataset", "encrypt", source, tmp_path / "vault", "--key-id", "lake", "--kms", url, "--quiet")
    assert answer.code == 3
    assert answer.err.startswith("ags1: ")
    assert "the KMS does not know this executor" in answer.err
    assert len(answer.err.splitlines()) == 1
    assert "org.apache" not in answer.err


# -- processes of their own ----------------------------------------------------------------------------------------


def test_spark_submit_runs_the_commands_and_answers_the_exit_code(
    spark_job: Job, run_spark: Run, source: Path, tmp_path: Path, kms_url: str
) -> None:
    vault = tmp_path / "vault"
    assert spark_job("dataset", "encrypt", source, vault, "--key-id", "lake", "--quiet").code == 0
    objects(vault, kms_url)["empty"][0].unlink()
    page = blocks(ROOT / "docs" / "guides" / "spark-clusters.md", "")
    (block,) = [each for each in page if each.startswith("from ags1.cli")]
    (tmp_path / "ags1_job.py").write_text(block)
    words = ("dataset", "verify", vault, "--kms", kms_url, "--json", "--spark")
    done = run_spark(tmp_path / "ags1_job.py", *words, submit=True, check=False)
    assert done.returncode == 1, done.stderr
    # spark-submit mixes both streams, and the newest PySpark begins with a warning.
    assert json.loads(done.stdout[done.stdout.index("{") :])["counts"] == {"ok": 2, "error": 1}
    (events,) = (tmp_path / "spark-1" / "events").iterdir()
    assert '"App Name":"ags1 dataset verify"' in events.read_text()


_WAITING_KMS = """
import os
import socket

from ags1.kms import load


class Kms:
    def initialize(self, properties):
        self._client = load(properties["of"])
        self._port = int(properties["port"])
        self._first = properties["first"]

    def unwrap_key(self, wrapped_key, key_id):
        from pyspark import TaskContext

        if TaskContext.get() is not None:
            try:
                os.close(os.open(self._first, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                with socket.create_connection(("127.0.0.1", self._port)) as connection:
                    connection.recv(1)
        return self._client.unwrap_key(wrapped_key, key_id)

    def wrap_key(self, key, key_id):
        return self._client.wrap_key(key, key_id)

    def supports_key_generation(self):
        return self._client.supports_key_generation()

    def generate_key(self, key_id):
        return self._client.generate_key(key_id)

    def close(self):
        self._client.close()
"""


# That of a killed driver, in tests/spark/test_kills.py, leaves the same by day.
@pytest.mark.nightly
def test_an_interrupted_run_leaves_no_version_and_its_record(
    spark_job: Job, tmp_path: Path, kms_url: str, storage_environment: dict[str, str]
) -> None:
    need_spark()
    source, vault = make(tmp_path / "source", {"a": pattern(100_000), "b": pattern(200_000)}), tmp_path / "vault"
    make(tmp_path / "modules", {"waiting_kms.py": _WAITING_KMS.encode()})
    variables = environment(prepare(tmp_path / "session", LOCAL), storage_environment)
    variables["PYTHONPATH"] += os.pathsep + str(tmp_path / "modules")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(HANG_SECONDS)
        named = {"of": kms_url, "port": server.getsockname()[1], "first": tmp_path / "first"}
        # One task after another, each in a new process, which asks the KMS: that of the second file waits for it.
        process = subprocess.Popen(
            [
                *(
                    sys.executable,
                    "-m",
                    "ags1",
                    "dataset",
                    "encrypt",
                    source,
                    vault,
                    "--key-id",
                    "lake",
                    "--traceback",
                    "--spark",
                ),
                *("--kms", f"module:waiting_kms.Kms?{urlencode(named)}", "--parallelism", "2", "--master", "local[1]"),
                *("--conf", "spark.python.worker.reuse=false"),
            ],
            env=variables,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            connection, _ = server.accept()
            with connection:
                # As a terminal does: to all of them.
                os.killpg(process.pid, signal.SIGINT)
                out, err = process.communicate(timeout=600)
        finally:
            process.kill()
            process.wait()
    assert (process.returncode, out) == (130, "")
    assert err.endswith("ags1: interrupted: finished work is kept; run the same command again to continue\n")
    assert "Traceback" not in err
    assert versions(vault) == []
    (run,) = unfinished(vault)
    # The task of the first file was over, and has recorded it, though the wave was not.
    (name,) = (name for name in contents(vault) if not name.startswith("_ags1/"))
    assert run_of(name) == run

    done = spark_job("dataset", "encrypt", source, vault, "--key-id", "lake", "--json")
    assert (done.code, done.record["counts"]) == (0, {"skipped": 1, "ok": 1})
    give_up(vault, kms_url)
    assert unfinished(vault) == []
    assert spark_job("dataset", "verify", vault).code == 0
