"""Iceberg's own Java classes as a partner: built with Maven, kept running, asked over a line protocol."""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parent / "java"
MAIN_CLASS = "ags1.interop.Ags1Peer"
MINIMUM_JAVA = 17
BUILD_SECONDS = 600.0
ANSWER_SECONDS = 120.0


class JavaError(Exception):
    """An exception that Iceberg threw.

    Attributes
    ----------
    java_class
        The simple name of the Java exception class.
    java_message
        Its message.
    """

    def __init__(self, java_class: str, java_message: str) -> None:
        super().__init__(f"{java_class}: {java_message}")
        self.java_class = java_class.rpartition(".")[2]
        self.java_message = java_message


class PeerFailure(RuntimeError):
    """The JVM died, hung or said something that is not in the protocol."""


@dataclass(frozen=True)
class PeerVersion:
    """What the JVM runs."""

    iceberg: str
    java: str
    takes_length: bool


@dataclass(frozen=True)
class PeerKeyMetadata:
    """The fields of a StandardKeyMetadata as Java decoded them."""

    encryption_key: bytes
    aad_prefix: bytes | None
    file_length: int | None


@dataclass(frozen=True)
class PeerKeyList:
    """A list of ``encryption-keys`` that Java extended."""

    key_ids: list[str]
    entries: list[str]
    wraps: int
    unwraps: int


def _tool(name: str) -> str | None:
    home = os.environ.get({"java": "JAVA_HOME", "mvn": "MAVEN_HOME"}[name])
    if home:
        candidate = Path(home) / "bin" / name
        if candidate.is_file():
            return str(candidate)
    return shutil.which(name)


def _java_major(java: str) -> int:
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    quoted = said.partition('"')[2].partition('"')[0]
    major = quoted.partition(".")[0].partition("-")[0]
    return int(major) if major.isdigit() else 0


def available() -> str | None:
    """Return why the peer cannot be built or run here, or None if it can."""
    java = _tool("java")
    if java is None:
        return "no java command"
    if shutil.which("javac") is None and not (Path(java).resolve().parent / "javac").exists():
        return "a Java runtime but no compiler (javac)"
    if (major := _java_major(java)) < MINIMUM_JAVA:
        return f"Java {major}, and the peer needs {MINIMUM_JAVA}"
    if _tool("mvn") is None:
        return "no mvn command (Apache Maven)"
    return None


def _cache_root() -> Path:
    return Path(os.environ.get("AGS1_CACHE") or Path.home() / ".cache" / "ags1")


def _project_files() -> list[Path]:
    return [PROJECT / "pom.xml", *sorted((PROJECT / "src").rglob("*.java"))]


