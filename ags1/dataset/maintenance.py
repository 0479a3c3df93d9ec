"""Changes of a dataset without a source: remove files, restore a version, change the master key."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import replace

from ags1.dataset.entries import DatasetEntry
from ags1.dataset.joined import open_parts
from ags1.dataset.manifests import DatasetView, changes
from ags1.dataset.names import new_object_name, run_of, sort_key
from ags1.dataset.pins import Access
from ags1.dataset.reports import DatasetRewrapReport, RunReport
from ags1.dataset.runs import Done, records
from ags1.dataset.transaction import Transaction
from ags1.dataset.versions import expired, kept_versions, made_since
from ags1.errors import ConflictError
from ags1.kms.asking import reported
from ags1.storage import make_parent
from ags1.streams.stream import Writer
from ags1.support.typing import Any

_PIECE = 8 << 20


def _named(transaction: Transaction, path: str) -> list[DatasetEntry]:
    """A file, or a directory with all below it, empty ones too; FileNotFoundError if there is neither."""
    manifests, root = transaction.manifests, transaction.root
    entry = manifests.find(root, path)
    found = [entry] if entry is not None else list(manifests.entries(root, f"{path}/" if path else ""))
    if not found:
        raise FileNotFoundError(errno.ENOENT, "the dataset has no such file or directory", path)
    return found


def remove(access: Access, paths: Sequence[str], *, dry_run: bool) -> RunReport:
    """Make a version without some files; see :meth:`ags1.dataset.Dataset.rm`."""
    transaction = Transaction.begin(access, "rm")
    going = sorted({entry.path for path in paths for entry in _named(transaction, path)}, key=sort_key)
    files = [path for path in going if not path.endswith("/")]
    report = RunReport(version=transaction.next_version - 1, removed=len(files), paths=files if dry_run else [])
    reported(report, access.kms)
    if not dry_run:
        for path in going:
            transaction.remove(path)
        made = transaction.commit()
        assert made is not None
        report.version, report.changed = made.version, True
    return report


def restore(access: Access, number: int, *, dry_run: bool) -> RunReport:
    """Make a version with the files of an older one; see :meth:`ags1.dataset.Dataset.restore`."""
    location, transaction = access.location, Transaction.begin(access, "restore")
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
    report = reported(RunReport(version=base.version), access.kms)
    transaction.replace_all()
    transaction.mode = old.mode
    root = DatasetView.of(location, old, transaction.keys).root
    for now, before in changes(transaction.manifests, transaction.root, root):
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
                transaction.put(replace(before, version=transaction.next_version))
            else:
                transaction.put(_encrypted_again(transaction, before))
                report.done_bytes += before.plaintext_length
    report.unchanged = old.file_count - report.done
    made = None if dry_run else transaction.commit()
    if made is not None:
        report.version, report.changed = made.version, True
    return report


def _encrypted_again(transaction: Transaction, entry: DatasetEntry) -> DatasetEntry:
    transaction.run.begin()
    name = new_object_name(entry.path, transaction.run.id)
    metadata = transaction.run.keys.object_key(name)
    target = transaction.location.join(name)
    make_parent(target)
    with (
        open_parts(transaction.location, entry, transaction.keys) as reader,
        Writer(target, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"") as writer,
    ):
        while piece := reader.read(_PIECE):
            writer.write(piece)
    transaction.unsynced.add(name)
    return transaction.entry(Done(entry.path, ((name, entry.plaintext_length),), entry.source, entry.mode))


def rewrap(access: Access, new_key_id: str, new_kms: Any, *, dry_run: bool) -> DatasetRewrapReport:
    """Put a dataset under another master key; see :meth:`ags1.dataset.Dataset.rewrap`."""
    location = access.location
    for _ in range(access.attempts):
        transaction = Transaction.begin(access, "rewrap")
        base = transaction.base
        assert base is not None
        transaction.rewrap(base.key.rewrapped(access.kms, new_key_id, new_kms))
        # What cannot be read may be under it.
        older = sum(each.version is None or each.version.key_id == base.key_id for each in kept_versions(location))
        report = DatasetRewrapReport(
            base.version, base.key_id, new_key_id, older_versions=older, unfinished_runs=len(records(location)),
            dry_run=dry_run,
        )  # fmt: skip
        reported(report, new_kms or access.kms)
        if dry_run:
            return report
        try:
            made = transaction.commit()
        except ConflictError:
            continue
        assert made is not None
        return replace(report, version=made.version)
    raise ConflictError(
        f"{location}: other writers committed during each of {access.attempts} attempts: nothing was committed; run it "
        "again, or allow more attempts"
    )
