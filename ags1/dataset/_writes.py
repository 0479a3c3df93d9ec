"""Writes: runs that nobody holds the lock for until their commit, as those of Spark's data source are.

    _ags1/write-ID.json     the record: wrapped keys as in run-ID.json, and how far the write is
    _ags1/write-ID/         its files in a directory; behind an object store they are in place, with ID in their names

A write has no process that could hold the lock: it is planned in one, tasks write in others, a third commits it. So any
number of them go on at once, and beside a run that holds the lock. What that needs:

* The names are not those of a run: no run takes a write over, forgets it, or sweeps its files away.
* A write is of no version. It is committed on whatever version the dataset has by then.
* Behind an object store, nothing but the record tells the files of an unfinished write from those of the dataset. So it
  says which manifest is going to have them, before ``metadata.json`` does: the next one with the lock sees whether that
  came to be (:func:`settle`). Where it did, only the record is removed.
* Somebody else throws a write away under the lock, having said so in the record first; its own commit looks there. That
  is done by ``clean``, and to writes older than WRITE_LASTS by any update: no sign tells a slow one from a dead one.
* Behind an object store the record of a write that was given up stays for ZOMBIES_LAST: till then a task may be at it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import uuid
from collections.abc import Iterable

from ags1.dataset._control import CONTROL, Metadata
from ags1.dataset._keys import KeyRing
from ags1.dataset._recovery import now_ms
from ags1.dataset._runs import RunReference
from ags1.dataset._store import LocalStore, RemoteStore, read_metadata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Store = LocalStore | RemoteStore

__all__ = [
    "WRITE_LASTS",
    "abort",
    "announce",
    "begin",
    "claim",
    "finish",
    "note_retry",
    "place",
    "settle",
    "sweep",
    "take",
]

WRITE_LASTS = 7 * 24 * 3600.0
"""Seconds. No job is known to last longer, and S3's users commonly end uploads by then."""

ZOMBIES_LAST = 3600.0
"""Seconds after which no task of a write that was thrown away is at work any more."""

_RECORD = re.compile(r"write-([0-9a-f]{16})\.json")
_DIRECTORY = re.compile(r"write-([0-9a-f]{16})")
_WRITING, _COMMITTING, _ABANDONED = "writing", "committing", "abandoned"


def _record_name(run: str) -> str:
    return f"write-{run}.json"


def _directory_name(run: str) -> str:
    return f"write-{run}"


def begin(store: Store, kms: Any, key_id: str | None, depth: int = 0) -> RunReference:
    """Make the keys and the record of a write.

    Parameters
    ----------
    store : LocalStore or RemoteStore
        Where the dataset is, or is to be.
    kms : client
        Where the master key is.
    key_id : str or None
        The master key; None if the dataset has to be there already.
    depth : int
        How many directories deep the files are going to be.

    Raises
    ------
    FileNotFoundError
        There is no dataset, and no `key_id`.
    ValueError
        It is under another master key.
    KeyAccessError
        The KMS refused.
    FormatError
        A run of plain Python has to be finished first.
    """
    from ags1.dataset._update import _refuse_journals

    _refuse_journals(store)
    metadata = read_metadata(store) if not key_id else _find_metadata(store)
    if metadata is not None and key_id and metadata.table_key_id != key_id:
        raise ValueError(
            f"the dataset {store.root} is under the master key {metadata.table_key_id!r}, not {key_id!r}: "
            "name that, or rewrap the dataset"
        )
    if metadata is None:
        identity, version, keys = str(uuid.uuid4()), 0, KeyRing([], key_id or "", store.root)
    else:
        identity, version = metadata.uuid, metadata.version
        keys = KeyRing(metadata.encryption_keys, metadata.table_key_id, store.root)
    run, _ = RunReference.create(identity, version, keys, kms)
    if isinstance(store, LocalStore):
        os.makedirs(store.join(CONTROL), exist_ok=True)
    _write_record(store, run, depth=depth)
    return run


def _find_metadata(store: Store) -> Metadata | None:
    try:
        return read_metadata(store)
    except FileNotFoundError:
        return None


def place(store: Store, run: str, path: str) -> str:
    """Path below the dataset that a file of a write is written to."""
    return f"{CONTROL}/{_directory_name(run)}/{path}" if isinstance(store, LocalStore) else path


def note_retry(store: Store, run: str) -> None:
    """Say that a task is tried again: what its other attempts wrote is looked for before the commit.

    In a directory that is not needed: only the files of those attempts that count are moved out of it.
    """
    if isinstance(store, RemoteStore):
        store.write_control(f"{_directory_name(run)}/retried", b"")


# -- the commit, under the lock ----------------------------------------------------------------------------------------


def claim(store: Store, run: str) -> None:
    """Make sure that a write was not thrown away meanwhile, and is not over.

    Tasks ask for that too, before a file appears: Spark lets some go on that it has given up.

    Raises
    ------
    FileNotFoundError
        It was.
    """
    fields = _read_record(store, run)
    if fields is None or fields.get("state") == _ABANDONED:
        raise FileNotFoundError(
            errno.ENOENT,
            "this write is over, or was thrown away while it was going on, by clean or because it is too old; nothing "
            "was committed: write again",
            store.root,
        )


