"""What an unfinished run has done: so that the next one goes on there, and no key of a file is lost.

    journal-ID.json   wrapped keys, as in metadata.json, so that a first run, which has no metadata.json yet, can be
                      taken over too
    journal-ID.log    records: length (4 bytes) | nonce (12) | AES-GCM of lines of a manifest | tag (16)

A record is written before its files appear, never after: then a file of ours whose key nobody has cannot exist.
The AAD of a record holds the dataset, the version that the run began on, the journal and the record's index; so an old
journal, or records out of order, do not authenticate. A last record that is cut short is what a kill leaves: it is
dropped. A log that was cut between records looks the same, and costs no more than doing its files again.
"""

from __future__ import annotations

import json
import os
import re
import struct
import threading
import time
from collections.abc import Iterable

from ags1._gcm import Key, open_message, random_bytes, seal_message
from ags1.dataset._control import CONTROL, named, write_whole
from ags1.dataset._keys import KeyRing
from ags1.dataset._manifest import Entry, entry_line, parse_line
from ags1.errors import AuthenticationError, FormatError
from ags1.keys import KeyMetadata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

__all__ = ["JOURNAL_NAME", "Journal", "Taken", "journals"]

JOURNAL_NAME = re.compile(r"journal-([0-9a-f]{16})\.(json|log)")
FORMAT_VERSION = 1
_LENGTH = struct.Struct(">I")
_NONCE, _TAG = 12, 16
_MAX_RECORD = 64 << 20
_STAGED, _IN_PLACE = b"s", b"p"


class Taken:
    """A file that an unfinished run was at: its entry, and whether it waits in the staging directory."""

    __slots__ = ("entry", "staged")

    def __init__(self, entry: Entry, staged: bool) -> None:
        self.entry = entry
        self.staged = staged


def journals(root: str) -> dict[str, set[str]]:
    """Ids of the journals of a dataset, each with the endings of the files that are there."""
    found: dict[str, set[str]] = {}
    try:
        names = os.listdir(os.path.join(root, CONTROL))
    except FileNotFoundError:
        return found
    for name in names:
        match = JOURNAL_NAME.fullmatch(name)
        if match:
            found.setdefault(match[1], set()).add(match[2])
    return found


