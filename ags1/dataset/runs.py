"""Runs: the id and the keys of a writer, and the record of an interrupted one.

    _ags1/runs/4f1c2a9be07d/run.json                what the run does, and its key, wrapped
    _ags1/runs/4f1c2a9be07d/done-4f1c2a9b.sealed    files that are complete and durable, and what they were made from

The run has one random key. The key and the AAD prefix of an object are derived from this key and from the object's
name, which is unique:

    HKDF-Expand of SHA-512 (RFC 5869, section 2.3):  run key, label | run | object name  ->  32 + 16 bytes

So no key of a file is sent between processes: a worker gets the wrapped run key and unwraps it with the KMS, and the
process that commits derives the same keys. A later run takes over the files of an interrupted run from its records,
which are sealed under the run's key: :mod:`ags1.work.records` says when they are believed. A record is written after
the data that it names is durable.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ags1.core.gcm import Key
from ags1.dataset.entries import Part, SourceIdentity
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.names import RUNS, check_path, new_run, run_of
from ags1.errors import FormatError
from ags1.iceberg.keys.wrapped_key import WrappedKey, unwrapping_under
from ags1.keys import AAD_PREFIX_LENGTH, KeyMetadata
from ags1.layout import encrypted_length
from ags1.storage import Location
from ags1.support.typing import Any, NoReturn
from ags1.work.records import FoundRun, RunName, RunRecords, RunSeal, found_runs, opened_runs, remove_run

_LABEL = b"ags1 file of a run"
_KIND, _DONE = "dataset", "done-"
KEY_LENGTH = 32


@dataclass(frozen=True, slots=True)
class Done:
    """A file that a worker has written completely. It holds no key, so it can be sent to another process.

    `parts` are the names of its objects, each with its bytes of plaintext; `source` is the identity of the source.
    """

    path: str
    parts: tuple[tuple[str, int], ...]
    source: SourceIdentity | None = None
    mode: int | None = None
    run: str = ""

    @property
    def plaintext_length(self) -> int:
        """Bytes of plaintext."""
        return sum(length for _, length in self.parts)

    def to_json(self) -> list[Any]:
        """The form in a record."""
        source = None if self.source is None else self.source.to_json()
        return [self.path, [list(part) for part in self.parts], source, self.mode]

    @classmethod
    def from_json(cls, fields: Any, run: str) -> Done:
        """Read that form. ValueError, TypeError, FormatError: it is not valid, or not of this run."""
        path, parts, source, mode = fields
        found = tuple((check_path(name), int(length)) for name, length in parts)
        identity = None if source is None else SourceIdentity.from_json(source)
        made = cls(check_path(path), found, identity, None if mode is None else int(mode), run)
        if not found or any(run_of(name) != run or length < 0 for name, length in found):
            raise FormatError(f"{path}: a record has an object of another run")
        if identity is not None and made.plaintext_length != identity.size:
            raise FormatError(f"{path}: the objects in a record do not have as many bytes as their source")
        return made


@dataclass(frozen=True)
class RunReference:
    """The data that a worker process needs besides access to the KMS. It contains no secret and can be pickled.

    `owner` is the UUID of the dataset; "" for a run without records.
    """

    run: str
    key: WrappedKey
    owner: str = ""

    @classmethod
    def create(cls, key: WrappedKey, kms: Any) -> RunReference:
        """Make a run without a record, for writes of a program, or for a driver with tasks.

        Its key is :meth:`another <ags1.iceberg.keys.wrapped_key.WrappedKey.another>` one beside `key`.
        """
        return cls(new_run(), key.another(kms))

    def unwrap(self, kms: Any) -> RunKeys:
        """The run's keys; they are unwrapped with the KMS on first use."""
        return RunKeys(self, kms)


class RunKeys:
    """The keys of the objects that a run writes. Safe to use from several threads; it cannot be pickled."""

    def __init__(self, reference: RunReference, kms: Any) -> None:
        self.reference = reference
        self._kms = kms
        self._key: Key | None = None
        self._states: tuple[Any, Any] | None = None
        self._seals: dict[str, RunSeal] = {}
        self._label = b"\0".join((_LABEL, reference.run.encode(), b""))

    def key(self) -> Key:
        """The run's key. KeyAccessError: the KMS refused."""
        if self._key is None:
            self._key = self.reference.key.unwrap(self._kms)
        return self._key

    def seal(self, kind: str) -> RunSeal:
        """The seal of what the run keeps or sends; raises as :meth:`key`."""
        found = self._seals.get(kind)
        if found is None:
            name = RunName(kind, self.reference.owner, self.reference.run)
            found = self._seals[kind] = RunSeal(self.key(), name)
        return found

    def object_key(self, object_name: str) -> KeyMetadata:
        """Key and AAD prefix of an object."""
        return KeyMetadata(*self.derive(object_name))

    def derive(self, object_name: str) -> tuple[bytes, bytes]:
        """Bytes of the key, and AAD prefix, of an object. As :meth:`object_key`, for thousands of them."""
        states = self._states
        if states is None:
            # HMAC by RFC 2104: the inner and the outer hash are keyed once and copied for each object.
            secret = bytes(self.key()).ljust(hashlib.sha512().block_size, b"\0")
            pads = (bytes(each ^ pad for each in secret) for pad in (0x36, 0x5C))
            begun, ended = (hashlib.sha512(each) for each in pads)
            states = self._states = begun, ended
        inner, outer = states[0].copy(), states[1].copy()
        # One block of HKDF-Expand gives all 48 bytes.
        inner.update(b"%s%s\x01" % (self._label, object_name.encode()))
        outer.update(inner.digest())
        made = outer.digest()
        return made[:KEY_LENGTH], made[KEY_LENGTH : KEY_LENGTH + AAD_PREFIX_LENGTH]

    def parts(self, done: Done, keys: DatasetKeys) -> tuple[Part, ...]:
        """The objects of a file that was written, with their keys under that of the dataset."""
        made = []
        for name, length in done.parts:
            key, prefix = self.derive(name)
            metadata = KeyMetadata.encoded(key, prefix, encrypted_length(length))
            made.append(Part(name, length, keys.seal(name, metadata)))
        return tuple(made)

    def __repr__(self) -> str:
        return f"<ags1.dataset.RunKeys of run {self.reference.run}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the keys of a run cannot be pickled or copied: send its reference, and unwrap that there")