def build(iceberg_version: str | None = None) -> Path:
    """Build the Maven project and return a directory with its ``classes`` and ``lib``.

    The directory lies in ``$AGS1_CACHE`` (``~/.cache/ags1`` without it) under a hash of the project's files,
    so a second run starts at once and a changed source is never served stale. Nothing is written into the
    source tree.

    Parameters
    ----------
    iceberg_version
        Another Iceberg release than the one the project file names.
    """
    digest = hashlib.sha256(f"{iceberg_version}\n".encode())
    for path in _project_files():
        digest.update(f"{path.relative_to(PROJECT)}\n".encode() + path.read_bytes())
    root = _cache_root()
    built = root / f"java-peer-{digest.hexdigest()[:20]}"
    if built.is_dir():
        return built
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="java-peer-build-", dir=root) as scratch:
        work = Path(scratch) / "work"
        for path in _project_files():
            target = work / path.relative_to(PROJECT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        command = [str(_tool("mvn")), "-q", "-B", "compile", "dependency:copy-dependencies"]
        command.append(f"-DoutputDirectory={work / 'lib'}")
        if iceberg_version is not None:
            command.append(f"-Diceberg.version={iceberg_version}")
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


def _bytes_field(value: bytes | None) -> str:
    return "-" if value is None else value.hex()


def _master_keys(keys: Mapping[str, bytes]) -> str:
    return ",".join(f"{key_id}={key.hex()}" for key_id, key in keys.items())


def _length_field(value: int | None) -> str:
    return "-" if value is None else str(value)


class JavaPeer:
    """One JVM with Iceberg on its class path; a context manager.

    Not for use from several threads at once: the protocol has one request under way.

    Parameters
    ----------
    iceberg_version
        An Iceberg release other than the project's own.
    timeout
        Seconds to wait for one answer; the JVM is ended when it stays silent longer.
    jvm_options
        Further options for the ``java`` command, such as a heap size.
    """

    def __init__(
        self,
        iceberg_version: str | None = None,
        timeout: float = ANSWER_SECONDS,
        jvm_options: Sequence[str] = (),
    ) -> None:
        if (reason := available()) is not None:
            raise PeerFailure(reason)
        built = build(iceberg_version)
        class_path = os.pathsep.join([str(built / "classes"), str(built / "lib" / "*")])
        self._timeout = timeout
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [str(_tool("java")), *jvm_options, "-cp", class_path, MAIN_CLASS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
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

    def __enter__(self) -> JavaPeer:  # noqa: PYI034 - typing.Self came with Python 3.11
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the JVM; a second call does nothing."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def _said_on_stderr(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace")[-2000:]

    def ask(self, *fields: str, timeout: float | None = None) -> list[str]:
        """Send one request and return the fields of its answer.

        Raises
        ------
        JavaError
            Iceberg threw an exception.
        PeerFailure
            There was no answer in time, or no JVM to give one. The JVM is ended then, because a late answer
            would be taken for the answer to the next request.
        """
        if any("\t" in field or "\n" in field for field in fields):
            raise ValueError("a field with a tab or a line feed has no place in the protocol")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("\t".join(fields) + "\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=self._timeout if timeout is None else timeout)
        except (OSError, ValueError) as error:
            raise PeerFailure(f"the JVM is gone: {error}") from error
        except queue.Empty:
            self._process.kill()
            raise PeerFailure(f"no answer to {fields[0]}") from None
        if not line:
            raise PeerFailure(f"the JVM ended during {fields[0]}: {self._said_on_stderr()}")
        status, *answer = line.rstrip("\n").split("\t")
        if status == "error":
            raise JavaError(*answer)
        if status != "ok":
            raise PeerFailure(f"not in the protocol: {line[:200]!r}")
        return answer

    def version(self) -> PeerVersion:
        """Return the versions of Iceberg and Java, and whether this Iceberg takes a trusted length."""
        iceberg, java, takes_length = self.ask("version")
        return PeerVersion(iceberg, java, takes_length == "true")

    def encrypt(self, key: bytes, aad_prefix: bytes | None, source: Path, target: Path) -> int:
        """Encrypt a file; return the stored length that Iceberg reports."""
        return int(self.ask("encrypt", key.hex(), _bytes_field(aad_prefix), str(source), str(target))[0])

    def decrypt(self, key: bytes, aad_prefix: bytes | None, length: int | None, source: Path, target: Path) -> int:
        """Decrypt a file; return the number of plaintext bytes read."""
        fields = (key.hex(), _bytes_field(aad_prefix), _length_field(length), str(source), str(target))
        return int(self.ask("decrypt", *fields)[0])

    def pread(
        self,
        key: bytes,
        aad_prefix: bytes | None,
        length: int | None,
        source: Path,
        ranges: Sequence[tuple[int, int]],
    ) -> tuple[int, list[tuple[int, str]]]:
        """Seek and read; return the plaintext length, and the size and SHA-256 of each range as read."""
        asked = ",".join(f"{offset}:{size}" for offset, size in ranges)
        fields = (key.hex(), _bytes_field(aad_prefix), _length_field(length), str(source), asked)
        size, *answers = self.ask("pread", *fields)
        pairs = (answer.split(":") for answer in answers)
        return int(size), [(int(count), digest) for count, digest in pairs]

    def encode(self, key: bytes, aad_prefix: bytes | None, file_length: int | None) -> bytes:
        """Encode a StandardKeyMetadata."""
        return bytes.fromhex(self.ask("encode", key.hex(), _bytes_field(aad_prefix), _length_field(file_length))[0])

    def decode(self, encoded: bytes) -> PeerKeyMetadata:
        """Decode a StandardKeyMetadata."""
        key, prefix, length = self.ask("decode", encoded.hex())
        return PeerKeyMetadata(
            bytes.fromhex(key),
            None if prefix == "-" else bytes.fromhex(prefix),
            None if length == "-" else int(length),
        )

    def encrypt_managed(self, key_length: int, source: Path, target: Path) -> tuple[bytes, int]:
        """Encrypt as a table writer does; return the key metadata and the stored length."""
        metadata, length = self.ask("encrypt-managed", str(key_length), str(source), str(target))
        return bytes.fromhex(metadata), int(length)

    def decrypt_managed(self, key_metadata: bytes, source: Path, target: Path) -> int:
        """Decrypt as a table reader does, from key metadata alone; return the number of bytes read."""
        return int(self.ask("decrypt-managed", key_metadata.hex(), str(source), str(target))[0])

    def add_keys(
        self,
        entries: Sequence[str],
        table_key_id: str,
        key_metadata: Sequence[bytes],
        *,
        master_keys: Mapping[str, bytes],
        data_key_length: int = 16,
        time_shift: int = 0,
    ) -> PeerKeyList:
        """Wrap and register key metadata in a list of ``encryption-keys``, given as the JSON of each entry.

        Parameters
        ----------
        time_shift
            Milliseconds by which the encryption manager's clock is ahead.
        """
        fields = (table_key_id, str(data_key_length), _master_keys(master_keys), str(time_shift))
        values = [each.hex() for each in key_metadata]
        calls, *answer = self.ask("keys-add", *fields, str(len(values)), *values, *entries)
        wraps, unwraps = map(int, calls.split(","))
        return PeerKeyList(answer[: len(values)], answer[len(values) :], wraps, unwraps)

    def open_keys(
        self,
        entries: Sequence[str],
        table_key_id: str,
        key_ids: Sequence[str],
        *,
        master_keys: Mapping[str, bytes],
    ) -> tuple[list[bytes], int]:
        """Open entries of ``encryption-keys``; return the key metadata of each id, and the number of unwrap calls."""
        fields = (table_key_id, _master_keys(master_keys), str(len(key_ids)), *key_ids)
        calls, *answer = self.ask("keys-open", *fields, *entries)
        return [bytes.fromhex(each) for each in answer], int(calls.partition(",")[2])

    def rewrite_keys(self, entries: Sequence[str]) -> list[str]:
        """Have each entry of ``encryption-keys`` parsed and written again."""
        return self.ask("keys-json", *entries)

    def rewrite_table(self, metadata: Path) -> str:
        """Have a table's metadata parsed and written again."""
        return self.ask("table-json", str(metadata))[0]

    def open_snapshot(self, metadata: Path, snapshot_id: int, *, master_keys: Mapping[str, bytes]) -> bytes:
        """Open the key metadata of a snapshot's manifest list with nothing but the table's metadata and a KMS."""
        answer = self.ask("table-open", str(metadata), str(snapshot_id), _master_keys(master_keys))
        return bytes.fromhex(answer[0])

    def bench(
        self,
        direction: str,
        key: bytes,
        aad_prefix: bytes | None,
        length: int | None,
        source: Path,
        target: Path,
        rounds: int,
        timeout: float | None = None,
    ) -> list[int]:
        """Encrypt or decrypt a file `rounds` times; return the nanoseconds of each round, by Java's clock.

        The JVM has the fast AES-GCM only after it compiled the hot loops: the first gigabyte or so may run at
        a twentieth of the later speed. Throw those rounds away.
        """
        fields = (direction, key.hex(), _bytes_field(aad_prefix), _length_field(length))
        answer = self.ask("bench", *fields, str(source), str(target), str(rounds), timeout=timeout)
        return [int(nanoseconds) for nanoseconds in answer]
