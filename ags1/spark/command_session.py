"""The Spark session of a command with ``--spark``: that of spark-submit, or a new one; and its errors."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from ags1.spark.engine.failures import SparkFailed, is_of_spark, start_failure
from ags1.spark.engine.locations import locate

__all__ = ["SparkFailed", "as_error", "error_of_kind", "locate", "make_session"]

_LOGGING = """\
rootLogger.level = fatal
rootLogger.appenderRef.stderr.ref = console
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = fatal
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""
# Start of the last line of a worker's traceback; an ags1 class counts more than the error that wraps it.
_OURS = re.compile(r"^\s*ags1\.errors\.(\w+): (.+)$", re.MULTILINE)
_RAISED = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Za-z_]\w*(?:Error|Exception|Interrupt): .+$", re.MULTILINE)
_JAVA_NAME = re.compile(r"^(?:[a-z_][\w]*\.)+(?=[A-Z]\w*(?:Exception|Error)\b)")


def make_session(command: str, master: str | None, remote: str | None, conf: Mapping[str, str], *, loud: bool) -> Any:
    """The session of spark-submit, or a new one. `loud` leaves Spark's own log as it is.

    :func:`as_error` explains the errors of PySpark.
    """
    with warnings.catch_warnings():
        # This warning is of no use to the user of a job.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        from pyspark.sql import SparkSession

    builder = SparkSession.builder
    settings = dict(conf)
    if master is not None:
        settings["spark.master"] = master
    if remote is not None:
        builder = builder.remote(remote)
    server = _connect_server(remote, settings)
    if server is None:
        settings = {**_defaults(command, settings, loud), **settings}
    elif server.startswith("local"):
        # PySpark starts the server on this machine.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _connect_server(remote: str | None, settings: Mapping[str, str]) -> str | None:
    """URL of the Spark Connect server; None for a classic session."""
    named = remote or settings.get("spark.remote") or os.environ.get("SPARK_REMOTE")
    mode = settings.get("spark.api.mode") or os.environ.get("SPARK_API_MODE", "")
    if named or mode.lower() == "connect":
        return named or settings.get("spark.master", "")
    return "" if "SPARK_CONNECT_MODE_ENABLED" in os.environ else None


def _defaults(command: str, settings: dict[str, str], loud: bool) -> dict[str, str]:
    """Defaults for settings of a classic session. It starts the JVM, which knows the configured settings."""
    from pyspark import SparkConf, SparkContext

    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    asked = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        asked.set(name, value)
    quiet = not is_submitted and not loud and not _has_logging() and "spark.log.level" not in settings
    with _quiet_start() if quiet else contextlib.nullcontext():
        SparkContext._ensure_initialized(conf=asked)
    configured = SparkConf()
    found = {}
    # spark-submit names an application after its file, PySpark's own start after its shell.
    name = configured.get("spark.app.name", "")
    if name in ("", "pyspark-shell", "PySparkShell") or name.endswith(".py"):
        found["spark.app.name"] = f"ags1 {command}"
    if not (settings.get("spark.master") or configured.get("spark.master", "local[*]")).startswith("local"):
        return found
    # Workers on this machine use this interpreter, and find this package where it is.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if root not in {sysconfig.get_path(name) for name in ("purelib", "platlib")}:
        further = configured.get("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        if root not in further.split(os.pathsep):
            found["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(filter(None, (root, further)))
    if not is_submitted or configured.get("spark.ui.showConsoleProgress") is None:
        # Two progress lines would overwrite each other.
        found["spark.ui.showConsoleProgress"] = "false"
    return found


@contextlib.contextmanager
def _quiet_start() -> Iterator[None]:
    """Let a JVM that starts in this context log only fatal errors.

    Spark logs a page of Java for a failed task, and ten lines of its own set-up; the last line of this job has the
    reason. A level in Spark's configuration applies only after the set-up, and Spark prints one more line about it.
    """
    name = "SPARK_SUBMIT_OPTS"
    before = os.environ.get(name)
    with tempfile.NamedTemporaryFile("w", prefix="ags1-log4j2-", suffix=".properties") as file:
        file.write(_LOGGING)
        file.flush()
        os.environ[name] = " ".join(filter(None, (before, f"-Dlog4j2.configurationFile=file:{file.name}")))
        try:
            yield
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before


def _has_logging() -> bool:
    """Whether Spark's log is configured."""
    home = os.environ.get("SPARK_HOME")
    directory = os.environ.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else None)
    return directory is not None and bool(glob.glob(os.path.join(glob.escape(directory), "log4j2.*")))


def error_of_kind(kind: str) -> Exception:
    """The error for a failed file whose record has this class."""
    from ags1.spark.engine.results import error_of
    from ags1.spark.engine.runner import Outcome

    return error_of(Outcome("", status="error", kind=kind))


def as_error(error: BaseException) -> BaseException:
    """The error to show for an error: the one that a worker raised, if it is of this package.

    An error that has nothing to do with Spark is returned as it is.
    """
    if not is_of_spark(error):
        return error
    failure = start_failure(error)
    if failure is not None:
        return failure
    text = str(error)
    ours = _OURS.search(text)
    if ours is not None:
        from ags1 import errors

        kind = getattr(errors, ours[1], None)
        if isinstance(kind, type) and issubclass(kind, errors.Ags1Error):
            return kind(ours[2])
    if "JAVA_GATEWAY_EXITED" in text:
        return SparkFailed(
            "Spark could not be started; Java, if found, printed the reason above. It needs Java 17 or later, at "
            "JAVA_HOME or on the PATH, and a --master that Spark knows"
        )
    raised = _RAISED.findall(text) if "Traceback (most recent call last)" in text else []
    java = getattr(error, "java_exception", None)
    if raised:
        line = raised[-1]
    elif java is not None:
        line = _JAVA_NAME.sub("", str(java.toString()).strip().splitlines()[0])
    else:
        line = next(iter(text.strip().splitlines()), type(error).__name__)
    return SparkFailed(f"Spark failed: {line.strip()} (--traceback shows where)")