class Journal:
    """The journal of one run, to be written or taken over. Appending is safe from several threads.

    Attributes
    ----------
    id : str
        Random; in the names of its files.
    uuid : str
        The dataset's.
    base_version : int
        Version of the dataset that the run began on; 0 for a new one.
    keys : KeyRing
        Wrapped keys, the journal's own among them.
    """

    def __init__(self, root: str, identity: str, uuid: str, base_version: int, keys: KeyRing, key: Key) -> None:
        self.id = identity
        self.uuid = uuid
        self.base_version = base_version
        self.keys = keys
        self._root = root
        self._key = key
        self._count = 0
        self._length = 0
        self._descriptor = -1
        self._lock = threading.Lock()

    @property
    def staging(self) -> str:
        """Name of the staging directory in the control directory."""
        return f"staged-{self.id}"

    def _path(self, ending: str) -> str:
        return os.path.join(self._root, CONTROL, f"journal-{self.id}.{ending}")

    @classmethod
    def create(cls, root: str, uuid: str, base_version: int, keys: KeyRing, kms: Any) -> Self:
        """Begin a journal, with a fresh key wrapped like every other key of the dataset."""
        metadata = KeyMetadata.generate()
        identity = random_bytes(8).hex()
        key_id = keys.add(metadata, kms)
        journal = cls(root, identity, uuid, base_version, keys.only(key_id), metadata.encryption_key)
        fields = {
            "format-version": FORMAT_VERSION,
            "uuid": uuid,
            "base-version": base_version,
            "table-key-id": keys.table_key_id,
            "key-id": key_id,
            "encryption-keys": journal.keys.to_list(),
            "created-ms": time.time_ns() // 1_000_000,
        }
        write_whole(journal._path("json"), json.dumps(fields, indent=2).encode() + b"\n")
        journal._open()
        return journal

    @classmethod
    def take_over(cls, root: str, identity: str, kms: Any) -> tuple[Self, dict[str, Taken]]:
        """Go on with the journal of a run that did not end.

        Returns
        -------
        Journal, dict of str to Taken
            The last record of each file wins.

        Raises
        ------
        FormatError, AuthenticationError
            It is damaged, or was tampered with.
        KeyAccessError
            Its key could not be had.
        """
        fields = read_fields(root, identity)
        path = os.path.join(root, CONTROL, f"journal-{identity}.json")
        keys = KeyRing(fields["encryption-keys"], fields["table-key-id"], path)
        metadata = keys.unwrap(fields["key-id"], kms)
        journal = cls(root, identity, fields["uuid"], fields["base-version"], keys, metadata.encryption_key)
        journal._open()
        try:
            return journal, journal._replay()
        except BaseException:
            journal.close()
            raise

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path("log"), flags, 0o666)

    def _aad(self, index: int) -> bytes:
        return f"ags1-journal {self.uuid} {self.base_version} {self.id} {index}".encode()

    def _replay(self) -> dict[str, Taken]:
        found: dict[str, Taken] = {}
        name = self._path("log")
        with open(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            while True:
                head = file.read(_LENGTH.size)
                length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
                data = file.read(length) if _NONCE + _TAG <= length <= _MAX_RECORD else b""
                if not data or len(data) < length:
                    break
                plain = open_message(data[_NONCE:], self._key, data[:_NONCE], self._aad(self._count))
                if plain is None:
                    raise AuthenticationError(
                        f"{name}: record {self._count} failed authentication: the journal of an unfinished run is "
                        "damaged or was changed (resume=False, or --no-resume, starts that run again)"
                    )
                for line in plain.split(b"\n"):
                    entry = parse_line(line[1:], name)
                    found[entry.path] = Taken(entry, line[:1] == _STAGED)
                self._count += 1
                self._length += _LENGTH.size + length
        # Behind it comes at most a record that was cut short.
        os.ftruncate(self._descriptor, self._length)
        return found

    def append(self, entries: Iterable[tuple[Entry, bool]], *, durable: bool = False) -> None:
        """Note files that are about to appear, staged or in place."""
        plain = b"\n".join((_STAGED if staged else _IN_PLACE) + entry_line(entry) for entry, staged in entries)
        nonce = random_bytes(_NONCE)
        with self._lock:
            data = nonce + seal_message(plain, self._key, nonce, self._aad(self._count))
            record = memoryview(_LENGTH.pack(len(data)) + data)
            try:
                while record:
                    record = record[os.write(self._descriptor, record) :]
                if durable:
                    os.fdatasync(self._descriptor)
            except BaseException as error:
                os.ftruncate(self._descriptor, self._length)
                if isinstance(error, OSError):
                    raise named(error, self._path("log")) from None
                raise
            self._count += 1
            self._length += _LENGTH.size + len(data)

    def close(self) -> None:
        """Close its file; what was noted stays for the next run."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def read_fields(root: str, identity: str) -> dict[str, Any]:
    """The plaintext part of a journal.

    Raises
    ------
    FormatError
        It is damaged.
    """
    path = os.path.join(root, CONTROL, f"journal-{identity}.json")
    try:
        with open(path, "rb") as file:
            fields = json.loads(file.read(_MAX_RECORD))
    except (ValueError, RecursionError):
        fields = None
    kinds = {"uuid": str, "base-version": int, "table-key-id": str, "key-id": str, "encryption-keys": list}
    if not isinstance(fields, dict) or fields.get("format-version") != FORMAT_VERSION:
        raise FormatError(f"{path}: the journal of an unfinished run is damaged, or of an unknown version")
    for field_name, kind in kinds.items():
        if not isinstance(fields.get(field_name), kind):
            raise FormatError(f"{path}: the journal of an unfinished run has no {field_name}, or a damaged one")
    return fields


def rewrite_keys(root: str, identity: str, fields: dict[str, Any], keys: KeyRing) -> None:
    """Replace the wrapped keys of a journal by the same keys, wrapped by another master key."""
    path = os.path.join(root, CONTROL, f"journal-{identity}.json")
    fields = {**fields, "table-key-id": keys.table_key_id, "encryption-keys": keys.to_list()}
    write_whole(path, json.dumps(fields, indent=2).encode() + b"\n")


def remove(root: str, identity: str) -> None:
    """Remove the files of a journal whose run is over. Its staging directory is seen to by the caller."""
    # The log goes first: without its keys it would be of no use.
    for ending in ("log", "json"):
        try:
            os.unlink(os.path.join(root, CONTROL, f"journal-{identity}.{ending}"))
        except FileNotFoundError:
            pass
