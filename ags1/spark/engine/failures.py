"""A PySpark that is too old, and why workers did not start, from the pages of Java that Spark's error has."""

from __future__ import annotations

import re
from importlib.util import find_spec

_OLDEST = (4, 1)

_NO_PROGRAM = re.compile(r'Cannot run program "([^"\n]+)"')
_VERSIONS = re.compile(r"Python in worker has different version:? \(?([\d.]+)\)? .*?(?:driver|client):? \(?([\d.]+)")
_NO_MODULE = re.compile(r"No module named '?(ags1|pyarrow|pandas|numpy)\b")
_SHIPPING = 'see "Shipping the environment" in the documentation of Spark'


class SparkFailed(RuntimeError):
    """Spark could not be started, or a Spark job failed for a reason other than a file."""


def refuse_older_pyspark() -> None:
    """ImportError: the PySpark that would be imported is older than what this package needs; it is not imported."""
    try:
        spec = find_spec("pyspark")
        place = "" if spec is None or spec.origin is None else spec.origin.replace("__init__.py", "version.py")
        with open(place, encoding="utf-8") as file:
            found = re.search(r"__version__[^\"'\n]*[\"'](\d+)\.(\d+)", file.read())
    except (ImportError, ValueError, OSError):
        # There is none, or it is in an archive, as Spark's workers have it.
        return
    if found is not None and (int(found[1]), int(found[2])) < _OLDEST:
        raise ImportError(
            f"ags1.spark needs PySpark {_OLDEST[0]}.{_OLDEST[1]} or newer, and this is {found[1]}.{found[2]}: "
            "pip install 'ags1[spark]', and use a Spark of the same version"
        )


def is_of_spark(error: BaseException) -> bool:
    """Whether an error is one of PySpark's, or comes from its JVM."""
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def start_failure(error: BaseException) -> SparkFailed | None:
    """The error to raise for one of Spark's that says that workers have no Python, another one, or not this package."""
    if not is_of_spark(error):
        return None
    text = str(error)
    program = _NO_PROGRAM.search(text)
    if program is not None:
        return SparkFailed(
            f"the executors cannot run {program[1]}, their Python: send the archive that it is in (--archives "
            f"NAME.tar.gz#environment, or spark.archives), or set PYSPARK_PYTHON to one that they have; {_SHIPPING}"
        )
    versions = _VERSIONS.search(text)
    if versions is not None:
        return SparkFailed(
            f"the executors run Python {versions[1]} and the driver {versions[2]}: set PYSPARK_PYTHON to a Python of "
            f"the driver's version before the session starts; {_SHIPPING}"
        )
    module = _NO_MODULE.search(text)
    if module is not None:
        return SparkFailed(
            f"the executors' Python has no {module[1]}: install ags1 with what it needs on every node, or send an "
            f"archive of an environment and set PYSPARK_PYTHON to the Python in it; {_SHIPPING}"
        )
    return None