def take(store: Store, run: RunReference, paths: Iterable[str]) -> None:
    """Put the files that are committed to where a commit expects them, and away what other attempts left.

    Raises
    ------
    FileNotFoundError
        One is missing.
    """
    wanted = set(paths)
    if isinstance(store, RemoteStore):
        if _directory_name(run.run) in store.control_names():
            _remove_in_place(store, run.run, _depth(_read_record(store, run.run)), wanted)
        return
    made: set[str] = set()
    for path in sorted(wanted):
        target = store.join(CONTROL, run.staging, path)
        above = os.path.dirname(target)
        if above not in made:
            os.makedirs(above, exist_ok=True)
            made.add(above)
        os.rename(store.join(place(store, run.run, path)), target)


def announce(store: Store, run: RunReference, manifest: str) -> None:
    """Say which manifest is going to have the files."""
    fields = _read_record(store, run.run)
    _write_record(store, run, depth=_depth(fields), state=_COMMITTING, manifest=manifest)


def finish(store: Store, run: str) -> None:
    """Remove what a commit has no use for any more, the record last."""
    store.remove_control(_directory_name(run))
    store.remove_control(_record_name(run))


# -- writes that come to no commit -------------------------------------------------------------------------------------


def settle(store: Store, metadata: Metadata) -> None:
    """Remove the records of writes whose commit came to be, but was interrupted before it could do that."""
    for name in store.control_names():
        match = _RECORD.fullmatch(name)
        if match:
            fields = _read_record(store, match[1]) or {}
            if fields.get("state") == _COMMITTING and fields.get("manifest") == metadata.manifest:
                finish(store, match[1])


def abort(store: Store, run: str) -> None:
    """Remove a write with its files, the record last: for the one who began it, without the lock.

    If its commit had begun, it may have come to be, whatever it raised. That is looked at under the lock; where that
    is taken, whoever throws it away later does so.
    """
    fields = _read_record(store, run)
    if fields is None:
        # Somebody else has settled it, or thrown it away. A task that was killed late may have left something yet.
        store.remove_control(_directory_name(run))
        return
    if fields.get("state") != _COMMITTING:
        _throw_away(store, run, fields, final=False)
        return
    try:
        with store.lock():
            metadata = _find_metadata(store)
            if metadata is not None:
                settle(store, metadata)
            sweep(store, only=run)
    except BlockingIOError:
        return


def sweep(store: Store, older_than: float = WRITE_LASTS, *, only: str | None = None) -> None:
    """Throw away writes that are older than so many seconds, and directories of those that are over. Under the lock.

    With `only`, it is that write, however old it is.
    """
    for name in store.control_names():
        match = _RECORD.fullmatch(name) or _DIRECTORY.fullmatch(name)
        if match is None or (only is not None and match[1] != only):
            continue
        # Read now: of a listing nobody knows whether it shows one moment, and the record is made before the directory.
        fields = _read_record(store, match[1])
        if fields is None:
            store.remove_control(_directory_name(match[1]))
            continue
        began, lasts = fields.get("created-ms"), older_than
        if fields.get("state") == _ABANDONED:
            began, lasts = fields.get("abandoned-ms"), min(ZOMBIES_LAST, older_than)
        if only is None and isinstance(began, int) and now_ms() - began < lasts * 1000:
            continue
        _throw_away(store, match[1], fields, final=only is None)


def _throw_away(store: Store, run: str, fields: dict[str, Any], *, final: bool) -> None:
    abandoned = {**fields, "state": _ABANDONED, "abandoned-ms": now_ms()}
    store.write_control(_record_name(run), json.dumps(abandoned).encode())
    store.remove_control(_directory_name(run))
    # Of a commit that did not come to be.
    store.remove_control(f"staged-{run}")
    if isinstance(store, RemoteStore):
        _remove_in_place(store, run, _depth(fields), set())
        if not final:
            # Tasks that Spark has given up may go on for a while, and finish a file: so it is looked for again.
            return
    store.remove_control(_record_name(run))


def _remove_in_place(store: RemoteStore, run: str, depth: int | None, keep: set[str]) -> None:
    """Remove files with the name of a write. No more is in memory than one directory."""
    ours = re.compile(rf"part-[0-9]+-{run}-.*")
    file_system = store.file_system
    file_system.invalidate_cache()
    for directory, below, names in file_system.walk(store.root, maxdepth=None if depth is None else depth + 1):
        relative = directory.strip("/")[len(store.root.strip("/")) :].strip("/")
        if not relative and CONTROL in below:
            (below.remove if isinstance(below, list) else below.pop)(CONTROL)
        for name in names:
            path = f"{relative}/{name}" if relative else name
            if ours.fullmatch(name) and path not in keep:
                store.remove(path)


# -- the record --------------------------------------------------------------------------------------------------------


def _write_record(
    store: Store, run: RunReference, *, depth: int | None, state: str = _WRITING, manifest: str = ""
) -> None:
    fields = {**json.loads(run.encode()), "state": state, "depth": depth, "manifest": manifest}
    store.write_control(_record_name(run.run), json.dumps(fields, indent=2).encode() + b"\n")


def _read_record(store: Store, run: str) -> dict[str, Any] | None:
    """What the record says: None if there is none, nothing if it is damaged."""
    try:
        fields = json.loads(store.read_control(_record_name(run)))
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _depth(fields: dict[str, Any] | None) -> int | None:
    depth = (fields or {}).get("depth")
    return depth if isinstance(depth, int) and depth >= 0 else None
