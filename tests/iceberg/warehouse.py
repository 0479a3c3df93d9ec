"""Encrypted Iceberg tables that Spark made, kept between test runs, and Spark again as a reader of changed metadata.

Iceberg's metadata has the absolute path of every file, so the tables are made where they stay, in a directory of
``$AGS1_CACHE`` (``~/.cache/ags1`` without it), and are used there. They are read-only to tests: one that changes a
table's metadata writes it elsewhere, and one that damages a file does so with :meth:`SparkTable.damaged`.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.interop.jvm import PROJECT as JAVA_PROJECT
from tests.interop.jvm import LineProcess, PeerFailure, alone, build, cache_root, compiler_missing, digest_of, keep

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SCRIPTS = ("canonical.py", "keys.py", "spark_process.py", "spark_tables.py")
SPARK = "4.1."
MAKE_SECONDS = 900.0
_KEPT = ".undamaged"


class SparkFailure(PeerFailure):
    """Spark could not make the tables."""


class SparkReadError(Exception):
    """What Spark and Iceberg said instead of reading a table."""


def available() -> str | None:
    """Return why Spark cannot run here, or None if it can."""
    if (reason := compiler_missing()) is not None:
        return reason
    if importlib.util.find_spec("pyspark") is None:
        return "no pyspark"
    if not (version := importlib.metadata.version("pyspark")).startswith(SPARK):
        return f"pyspark {version}, and the Iceberg runtime is for {SPARK}x"
    return None


def local_path(location: str) -> Path:
    """The file that a ``file:`` URI of Iceberg's metadata names; Hadoop escapes nothing in it."""
    return Path(urlsplit(location).path)


@dataclass(frozen=True)
class SparkSnapshot:
    """One snapshot, and what Spark read of it: `rows` in the form of tests/iceberg/canonical.py."""

    id: int
    operation: str
    columns: list[str] = field(repr=False)
    rows: list[list[Any]] = field(repr=False)


@dataclass(frozen=True)
class SparkRows:
    """What Spark read: `rows` in the form of tests/iceberg/canonical.py."""

    columns: list[str] = field(repr=False)
    rows: list[list[Any]] = field(repr=False)


@dataclass(frozen=True)
class SparkFile:
    """A file of the newest snapshot; `content` is 0 for data, 1 for positions or a vector, 2 for equality deletes."""

    content: int
    location: str
    format: str
    records: int
    size: int

    @property
    def path(self) -> Path:
        return local_path(self.location)


class SparkTable:
    """A table that Spark made.

    Attributes
    ----------
    metadata : str
        Location of its metadata.json: a ``file:`` URI with one slash, as Iceberg writes it.
    features : frozenset of str
        What is special about it: "encrypted", "avro", "vectors" and so on, as in tests/iceberg/spark_tables.py.
    current_id : int or None
        The newest snapshot of its main branch.
    files : tuple of SparkFile
        The files of its newest snapshot.
    """

    def __init__(self, directory: Path, name: str, record: dict[str, Any]) -> None:
        self.name = name
        self.features = frozenset(record["features"])
        self.metadata: str = record["metadata"]
        self.location = local_path(record["location"])
        self.files = tuple(SparkFile(*each) for each in record["files"])
        self._directory = directory
        self._rows = directory / "rows" / f"{name}.json"
        self._snapshots = record["snapshots"]
        self.current_id: int | None = record["current"]

    def __repr__(self) -> str:
        return f"<SparkTable {self.name}>"

    @property
    def metadata_path(self) -> Path:
        return local_path(self.metadata)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The parsed metadata.json."""
        return json.loads(self.metadata_path.read_bytes())

    @cached_property
    def snapshots(self) -> list[SparkSnapshot]:
        """Every snapshot that Spark can read, the oldest first; on any branch."""
        if not self._snapshots:
            return []
        return [SparkSnapshot(id_, operation, **self._contents[str(id_)]) for id_, operation in self._snapshots]

    @property
    def refs(self) -> dict[str, SparkRows]:
        """What Spark read of every branch and tag but the main branch."""
        return {name: SparkRows(**each) for name, each in self._contents["refs"].items()}

    @property
    def lineage(self) -> SparkRows:
        """What Spark read of the newest snapshot of an encrypted table, with the row lineage columns at the end."""
        return SparkRows(**self._contents["lineage"])

    @cached_property
    def _contents(self) -> dict[str, Any]:
        return json.loads(self._rows.read_bytes())

    @property
    def current(self) -> SparkSnapshot | None:
        """The newest snapshot of the main branch."""
        return next((each for each in self.snapshots if each.id == self.current_id), None)

    def copy_metadata(self, directory: Path) -> Path:
        """Copy the metadata.json, so that a test may change it; its files stay where they are."""
        return Path(shutil.copy(self.metadata_path, directory))

    @contextlib.contextmanager
    def damaged(self, file: str | Path, content: bytes) -> Iterator[None]:
        """Give one of the table's files other content for a while; another test run that starts now waits for it."""
        path = local_path(file) if isinstance(file, str) else file
        if not path.is_relative_to(self.location):
            raise ValueError(f"{path} is no file of {self.name}")
        kept = path.with_name(path.name + _KEPT)
        with alone(self._directory):
            path.rename(kept)
            try:
                path.write_bytes(content)
                yield
            finally:
                kept.replace(path)


