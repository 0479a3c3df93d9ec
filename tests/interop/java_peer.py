"""Iceberg's own Java classes as a partner: built with Maven, kept running, asked over a line protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.jvm import ANSWER_SECONDS, Jvm, PeerFailure, build
from tests.interop.jvm import compiler_missing as available

__all__ = ["JavaError", "JavaPeer", "PeerKeyList", "PeerKeyMetadata", "PeerVersion", "available"]

MAIN_CLASS = "ags1.interop.Ags1Peer"


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


def _bytes_field(value: bytes | None) -> str:
    return "-" if value is None else value.hex()


def _master_keys(keys: Mapping[str, bytes]) -> str:
    return ",".join(f"{key_id}={key.hex()}" for key_id, key in keys.items())


def _length_field(value: int | None) -> str:
    return "-" if value is None else str(value)


class JavaPeer(Jvm):
    """One JVM with Iceberg on its class path; a context manager.

    Not for use from several threads at once: the protocol has one request under way.

    Parameters
    ----------
    module
        A module of the Maven project: ``iceberg``, or ``iceberg-1.10``, whose key metadata has no file length.
    timeout
        Seconds to wait for one answer; the JVM is ended when it stays silent longer.
    jvm_options
        Further options for the ``java`` command, such as a heap size.
    """

    def __init__(
        self,
        module: str = "iceberg",
        timeout: float = ANSWER_SECONDS,
        jvm_options: Sequence[str] = (),
    ) -> None:
        if (reason := available()) is not None:
            raise PeerFailure(reason)
        super().__init__(build(module), MAIN_CLASS, timeout, jvm_options)

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
        line = self.exchange("\t".join(fields), timeout)
        status, *answer = line.split("\t")
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
