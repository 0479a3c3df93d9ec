"""Runs: the id and the keys of a writer, and the record of an interrupted one.

    _ags1/runs/4f1c2a9be07d/run.json                what the run does, and its key for the default class, wrapped
    _ags1/runs/4f1c2a9be07d/class-1a2b3c4d.sealed   its key for another class, wrapped under that class's master key
    _ags1/runs/4f1c2a9be07d/done-000001.sealed      files that are complete and durable, and what they were made from

The run has one random key for each class that it writes files of. The key and the AAD prefix of an object are derived
from this key and from the object's name, which is unique:

    HKDF-Expand of SHA-512 (RFC 5869, section 2.3):  run key, label | run | object name  ->  32 + 16 bytes

So no key of a file is sent between processes: a worker gets the wrapped run keys and unwraps them with the KMS, and the
process that commits derives the same keys. A later run takes over the files of an interrupted run from its records,
which are sealed under the run's key for the default class: :mod:`ags1.kms.run_records` says when they are believed. A
record is written after the data that it names is durable.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ags1.core.gcm import Key, random_bytes
from ags1.dataset.classes import KeyClass
from ags1.dataset.entries import SourceIdentity
from ags1.dataset.names import RUNS, check_path, new_run, run_of
from ags1.errors import Ags1Error, AuthenticationError, FormatError
from ags1.keys import AAD_PREFIX_LENGTH, KeyMetadata
from ags1.kms.run_records import FoundRun, RunName, RunRecords, RunSeal, found_runs, remove_run
from ags1.layout import encrypted_length
from ags1.storage import Location
from ags1.support.typing import Any, NoReturn

_LABEL = b"ags1 file of a run"
_KIND = "dataset"
KEY_LENGTH = 32


@dataclass(frozen=True, slots=True)
class Done:
    """A file that a worker has written completely. It holds no key, so it can be sent to another process.

    `parts` are the names of its objects, each with its bytes of plaintext; `source` is the identity of the source.
    """

    path: str
    key_class: str
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
        return [self.path, self.key_class, [list(part) for part in self.parts], source, self.mode]

    @classmethod
    def from_json(cls, fields: Any, run: str) -> Done:
        """Read that form. ValueError, TypeError, FormatError: it is not valid, or not of this run."""
        path, key_class, parts, source, mode = fields
        found = tuple((check_path(name), int(length)) for name, length in parts)
        identity = None if source is None else SourceIdentity.from_json(source)
        made = cls(check_path(path), str(key_class), found, identity, None if mode is None else int(mode), run)
        if not found or any(run_of(name) != run or length < 0 for name, length in found):
            raise FormatError(f"{path}: a record has an object of another run")
        if identity is not None and made.plaintext_length != identity.size:
            raise FormatError(f"{path}: the objects in a record do not have as many bytes as their source")
        return made


@dataclass(frozen=True)
class RunReference:
    """The data that a worker process needs besides access to the KMS. It contains no secret and can be pickled.

    `classes` have the master keys and the run's wrapped keys, whose entries are their ``class_key``; the run's own
    records are under the class `default`. `owner` is the UUID of the dataset; "" for a run without records.
    """

    run: str
    classes: dict[str, KeyClass] = field(default_factory=dict)
    default: str = ""
    owner: str = ""

    @classmethod
    def create(cls, classes: Iterable[KeyClass], kms: Any) -> RunReference:
        """Make a run without a record, for writes of a program, or for a driver with tasks.

        It may write files of these classes, one of which has the pattern ``**``. Each needs only its master key and
        its key encryption keys: if one of those is young enough, one call to unwrap it is the only call to the KMS.
        """
        made = {each.id: _with_run_key(each, kms) for each in classes}
        return cls(new_run(), made, next(each.id for each in made.values() if each.pattern == "**"))

    def unwrap(self, kms: Any) -> RunKeys:
        """The run's keys; each class is unwrapped with the KMS on first use."""
        return RunKeys(self, kms)


