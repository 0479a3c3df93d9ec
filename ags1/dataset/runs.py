"""Runs: the id and the keys of a writer, and the record of an interrupted one.

    _ags1/runs/4f1c2a9be07d/run.json            dataset, version that it began on, its classes of keys
    _ags1/runs/4f1c2a9be07d/class-1a2b3c4d.json the run's key for a class, wrapped under that class's master key alone
    _ags1/runs/4f1c2a9be07d/done-000001.ags1    files that are complete and durable, and the identities of their sources

The run has one random key for each class that it writes files of. The key and the AAD prefix of an object are derived
from this key and from the object's name, which is unique:

    HKDF-Expand of SHA-512 (RFC 5869, section 2.3):  run key, label | run | object name  ->  32 + 16 bytes

So no key of a file is sent between processes: a worker gets the wrapped run keys and unwraps them with the KMS, and the
process that commits derives the same keys. A later run takes over the files of an interrupted run from its records. A
record is written after the data that it names is durable, and is never changed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ags1._gcm import Key, random_bytes
from ags1._typing import Any, NoReturn
from ags1.codec import decrypt, encrypt
from ags1.dataset.classes import KeyClass
from ags1.dataset.entries import SourceIdentity
from ags1.dataset.names import RUNS, check_path, new_run
from ags1.errors import Ags1Error, FormatError
from ags1.keys import AAD_PREFIX_LENGTH, KeyMetadata
from ags1.layout import encrypted_length
from ags1.storage import Entry as Listed
from ags1.storage import Location, list_files, make_parent, open_output, read_whole, remove

__all__ = ["Done", "Run", "RunKeys", "RunReference", "interrupted", "remove_record", "write_record"]

_LABEL = b"ags1 file of a run"
_MAX_RECORD = 64 << 20
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
        """Read that form. ValueError, TypeError, FormatError: it is not valid."""
        path, key_class, parts, source, mode = fields
        found = tuple((check_path(name), int(length)) for name, length in parts)
        identity = None if source is None else SourceIdentity.from_json(source)
        return cls(check_path(path), str(key_class), found, identity, None if mode is None else int(mode), run)


@dataclass(frozen=True)
class RunReference:
    """The data that a worker process needs besides access to the KMS. It contains no secret and can be pickled.

    `classes` have the master keys and the run's wrapped keys, whose entries are their ``class_key``; the run's own
    records are under the class `default`.
    """

    run: str
    classes: dict[str, KeyClass] = field(default_factory=dict)
    default: str = ""

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

    def object_key(self, class_id: str, object_name: str, plaintext_length: int | None = None) -> KeyMetadata:
        """Key, AAD prefix and, where `plaintext_length` is given, length of an object."""
        first, second = self.derive(class_id, object_name)
        length = None if plaintext_length is None else encrypted_length(plaintext_length)
        return KeyMetadata(first, second, length)

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


class Run:
    """A run that this process has begun on a version of the dataset (0: a new dataset). Use it from one thread.

    `operation` is information for readers of the record. With `durable`, recorded files are on the disk.
    """

    def __init__(
        self, location: Location, classes: Sequence[KeyClass], base_version: int, kms: Any, operation: str, *,
        durable: bool = True,
    ) -> None:  # fmt: skip
        self.id = new_run()
        self._location = location
        self._classes = {each.id: each for each in classes}
        self._kms = kms
        self._fields = {
            "format-version": 2,
            "run": self.id,
            "operation": operation,
            "base-version": base_version,
            "durable": durable,
            "created-ms": time.time_ns() // 1_000_000,
            "default": next(each.id for each in classes if each.pattern == "**"),
        }
        self.keys = RunKeys(RunReference(self.id, {}, str(self._fields["default"])), kms)
        self._begun = False
        self._records = 0

    @property
    def reference(self) -> RunReference:
        """The reference for workers; it has the classes of :meth:`use` so far."""
        return replace(self.keys.reference, classes=dict(self.keys.reference.classes))

    def use(self, class_ids: Iterable[str]) -> None:
        """Make the run's keys for some classes, before any object of them is written."""
        wanted = [self._fields["default"], *class_ids] if not self._begun else class_ids
        for class_id in wanted:
            if class_id in self.keys.reference.classes:
                continue
            each = self._classes[str(class_id)]
            mine = _with_run_key(each, self._kms)
            if not self._begun:
                self._begun = True
                self._write("run.json", self._fields)
            self._write(f"class-{each.id}.json", mine.to_json())
            self.keys.reference.classes[each.id] = mine

    def record(self, done: Sequence[Done]) -> None:
        """Record that some files are complete. The caller has made them durable."""
        if done:
            self._records += 1
            write_record(self._location, self.keys, f"{self._records:06d}", done)

    def forget(self) -> None:
        """Remove the record, after the commit."""
        if self._begun:
            remove_record(self._location, self.id)

    def _write(self, name: str, fields: dict[str, Any]) -> None:
        _create(self._location.join(f"{RUNS}/{self.id}/{name}"), json.dumps(fields, indent=2).encode("ascii") + b"\n")