class SparkTables(dict[str, SparkTable]):
    """The tables by name."""

    def having(self, *features: str) -> list[SparkTable]:
        """Those that have all these features."""
        return [table for table in self.values() if table.features.issuperset(features)]


def make_tables() -> SparkTables:
    """The tables for tests; made if this version of them is not there yet, which takes about two minutes."""
    return _made("tables", ["make"], [])


def make_bulk(rows: int) -> SparkTables:
    """Tables ``encrypted``, ``plain``, ``encrypted_avro`` and ``plain_avro`` with the same rows, for measurements."""
    return _made(f"bulk-{rows}", ["bulk"], [str(rows)])


def build_classes() -> str:
    """Compile the KMS and what writes deletes; return the class path with Iceberg's runtime."""
    built = build("tables")
    return os.pathsep.join([str(built / "classes"), *map(str, sorted((built / "lib").glob("*.jar")))])


class SparkProcess(LineProcess):
    """A running Spark in a directory of its own, which answers one line of JSON for another; a context manager.

    Not for use from several threads at once.

    Parameters
    ----------
    module : str
        Of these tests.
    *before
        Its arguments before the directory.

    Attributes
    ----------
    directory : Path
        It is removed when the process ends.
    """

    def __init__(self, module: str, *before: str) -> None:
        class_path = build_classes()
        self._temporary = tempfile.TemporaryDirectory(prefix="ags1-spark-")
        self.directory = Path(self._temporary.name)
        command = [sys.executable, "-m", f"tests.iceberg.{module}", *before, str(self.directory), class_path]
        super().__init__(command, cwd=self._temporary.name, env=_environment())

    def ask(self, request: dict[str, Any], timeout: float | None = None) -> Any:
        """Return the answer to a request; `timeout` in seconds, for one that takes longer than others.

        Raises
        ------
        PeerFailure
            Spark ended or did not answer in time.
        """
        assert "ready" in self.hello
        return json.loads(self.exchange(json.dumps(request), timeout))

    @cached_property
    def hello(self) -> Any:
        """What the process says when it is ready."""
        return json.loads(self.answer())

    def answer(self, timeout: float | None = None) -> str:
        """Return the next line of JSON: the JVM has the same output, and says a line of its own at its start."""
        while not (line := super().answer(timeout)).startswith("{"):
            pass
        return line

    def close(self) -> None:
        """End Spark; a second call does nothing."""
        super().close()
        self._temporary.cleanup()


class SparkReader(SparkProcess):
    """A running Spark that reads tables by their metadata alone.

    Each reading registers the metadata in a catalog of its own, as one does who tells a catalog of a rewritten
    metadata.json; the tables' files are not changed.
    """

    def __init__(self) -> None:
        super().__init__("spark_server")

    def read(
        self, metadata: str | Path, version: int | str | None = None, columns: str = "*"
    ) -> tuple[list[str], list[list[Any]]]:
        """Read a table, or a snapshot, branch or tag of it; return the names of its columns, and its rows in the
        canonical form.

        Raises
        ------
        SparkReadError
            Spark or Iceberg refused.
        PeerFailure
            Spark ended or did not answer in time.
        """
        location = metadata.resolve().as_uri() if isinstance(metadata, Path) else metadata
        found = self._said({"metadata": location, "version": version, "columns": columns})
        return found["columns"], found["rows"]

    def _said(self, request: dict[str, Any]) -> dict[str, Any]:
        said: dict[str, Any] = self.ask(request)
        if "error" in said:
            raise SparkReadError(said["error"])
        return said