class DatasetRun:
    """A run that this process has begun on a version of the dataset (0: a new dataset). Use it from one thread.

    `key` is that of the dataset. `operation` is information for readers of the record. With `durable`, recorded files
    are on the disk.
    """

    def __init__(
        self, location: Location, owner: str, key: WrappedKey, base_version: int, kms: Any, operation: str,
        *, durable: bool = True,
    ) -> None:  # fmt: skip
        self.id = new_run()
        self.location = location
        self._key = key
        self._owner = owner
        self._kms = kms
        self._about = {
            "operation": operation,
            "base-version": base_version,
            "durable": durable,
            "created-ms": time.time_ns() // 1_000_000,
        }
        self._keys: RunKeys | None = None

    @property
    def keys(self) -> RunKeys:
        """The keys of the objects that it writes."""
        assert self._keys is not None, "begin the run first"
        return self._keys

    def begin(self) -> None:
        """Make the run's key and its record, before any object of it is written; again, it does nothing."""
        if self._keys is None:
            made = RunReference(self.id, self._key.another(self._kms), self._owner).unwrap(self._kms)
            _records(self.location, made).begin(made.reference.key.to_json(), self._about)
            self._keys = made

    def record(self, done: Sequence[Done]) -> None:
        """Record that some files are complete. The caller has made them durable."""
        record(self.location, self.keys, done)

    def forget(self) -> None:
        """Remove the record, after the commit."""
        if self._keys is not None:
            remove_record(self.location, self.id)


def record(location: Location, keys: RunKeys, done: Sequence[Done]) -> None:
    """Record that some files of a run are complete and durable; for the driver, or a worker that has the keys."""
    if done:
        _records(location, keys).add(_DONE, [each.to_json() for each in done])


def _records(location: Location, keys: RunKeys) -> RunRecords:
    # A record that a power cut removes or cuts is ignored: the files are encrypted again, and none is lost.
    return RunRecords(_directory(location, keys.reference.run), keys.seal(_KIND), durable=False)


def _directory(location: Location, run: str) -> Location:
    return location.as_root().join(f"{RUNS}/{run}")


def records(location: Location) -> list[FoundRun]:
    """The runs that have records in a dataset. NotADirectoryError: the directory of the records is a link."""
    return found_runs(location.as_root().join(RUNS))


def remove_record(location: Location, run: str) -> None:
    """Remove the record of a run; objects that do not exist any more are ignored."""
    remove_run(_directory(location, run))


@dataclass
class Interrupted:
    """The work of a run that did not commit.

    The keys of its objects are derived again from `keys`. If it was not `durable`, its files may not be on the disk.
    """

    run: str
    keys: RunKeys
    base_version: int
    durable: bool
    done: list[Done]


def interrupted(
    location: Location, kms: Any, key_id: str, owner: str | None, notes: list[tuple[str, str]]
) -> Iterator[Interrupted]:
    """Runs that left records, and the files that these name.

    `key_id` is the master key of the dataset, and `owner` its UUID; None if there is no dataset yet. A run that is not
    authentic under them, or cannot be read, is noted and skipped, and so is a single record.
    """

    def refused(name: str, error: Exception) -> None:
        notes.append((f"{RUNS}/{name}", f"this work of an interrupted run cannot be used: {error}"))

    for opened in opened_runs(records(location), _KIND, owner, unwrapping_under(key_id, kms), refused):
        run, base = opened.found.run, opened.about.get("base-version")
        if type(base) is not int:
            refused(run, FormatError("its run.json is damaged"))
            continue
        done = opened.items(_DONE, partial(Done.from_json, run=run), refused)
        keys = RunReference(run, WrappedKey.from_json(opened.wrapped, run), opened.seal.name.owner).unwrap(kms)
        yield Interrupted(run, keys, base, opened.about.get("durable") is True, done)
