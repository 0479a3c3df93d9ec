"""Changes of a dataset without a source: remove and rename files, restore a version, change a master key."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from ags1.dataset.classes import ClassKeys, KeyClass, OpenedBy
from ags1.dataset.entries import DatasetEntry
from ags1.dataset.joined import open_parts
from ags1.dataset.manifests import changes
from ags1.dataset.names import check_entry_path, check_new_path, new_object_name, run_of, sort_key
from ags1.dataset.pins import Pins
from ags1.dataset.reports import DatasetRewrapReport, RunReport
from ags1.dataset.runs import Done, records
from ags1.dataset.transaction import ATTEMPTS, Transaction
from ags1.dataset.versions import expired, kept_versions, made_since
from ags1.dataset.views import DatasetView
from ags1.errors import ConflictError, KeyAccessError
from ags1.kms import ServiceRefusal
from ags1.kms.asking import reported
from ags1.storage import Location, make_parent
from ags1.streams.stream import Writer
from ags1.support.typing import Any

_PIECE = 8 << 20
# Each attempt calls the services again.
_ATTEMPTS = 20


def _named(transaction: Transaction, path: str) -> list[DatasetEntry]:
    """A file, or a directory with all below it, empty ones too; FileNotFoundError if there is neither."""
    manifests, root = transaction.manifests, transaction.root
    entry = manifests.find(root, path)
    found = [entry] if entry is not None else list(manifests.entries(root, f"{path}/" if path else ""))
    if not found:
        raise FileNotFoundError(errno.ENOENT, "the dataset has no such file or directory", path)
    return found


def remove(
    location: Location, kms: Any, paths: Sequence[str], *, dry_run: bool, pins: Pins | None = None,
    attempts: int = ATTEMPTS,
) -> RunReport:  # fmt: skip
    """Make a version without some files; see :meth:`ags1.dataset.Dataset.rm`."""
    transaction = Transaction.begin(location, kms, "rm", pins=pins, attempts=attempts)
    going = sorted({entry.path for path in paths for entry in _named(transaction, path)}, key=sort_key)
    files = [path for path in going if not path.endswith("/")]
    report = RunReport(version=transaction.next_version - 1, removed=len(files), paths=files if dry_run else [])
    reported(report, kms)
    if not dry_run:
        for path in going:
            transaction.remove(path)
        made = transaction.commit()
        assert made is not None
        report.version, report.changed = made.version, True
    return report


def move(
    location: Location, kms: Any, source: str, target: str, *, replace_existing: bool, dry_run: bool,
    pins: Pins | None = None, attempts: int = ATTEMPTS,
) -> RunReport:  # fmt: skip
    """Rename a file or a directory in a new version; see :meth:`ags1.dataset.Dataset.mv`.

    IsADirectoryError, NotADirectoryError: the new path is a directory, or is below a file.
    """
    check_new_path(target)
    transaction = Transaction.begin(location, kms, "mv", pins=pins, attempts=attempts)
    moved: dict[str, DatasetEntry | None] = {}
    entries = _named(transaction, source)

    def new_path(entry: DatasetEntry) -> str:
        return check_entry_path(target + (entry.path[len(source) :] if source else f"/{entry.path}"))

    for entry in entries:
        path = new_path(entry)
        if path == entry.path:
            raise ValueError(f"{source} and {target} are the same")
        moved.setdefault(entry.path, None)
        moved[path] = entry
    leaving = {entry.path for entry in entries}
    for path in [] if replace_existing else moved.keys() - leaving:
        if not path.endswith("/") and transaction.manifests.find(transaction.root, path) is not None:
            raise FileExistsError(errno.EEXIST, "the dataset has a file of that name", path)
    for path in [path for path, entry in moved.items() if entry is not None]:
        transaction.refuse_twin(path, moved)
    report = RunReport(version=transaction.next_version - 1, done=sum(not entry.is_directory for entry in entries))
    reported(report, kms)
    if dry_run:
        files = [entry for entry in entries if not entry.is_directory]
        report.paths = [path for entry in files for path in (entry.path, new_path(entry))]
        return report
    for path in sorted(moved, key=sort_key):
        old = moved[path]
        if old is None:
            transaction.remove(path)
            continue
        _put(transaction, old, path, report)
    made = transaction.commit()
    assert made is not None
    report.version, report.changed = made.version, True
    return report


def restore(
    location: Location, kms: Any, number: int, *, dry_run: bool, pins: Pins | None = None, attempts: int = ATTEMPTS
) -> RunReport:
    """Make a version with the files of an older one; see :meth:`ags1.dataset.Dataset.restore`."""
    transaction = Transaction.begin(location, kms, "restore", pins=pins, attempts=attempts)
    base = transaction.base
    assert base is not None
    if not 1 <= number <= base.version:
        raise expired(location, number)
    try:
        old, *later = made_since(location, base, number - 1)
    except FileNotFoundError:
        raise expired(location, number) from None
    # An expire may be removing objects of these runs now.
    fenced = frozenset[str]().union(*(each.fenced for each in later))
    report = reported(RunReport(version=base.version), kms)
    transaction.replace_all()
    view = DatasetView.of(location, old, kms)
    for now, before in changes(transaction.manifests, transaction.root, view.root):
        if before is not None and before.is_same_file(now):
            continue
        path = (before or now).path  # type: ignore[union-attr]
        counts = not path.endswith("/")
        report.done += counts and before is not None
        report.removed += counts and before is None
        if dry_run:
            report.paths += [path] if counts and before is not None else []
        elif before is None:
            transaction.remove(path)
        else:
            runs = {run for part in before.parts if (run := run_of(part.name)) is not None}
            if fenced.isdisjoint(runs):
                transaction.keep_runs(runs)
            again = not fenced.isdisjoint(runs)
            _put(transaction, before, path, report, again=again, keys=view.keys)
    report.unchanged = old.file_count - report.done
    made = None if dry_run else transaction.commit()
    if made is not None:
        report.version, report.changed = made.version, True
    return report


def _put(
    transaction: Transaction, old: DatasetEntry, path: str, report: RunReport, *, again: bool = False,
    keys: ClassKeys | None = None,
) -> None:  # fmt: skip
    """Put an old entry under a path; encrypt its file `again`, or if the path is of another class of keys.

    `keys` are those of an older version: they open a class that the last one has no more.
    """
    new_class = transaction.class_of(path)
    if old.is_directory or (new_class.id == old.key_class and not again):
        transaction.put(replace(old, path=path, version=transaction.next_version))
    else:
        if keys is None or any(each.id == old.key_class for each in transaction.classes):
            keys = transaction.keys
        transaction.put(_encrypted_again(transaction, old, path, new_class, keys))
        report.done_bytes += old.plaintext_length


def _encrypted_again(
    transaction: Transaction, entry: DatasetEntry, path: str, key_class: KeyClass, keys: ClassKeys
) -> DatasetEntry:
    transaction.run.use([key_class.id])
    name = new_object_name(path, transaction.run.id)
    metadata = transaction.run.keys.object_key(key_class.id, name)
    target = transaction.location.join(name)
    make_parent(target)
    with (
        open_parts(transaction.location, entry, keys) as reader,
        Writer(target, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"") as writer,
    ):
        while piece := reader.read(_PIECE):
            writer.write(piece)
    transaction.unsynced.add(name)
    done = Done(path, key_class.id, ((name, entry.plaintext_length),), entry.source, entry.mode, transaction.run.id)
    return transaction.entry(done)


def rewrap(
    location: Location, kms: Any, new_key_id: str, new_kms: Any, *, key_id: str | None, dry_run: bool,
    pins: Pins | None = None, attempts: int = _ATTEMPTS,
) -> DatasetRewrapReport:  # fmt: skip
    """Put one class of keys under another master key; see :meth:`ags1.dataset.Dataset.rewrap`."""

    def going(classes: Sequence[KeyClass], first: str) -> tuple[str, list[KeyClass]]:
        old = first if key_id is None else key_id
        return old, _under(location, classes, old, lambda each: each.key_id == old)

    def renewed(each: KeyClass) -> KeyClass:
        return each.rewrapped(kms, new_key_id, new_kms)

    made = _with_other_keys(location, kms, new_key_id, going, renewed, dry_run=dry_run, pins=pins, attempts=attempts)
    return reported(made, new_kms or kms)


def add_wrap(
    location: Location, kms: Any, new_key_id: str, new_kms: Any, *, dry_run: bool, pins: Pins | None = None,
    attempts: int = _ATTEMPTS,
) -> DatasetRewrapReport:  # fmt: skip
    """Put all classes under one more master key; see :meth:`ags1.dataset.Dataset.add_wrap`."""

    def going(classes: Sequence[KeyClass], first: str) -> tuple[str, list[KeyClass]]:
        found = [each for each in classes if new_key_id not in each.key_ids]
        if not found:
            raise ValueError(f"{location} is under the master key {new_key_id!r} already")
        return first, found

    def renewed(each: KeyClass) -> KeyClass:
        return each.also_under(kms, new_key_id, new_kms)

    def lacks(key_class: KeyClass, _: str) -> bool:
        return new_key_id not in key_class.key_ids

    made = _with_other_keys(
        location, kms, new_key_id, going, renewed, dry_run=dry_run, pins=pins, attempts=attempts, is_older=lacks
    )
    return reported(made, new_kms or kms)


def rm_wrap(
    location: Location, kms: Any, key_id: str, *, dry_run: bool, pins: Pins | None = None, attempts: int = _ATTEMPTS
) -> DatasetRewrapReport:
    """Leave out a further master key; see :meth:`ags1.dataset.Dataset.rm_wrap`."""
    if isinstance(kms, OpenedBy) and kms.key_id == key_id:
        raise ValueError(f"{location} was opened by the master key {key_id!r}: open it by another one to drop that")

    def going(classes: Sequence[KeyClass], first: str) -> tuple[str, list[KeyClass]]:
        if key_id == first:
            raise ValueError(f"{key_id!r} is the first master key of {location}: rewrap it under another one")
        return key_id, _under(location, classes, key_id, lambda each: key_id in each.key_ids[1:])

    return _with_other_keys(
        location, kms, None, going, lambda each: each.without(key_id), dry_run=dry_run, pins=pins, attempts=attempts
    )


def _under(
    location: Location, classes: Sequence[KeyClass], key_id: str, is_meant: Callable[[KeyClass], bool]
) -> list[KeyClass]:
    going = [each for each in classes if is_meant(each)]
    if not going:
        known = ", ".join(sorted({name for each in classes for name in each.key_ids}))
        raise ValueError(f"no class of keys of {location} is under {key_id!r}; there are: {known}")
    return going


def _unused(transaction: Transaction, classes: Sequence[KeyClass]) -> list[KeyClass]:
    """The classes that take no new files and have none: nobody needs their keys but older versions, which have them."""
    ended = [each for each in classes if each.pattern is None]
    used = {each.key_class for each in transaction.manifests.files(transaction.root)} if ended else set()
    return [each for each in ended if each.id not in used]


def _renewed(keys: ClassKeys, key_class: KeyClass, renewed: Callable[[KeyClass], KeyClass]) -> KeyClass:
    try:
        return renewed(key_class)
    except ServiceRefusal:
        raise
    except KeyAccessError:
        try:
            keys.key(key_class.id)
        except KeyAccessError as error:
            raise type(error)(
                f"{error}; if that key is gone for ever, remove the files that only it opens, and encrypt once with "
                "the patterns that are left: then this class is left out"
            ) from error
        raise


def _with_other_keys(
    location: Location, kms: Any, new_key_id: str | None,
    find: Callable[[Sequence[KeyClass], str], tuple[str, list[KeyClass]]], renewed: Callable[[KeyClass], KeyClass], *,
    dry_run: bool, pins: Pins | None, attempts: int,
    is_older: Callable[[KeyClass, str], bool] = lambda each, old_key_id: old_key_id in each.key_ids,
) -> DatasetRewrapReport:  # fmt: skip
    """Commit classes with other keys. `find` gets those of a version, and its first master key.

    It returns the name of the old master key, and the classes to renew.
    """
    for _ in range(attempts):
        transaction = Transaction.begin(location, kms, "rewrap", pins=pins)
        base = transaction.base
        assert base is not None
        unused = _unused(transaction, base.classes)
        old_key_id, going = find([each for each in base.classes if each not in unused], base.key_id)
        classes = [_renewed(transaction.keys, each, renewed) for each in going]
        older, runs = 0, len(records(location))
        for version in kept_versions(location):
            # What cannot be read may be under it.
            known = None if version.version is None else version.version.classes
            older += known is None or any(is_older(each, old_key_id) for each in known)
        transaction.rewrap(classes, unused)
        # What a master key wraps has a time; what those wrap has none.
        keys = sum(1 for each in classes for entry in each.encryption_keys if entry.get("properties"))
        found = partial(
            DatasetRewrapReport, old_key_id=old_key_id, new_key_id=new_key_id or base.key_id, keys=keys,
            left_out=[(each.id, each.key_id) for each in unused],
        )  # fmt: skip
        if dry_run:
            return found(version=base.version, older_versions=older, unfinished_runs=runs, dry_run=True)
        try:
            made = transaction.commit(always=True)
        except ConflictError:
            continue
        assert made is not None
        return found(version=made.version, older_versions=older, unfinished_runs=runs, dry_run=False)
    raise ConflictError(
        f"{location}: other writers committed during each of {attempts} attempts: nothing was committed; run it again, "
        "or allow more attempts"
    )