def _with_run_key(key_class: KeyClass, kms: Any) -> KeyClass:
    """The class with a new key instead of its class key, and without other keys."""
    made, entry = key_class.wrapping(KeyMetadata(Key.generate(), random_bytes(AAD_PREFIX_LENGTH)), kms)
    return replace(made, class_key=entry).only(entry)


class RunKeys:
    """The keys of the objects that a run writes. Safe to use from several threads; it cannot be pickled."""

    def __init__(self, reference: RunReference, kms: Any) -> None:
        self.reference = reference
        self._kms = kms
        self._keys: dict[str, Key] = {}
        self._states: dict[str, tuple[Any, Any]] = {}
        self._seals: dict[str, RunSeal] = {}
        self._label = b"\0".join((_LABEL, reference.run.encode(), b""))

    def key(self, class_id: str | None = None) -> Key:
        """The run's key of a class, by default of the default class. KeyAccessError: the KMS refused."""
        name = class_id or self.reference.default
        found = self._keys.get(name)
        if found is None:
            each = self.reference.classes.get(name)
            if each is None:
                raise FormatError(f"run {self.reference.run} has no key for the class {name!r}")
            found = self._keys[name] = each.unwrap(each.class_key, self._kms).encryption_key
        return found

    def seal(self, kind: str) -> RunSeal:
        """The seal of what the run keeps or sends, below the key of its default class; raises as :meth:`key`."""
        found = self._seals.get(kind)
        if found is None:
            name = RunName(kind, self.reference.owner, self.reference.run)
            found = self._seals[kind] = RunSeal(self.key(), name)
        return found

    def object_key(self, class_id: str, object_name: str) -> KeyMetadata:
        """Key and AAD prefix of an object."""
        return KeyMetadata(*self.derive(class_id, object_name))

    def derive(self, class_id: str, object_name: str) -> tuple[bytes, bytes]:
        """Bytes of the key, and AAD prefix, of an object. As :meth:`object_key`, for thousands of them."""
        states = self._states.get(class_id)
        if states is None:
            # HMAC by RFC 2104: the inner and the outer hash are keyed once and copied for each object.
            secret = bytes(self.key(class_id)).ljust(hashlib.sha512().block_size, b"\0")
            pads = (bytes(each ^ pad for each in secret) for pad in (0x36, 0x5C))
            begun, ended = (hashlib.sha512(each) for each in pads)
            states = self._states[class_id] = begun, ended
        inner, outer = states[0].copy(), states[1].copy()
        # One block of HKDF-Expand gives all 48 bytes.
        inner.update(b"%s%s\x01" % (self._label, object_name.encode()))
        outer.update(inner.digest())
        made = outer.digest()
        return made[:KEY_LENGTH], made[KEY_LENGTH : KEY_LENGTH + AAD_PREFIX_LENGTH]

    def encoded_key(self, class_id: str, object_name: str, plaintext_length: int) -> bytes:
        """Encoded key metadata of an object. As :meth:`object_key`, for thousands of them."""
        key, prefix = self.derive(class_id, object_name)
        return KeyMetadata.encoded(key, prefix, encrypted_length(plaintext_length))

    def __repr__(self) -> str:
        return f"<ags1.dataset.RunKeys of run {self.reference.run}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the keys of a run cannot be pickled or copied: send its reference, and unwrap that there")


