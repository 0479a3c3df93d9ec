"""Records of what an unfinished run has done. A later run believes them only if they are authentic.

    DIRECTORY/RUN/run.json       kind and owner of the run, its wrapped work key, and, sealed, what the run is about
    DIRECTORY/RUN/NAME.sealed    a record: JSON, sealed as a whole; written once, and never changed

    master key --wraps--> work key --HMAC-SHA-256 over kind, owner and run--> key of the records
    sealed = nonce (12) || AES-256-GCM (JSON) || tag (16); the AAD has kind, owner, run, and the name of the record

A dataset, an Iceberg table, an encrypted column of Spark, a decryption of Spark and the tasks of a Spark job seal with
the same :class:`RunSeal`, each as another kind. The owner is the UUID of the dataset or table, or the name of the
column. A decryption has no run.json: its key is that of the dataset.

Threat model
------------
An attacker can write, change, exchange, put back and remove every object in the storage, and has runs of other datasets
and tables and master keys of other people. They have neither the master key that the reader of the records names, nor
a key that it has wrapped. Then:

- A record is believed whole or not at all: what a file was made from, what was made, its length, and "it has no key".
- Nothing of another run, owner, kind or name is believed: all of them are in the key of the records, and in the AAD.
- The reader says which master key wrapped the work key. A run that names none, or another, is not believed: what the
  records themselves say is no reason to believe them.
- A run or a record that cannot be read costs work that is done again. It is no error of the run that finds it.

A run that was put back whole, after it ended, is authentic. So a record says what its file was made from, and its
reader compares that with what is there now. The writer makes a file durable before it records it. Whoever may use the
master key, or has a key that it wrapped, can write records: after such a leak take nothing over.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from ags1.core.gcm import Key, open_message, random_bytes, seal_message
from ags1.errors import Ags1Error, AuthenticationError, FormatError
from ags1.storage import (
    SMALL_FILES_AT_ONCE,
    Location,
    create,
    in_order,
    list_files,
    make_parent,
    open_output,
    pass_unnamed,
    read_whole,
    remove,
    remove_directories,
)
from ags1.support.typing import Any, NoReturn

_RUN = "run.json"
_ENDING = ".sealed"
_IS_RUN = re.compile("[0-9a-f-]{12,36}")
# What writers of records make, and the object by which `expire` learns the store's time.
_IS_OBJECT = re.compile(r"run\.json|time|[\w-]+\.sealed", re.ASCII)
_VERSION = 3
_NONCE, _TAG, _NAME = 12, 16, 8
_MAX_RUN = 1 << 20
_MAX_RECORD = 64 << 20

Item = TypeVar("Item")
Unwrap: TypeAlias = Callable[[Mapping[str, Any], str], Key]
Refused: TypeAlias = Callable[[str, Exception], object]


@dataclass(frozen=True)
class RunName:
    """The kind of a run, the UUID of the dataset or table that it belongs to, and its own id."""

    kind: str
    owner: str
    run: str

    def bound(self, name: str) -> bytes:
        """Bytes that no other name of any run has."""
        return json.dumps(["ags1 run", self.kind, self.owner, self.run, name]).encode("ascii")


class RunSeal:
    """Seals and opens what belongs to one run. Safe to share between threads; it cannot be pickled."""

    __slots__ = ("_key", "name")

    def __init__(self, work_key: Key, name: RunName) -> None:
        self.name = name
        self._key = Key(hmac.digest(bytes(work_key), name.bound("key of the records"), hashlib.sha256))

    def seal(self, data: bytes, name: str) -> bytes:
        """Return the sealed data, which can be opened under this name only."""
        nonce = random_bytes(_NONCE)
        return nonce + seal_message(data, self._key, nonce, self.name.bound(name))

    def open(self, sealed: bytes, name: str) -> bytes:
        """Return the data; an AuthenticationError if it was changed, or sealed under another name or run."""
        plain = None
        if len(sealed) >= _NONCE + _TAG:
            plain = open_message(sealed[_NONCE:], self._key, sealed[:_NONCE], self.name.bound(name))
        if plain is None:
            raise AuthenticationError(
                f"{name}: it was not sealed by run {self.name.run} under this name, or was changed since"
            )
        return plain

    def __reduce__(self) -> NoReturn:
        raise TypeError("a RunSeal cannot be pickled: it holds a key; send the wrapped key")


class RunRecords:
    """Writes the records of a run into its directory. Threads and processes may write at once."""

    def __init__(self, directory: Location, seal: RunSeal, *, durable: bool) -> None:
        self.directory = directory
        self.seal = seal
        self._durable = durable

    def begin(self, wrapped: Mapping[str, Any], about: Mapping[str, Any], *, once: bool = False) -> None:
        """Write what comes first: the work key, wrapped, and what the run is about.

        With `once`, raise FileExistsError if there is a run of this name, and OSError ENOTSUP if the storage cannot
        tell.
        """
        name = self.seal.name
        sealed = self.seal.seal(json.dumps(dict(about)).encode("ascii"), _RUN)
        fields = {
            "format-version": _VERSION,
            "kind": name.kind,
            "owner": name.owner,
            "key": dict(wrapped),
            "sealed": base64.b64encode(sealed).decode("ascii"),
        }
        data = json.dumps(fields, indent=2).encode("ascii") + b"\n"
        self.make_directory()
        if once:
            create(self.directory.join(_RUN), data, durable=self._durable)
        else:
            self._write(_RUN, data)

    def make_directory(self) -> None:
        """Make the directory of the records. A task that is late does not make it again."""
        make_parent(self.directory.join(_RUN))

    def add(self, beginning: str, items: Sequence[Any]) -> None:
        """Write items of JSON as one record, under a new name. What they vouch for must be durable already."""
        name = f"{beginning}{random_bytes(_NAME).hex()}"
        data = json.dumps(items, separators=(",", ":")).encode("ascii")
        self._write(f"{name}{_ENDING}", self.seal.seal(data, name))

    def _write(self, name: str, data: bytes) -> None:
        with open_output(self.directory.join(name), expected=len(data)) as output:
            output.write(data)
            output.commit(durable=self._durable)


@dataclass(frozen=True)
class FoundRun:
    """A run that has a directory. Nothing of it is authentic before :meth:`open`.

    `begun` and `modified` are the times of its first and newest objects, in nanoseconds since 1970, by the clock of the
    store; `names` are its objects.
    """

    directory: Location
    run: str
    names: tuple[str, ...]
    begun: int
    modified: int

    def open(self, kind: str, owner: str | None, unwrap: Unwrap) -> OpenedRun:
        """Authenticate the run.

        Parameters
        ----------
        kind, owner : str
            As the caller expects them. Without an `owner`, that of the run: there is no dataset yet.
        unwrap : callable
            Returns the work key, from its wrapped form as :meth:`RunRecords.begin` was given it, and the name of the
            run for messages. It must refuse every master key but the one that the caller expects.

        Raises
        ------
        FileNotFoundError
            The run has just ended, or its directory was not completed or removed.
        FormatError, AuthenticationError
            It is of another kind or owner, is damaged, or was made without the work key.
        KeyAccessError
            The service did not unwrap the key.
        """
        place = self.directory.join(_RUN)
        fields = _parsed(read_whole(place, _MAX_RUN), place.shown)
        if fields.get("format-version") != _VERSION or fields.get("kind") != kind:
            raise FormatError(f"{place}: is not the record of a run of the kind {kind!r}, format version {_VERSION}")
        found, wrapped, sealed = fields.get("owner"), fields.get("key"), fields.get("sealed")
        if not isinstance(found, str) or not isinstance(wrapped, dict) or not isinstance(sealed, str):
            raise FormatError(f"{place}: is damaged, or has no key: nobody can say who wrote it")
        if owner is not None and found != owner:
            raise AuthenticationError(f"{place}: is of another dataset or table, {found!r}")
        try:
            data = base64.b64decode(sealed, validate=True)
        except ValueError:
            raise FormatError(f"{place}: is damaged") from None
        seal = RunSeal(unwrap(wrapped, self.directory.shown), RunName(kind, found, self.run))
        return OpenedRun(self, seal, wrapped, _parsed(seal.open(data, _RUN), place.shown))


@dataclass(frozen=True)
class OpenedRun:
    """A run that is authentic: its wrapped work key, and what it said that it is about."""

    found: FoundRun
    seal: RunSeal
    wrapped: Mapping[str, Any]
    about: Mapping[str, Any]

    def items(self, beginning: str, parse: Callable[[Any], Item], refused: Refused) -> list[Item]:
        """The items of the records whose names begin so.

        ``refused(name, error)`` is called for a record that cannot be read, is not authentic, or has an item that
        `parse` refuses; the other records are not affected.
        """
        directory = self.found.directory
        names = [each for each in self.found.names if each.startswith(beginning) and each.endswith(_ENDING)]

        def read(name: str) -> list[Item] | Exception:
            try:
                sealed = bytes(memoryview(read_whole(directory.join(name), _MAX_RECORD)))
                data = self.seal.open(sealed, name.removesuffix(_ENDING))
                return [parse(each) for each in json.loads(data)]
            except (Ags1Error, OSError, ValueError, TypeError, RecursionError) as error:
                return error

        # Tasks write many: in a store, each is a request.
        records = map(read, names) if directory.is_local else in_order(read, names, at_once=SMALL_FILES_AT_ONCE)
        found: list[Item] = []
        for name, record in zip(names, records, strict=True):
            if not isinstance(record, Exception):
                found += record
            # A record that is missing: the run has just ended.
            elif not isinstance(record, FileNotFoundError):
                refused(f"{self.found.run}/{name}", record)
        return found


def opened_runs(
    runs: Iterable[FoundRun], kind: str, owner: str | None, unwrap: Unwrap, refused: Refused
) -> Iterator[OpenedRun]:
    """Yield the runs that are authentic; the others, as :meth:`FoundRun.open` says, are told to `refused`."""
    for found in runs:
        try:
            yield found.open(kind, owner, unwrap)
        except FileNotFoundError:
            # It has just ended.
            continue
        except (Ags1Error, OSError) as error:
            refused(found.run, error)


def found_runs(directory: Location) -> list[FoundRun]:
    """Return the runs that have a directory below this one; none if it is missing.

    What has no name of ours, or is no file, is left out. NotADirectoryError: the directory is a link.
    """
    try:
        entries = list_files(directory.as_root(), on_error=pass_unnamed)
    except FileNotFoundError:
        return []
    found: dict[str, dict[str, int]] = {}
    for entry in entries:
        run, _, name = entry.name.rpartition("/")
        if _IS_RUN.fullmatch(run) and _IS_OBJECT.fullmatch(name):
            found.setdefault(run, {})[name] = entry.modified
    return [
        FoundRun(directory.as_root().join(run), run, tuple(times), min(times.values()), max(times.values()))
        for run, times in found.items()
    ]


def remove_run(directory: Location) -> None:
    """Remove the objects of a run; those that do not exist any more are ignored, and what is not ours stays.

    Without ``run.json`` it is no run.
    """
    directory = directory.as_root()
    try:
        entries = list_files(directory, on_error=pass_unnamed)
    except FileNotFoundError:
        return
    remove([directory.join(_RUN)])
    remove(each.location for each in entries if _IS_OBJECT.fullmatch(each.name))
    remove_directories([directory])


def _parsed(data: Any, name: str) -> dict[str, Any]:
    try:
        fields = json.loads(bytes(memoryview(data)))
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise FormatError(f"{name}: is not a JSON object: it is damaged")
    return fields