class HiveLake(SparkReader):
    """The running Spark with its Hive metastore, which others reach by Thrift. Its tables are in ``lake.tables``.

    Java's commits take Hive's lock, unless a table has the property ``engine.hive.lock-enabled=false``.

    Attributes
    ----------
    directory : Path
        The warehouse.
    """

    @property
    def metastore(self) -> str:
        """The metastore's ``thrift:`` URL."""
        return str(self.hello["metastore"])

    def catalog(self, **properties: str) -> Any:
        """A new HiveCatalog of PyIceberg's on the metastore; tables are ``("tables", NAME)``."""
        from pyiceberg.catalog.hive import HiveCatalog

        return HiveCatalog("lake", uri=self.metastore, warehouse=self.directory.resolve().as_uri(), **properties)

    def create(self, name: str, columns: str, **options: Any) -> None:
        """Create a table, as ``Lake.create`` of spark_process.py: encrypted, or with ``key_id=None`` plaintext."""
        self._said({"create": name, "columns": columns, "options": options})

    def sql(self, statement: str) -> list[list[Any]]:
        """Run a statement; return its rows in the canonical form.

        Raises
        ------
        SparkReadError
            Spark or Iceberg refused.
        """
        rows: list[list[Any]] = self._said({"sql": statement})["rows"]
        return rows

    def rows(self, table: str, columns: str = "*", version: int | str | None = None) -> list[list[Any]]:
        """The rows of a table, a snapshot, a branch or a tag, in the canonical form."""
        rows: list[list[Any]] = self._said({"rows": table, "columns": columns, "version": version})["rows"]
        return rows

    def appended(self, table: str, start: int, end: int) -> list[list[Any]]:
        """The rows of Spark's incremental reader after one snapshot, up to another, in the canonical form."""
        rows: list[list[Any]] = self._said({"appended": table, "between": [start, end]})["rows"]
        return rows

    @cached_property
    def rest(self) -> str:
        """URL of a REST catalog over Java's handlers; tests/iceberg/rest_server.py says what is added to it."""
        return str(self._said({"rest": (self.directory.resolve() / "rest").as_uri()})["rest"])

    def json_of(self, metadata: str) -> str:
        """A table's metadata in JSON, as Iceberg Java writes it after it parsed it."""
        return str(self._said({"json": metadata})["json"])


def _made(kind: str, command: list[str], arguments: list[str]) -> SparkTables:
    classes = [JAVA_PROJECT / "pom.xml", *sorted((JAVA_PROJECT / "tables").rglob("*.*"))]
    digest = digest_of([*(HERE / name for name in SCRIPTS), *classes], ROOT, importlib.metadata.version("pyspark"))
    directory = (cache_root() / f"iceberg-{kind}-{digest}").resolve()
    result = directory / "tables.json"
    with alone(directory):
        if not _is_complete(result):
            shutil.rmtree(directory, ignore_errors=True)
            _run_spark(_command(*command, directory, build_classes(), *arguments), directory)
        for kept in directory.rglob(f"*{_KEPT}"):
            # A test that was killed left its damage.
            kept.replace(kept.with_name(kept.name.removesuffix(_KEPT)))
        keep(directory)
    records = json.loads(result.read_bytes())["tables"]
    return SparkTables((name, SparkTable(directory, name, record)) for name, record in records.items())


def _is_complete(result: Path) -> bool:
    """Whether the tables were made to their end, and in this place."""
    try:
        return json.loads(result.read_bytes())["directory"] == str(result.parent)
    except FileNotFoundError:
        return False


def _run_spark(command: list[str], directory: Path) -> None:
    directory.mkdir()
    log = directory / "spark.log"
    with log.open("wb") as output:
        done = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=MAKE_SECONDS,
            check=False,
            env=_environment(),
        )
    if done.returncode != 0 or not (directory / "tables.json").exists():
        raise SparkFailure(f"Spark failed ({done.returncode}), see {log}:\n{log.read_text(errors='replace')[-4000:]}")
    shutil.rmtree(directory / "scratch", ignore_errors=True)


def _command(command: str, directory: Path, class_path: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.iceberg.spark_process", command, str(directory), class_path, *arguments]


def _environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    # Without the address, Spark looks for one of the machine's and listens there.
    settings = {"PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC", "PYSPARK_PYTHON": sys.executable}
    return {name: value for name, value in os.environ.items() if name != "SPARK_HOME"} | settings