def write_record(location: Location, keys: RunKeys, label: str, done: Sequence[Done]) -> None:
    """Record that some files of a run are complete and durable; for the driver, or a worker that has the keys.

    `label` must be unique among the records of the run.
    """
    name = f"{RUNS}/{keys.reference.run}/done-{label}.ags1"
    plain = json.dumps([each.to_json() for each in done], separators=(",", ":")).encode("ascii")
    metadata = keys.object_key(keys.reference.default, name)
    data = encrypt(plain, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"", threads=1)
    _create(location.join(name), data)


def _create(place: Location, data: bytes) -> None:
    make_parent(place)
    with open_output(place, expected=len(data)) as output:
        output.write(data)
        # A record that a power cut removes or cuts is ignored: the files are encrypted again, and none is lost.
        output.commit()


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


def interrupted(location: Location, kms: Any, notes: list[tuple[str, str]]) -> Iterator[Interrupted]:
    """Runs that left records, and the files that these name. A run that cannot be opened is noted and skipped."""
    files: dict[str, list[Listed]] = {}
    try:
        listed = list_files(location.join(RUNS))
    except FileNotFoundError:
        return
    for each in listed:
        files.setdefault(each.name.partition("/")[0], []).append(each)
    for run, entries in files.items():
        try:
            yield _interrupted(run, entries, kms)
        except FileNotFoundError:
            # The run has just committed and is removing its record.
            continue
        except (Ags1Error, OSError) as error:
            notes.append((f"{RUNS}/{run}", f"the work of an interrupted run cannot be used: {error}"))


def _interrupted(run: str, entries: list[Listed], kms: Any) -> Interrupted:
    found = RunReference(run)
    fields: dict[str, Any] = {}
    for each in entries:
        name = each.name.partition("/")[2]
        if name == "run.json":
            fields = _json(each.location)
        elif name.startswith("class-"):
            made = KeyClass.from_json(_json(each.location), each.path)
            found.classes[made.id] = made
    if not fields:
        raise FileNotFoundError(errno.ENOENT, "this record is being removed", f"{RUNS}/{run}")
    default, base = fields.get("default"), fields.get("base-version")
    if fields.get("format-version") != 2 or not isinstance(default, str) or type(base) is not int:
        raise FormatError(f"the record of run {run} is damaged, or was not completed")
    keys = replace(found, default=default).unwrap(kms)
    done: list[Done] = []
    for each in entries:
        if each.name.partition("/")[2].startswith("done-"):
            done += _done(each, run, keys)
    return Interrupted(run, keys, found.classes, base, fields.get("durable") is True, done)


def _done(listed: Listed, run: str, keys: RunKeys) -> Iterator[Done]:
    name = f"{RUNS}/{listed.name}"
    metadata = keys.object_key(keys.reference.default, name)
    data = read_whole(listed.location, _MAX_RECORD)
    plain = decrypt(data, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"", threads=1)
    try:
        for fields in json.loads(plain):
            yield Done.from_json(fields, run)
    except (ValueError, TypeError, RecursionError):
        raise FormatError(f"{listed.path}: no record is in this object") from None


def _json(location: Location) -> dict[str, Any]:
    try:
        fields = json.loads(bytes(memoryview(read_whole(location, _MAX_RECORD))))
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise FormatError(f"{location} is not a JSON object: it is damaged")
    return fields


def remove_record(location: Location, run: str) -> None:
    """Remove the record of a run; objects that do not exist any more are ignored."""
    directory = location.join(f"{RUNS}/{run}")
    try:
        entries = list_files(directory)
    except FileNotFoundError:
        return
    # run.json first: without it there is no record.
    remove([directory.join("run.json")])
    remove(each.location for each in entries)
    if location.is_local:
        try:
            os.rmdir(directory.path)
        except OSError:
            pass