class DatasetRun:
    """A run that this process has begun on a version of the dataset (0: a new dataset). Use it from one thread.

    `operation` is information for readers of the record. With `durable`, recorded files are on the disk.
    """

    def __init__(
        self, location: Location, owner: str, classes: Sequence[KeyClass], base_version: int, kms: Any, operation: str,
        *, durable: bool = True,
    ) -> None:  # fmt: skip
        self.id = new_run()
        self.location = location
        self._classes = {each.id: each for each in classes}
        self._kms = kms
        self._default = next(each.id for each in classes if each.pattern == "**")
        self._about = {
            "operation": operation,
            "base-version": base_version,
            "durable": durable,
            "created-ms": time.time_ns() // 1_000_000,
            "default": self._default,
        }
        self.keys = RunKeys(RunReference(self.id, {}, self._default, owner), kms)
        self._records = 0

    @property
    def reference(self) -> RunReference:
        """The reference for workers; it has the classes of :meth:`use` so far."""
        return replace(self.keys.reference, classes=dict(self.keys.reference.classes))

    def use(self, class_ids: Iterable[str]) -> None:
        """Make the run's keys for some classes, before any object of them is written."""
        made = self.keys.reference.classes
        for class_id in dict.fromkeys([self._default, *class_ids]):
            if class_id in made:
                continue
            mine = _with_run_key(self._classes[class_id], self._kms)
            made[class_id] = mine
            try:
                records = _records(self.location, self.keys)
                if class_id == self._default:
                    records.begin(mine.to_json(), self._about)
                else:
                    records.add(f"class-{class_id}", mine.to_json())
            except BaseException:
                del made[class_id]
                raise

    def record(self, done: Sequence[Done]) -> None:
        """Record that some files are complete. The caller has made them durable."""
        if done:
            self._records += 1
            write_record(self.location, self.keys, f"{self._records:06d}", done)

    def forget(self) -> None:
        """Remove the record, after the commit."""
        if self.keys.reference.classes:
            remove_record(self.location, self.id)


def write_record(location: Location, keys: RunKeys, label: str, done: Sequence[Done]) -> None:
    """Record that some files of a run are complete and durable; for the driver, or a worker that has the keys.

    `label` must be unique among the records of the run.
    """
    _records(location, keys).add(f"done-{label}", [each.to_json() for each in done])


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
    classes: dict[str, KeyClass]
    base_version: int
    durable: bool
    done: list[Done]


def interrupted(
    location: Location, kms: Any, key_id: str, owner: str | None, notes: list[tuple[str, str]]
) -> Iterator[Interrupted]:
    """Runs that left records, and the files that these name.

    `key_id` is the master key of the dataset's default class, and `owner` its UUID; None if there is no dataset yet. A
    run that is not authentic under them, or cannot be read, is noted and skipped, and so is a single record.
    """
    for found in records(location):
        try:
            yield _interrupted(found, kms, key_id, owner, notes)
        except FileNotFoundError:
            # The run has just committed and is removing its record.
            continue
        except (Ags1Error, OSError) as error:
            notes.append((f"{RUNS}/{found.run}", f"the work of an interrupted run cannot be used: {error}"))


def _interrupted(
    found: FoundRun, kms: Any, key_id: str, owner: str | None, notes: list[tuple[str, str]]
) -> Interrupted:
    classes: dict[str, KeyClass] = {}

    def unwrap(wrapped: Mapping[str, Any]) -> Key:
        default = KeyClass.from_json(wrapped, f"{RUNS}/{found.run}")
        if default.key_id != key_id:
            raise AuthenticationError(
                f"it is under the master key {default.key_id!r}, and the dataset under {key_id!r}"
            )
        classes[default.id] = default
        return default.unwrap(default.class_key, kms).encryption_key

    opened = found.open(_KIND, owner, unwrap)
    (default,) = classes
    base = opened.about.get("base-version")
    if opened.about.get("default") != default or type(base) is not int:
        raise FormatError("its run.json is damaged")

    def refused(name: str, error: Exception) -> None:
        notes.append((f"{RUNS}/{found.run}/{name}", f"this record of an interrupted run cannot be used: {error}"))

    for name, fields in opened.records("class-", refused):
        made = KeyClass.from_json(fields, name)
        classes[made.id] = made
    done: list[Done] = []
    for name, value in opened.records("done-", refused):
        try:
            done += [Done.from_json(each, found.run) for each in value]
        except (FormatError, ValueError, TypeError) as error:
            refused(name, error)
    keys = RunReference(found.run, classes, default, opened.seal.name.owner).unwrap(kms)
    return Interrupted(found.run, keys, classes, base, opened.about.get("durable") is True, done)
