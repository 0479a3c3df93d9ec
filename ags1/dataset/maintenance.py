"""Changes of a dataset without a source: remove files, restore a version, change the master key, expire versions.

Expire removes old versions, and the objects that no remaining version names:

    1  choose the versions to remove                  the last `keep` stay, and those younger than `older_than`
    2  find objects that no remaining version names   one listing is compared with the manifests
    3  of these, choose the old ones                  which also have a name that a run made
    4  commit a version that fences those runs, then delete: versions in ascending order, then objects
       another writer was faster: what its version names stays, then commit on top of it

A fenced run cannot commit after that version, however late it is. A writer that began before a removed version cannot
commit at all. So deleting is safe without a lock and without a clock. The grace period only saves the work of live
writers: it is compared with the clock of the store.
"""

from __future__ import annotations

import errno
import logging
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

from ags1.dataset.damage import DamagedLast, damaged_last
from ags1.dataset.entries import DatasetEntry
from ags1.dataset.joined import open_parts
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.manifests import DatasetView, Manifests, changes, open_root
from ags1.dataset.names import CONTROL, RUNS, new_object_name, record_of, run_of, sort_key, version_name, version_number
from ags1.dataset.pins import Access
from ags1.dataset.references import ListedReference, unnamed, walk
from ags1.dataset.reports import DatasetRewrapReport, ExpireReport, RunReport
from ags1.dataset.runs import Done, records, remove_record
from ags1.dataset.transaction import Transaction
from ags1.dataset.versions import RESTORE_OVER, Version, expired, kept_versions, made_since, readable_since
from ags1.errors import Ags1Error, AuthenticationError, ConflictError, FormatError
from ags1.kms.asking import reported
from ags1.storage import Location, list_files, make_parent, open_output, remove, remove_directories, status
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


def remove_files(access: Access, paths: Sequence[str], *, dry_run: bool) -> RunReport:
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
    try:
        return _restore(access, number, dry_run=dry_run)
    except (FormatError, AuthenticationError, OSError) as error:
        last = None if isinstance(error, FileNotFoundError) else damaged_last(access)
        if last is None:
            raise
        return _restore_over(access, last, number, dry_run=dry_run)


def _since(location: Location, head: Version, number: int, keys: DatasetKeys) -> tuple[Version, frozenset[str]]:
    """A version before `head`, and the runs that the versions after it fence: expire may be removing their objects."""
    if not 1 <= number <= head.version:
        raise expired(location, number)
    try:
        found = made_since(location, head, number - 1)
    except (Ags1Error, OSError):
        # What a damaged version fences is not known. That matters only if an expire made it which is still at work:
        # objects that it removes would be missing, and verify would name them.
        found = readable_since(location, head, number, keys)
    return found[0], frozenset[str]().union(*(each.fenced for each in found[1:]))


def _restore_over(access: Access, last: DamagedLast, number: int, *, dry_run: bool) -> RunReport:
    """As :func:`restore`, where the last version is damaged: what it changed is not known, so all is of the older one.

    All manifests of the older version are read first.
    """
    location, lost = access.location, last.base.version
    if number == lost:
        raise last.error
    old, fenced = _since(location, last.base, number, last.keys)
    view = DatasetView.of(location, old, last.keys)
    runs, again = set[str](), list[DatasetEntry]()
    for entry in view.manifests.entries(view.root):
        of_entry = {run for part in entry.parts if (run := run_of(part.name)) is not None}
        if fenced.isdisjoint(of_entry):
            runs |= of_entry
        else:
            again.append(entry)
    report = reported(RunReport(version=lost, done=old.file_count), access.kms)
    text = (
        f"version {lost} is damaged, and left out with what it changed; its objects stay until "
        f"`ags1 dataset expire {shlex.quote(location.shown)} --give-up {lost}`"
    )
    report.notes.append((location.shown, text))
    if dry_run:
        report.paths += [entry.path for entry in view.manifests.files(view.root)]
        return report
    # The last version, with the files of the older one: both are of the same key.
    base, _ = replace(
        last.base, manifest=old.manifest, manifest_key=old.manifest_key, file_count=old.file_count,
        plaintext_bytes=old.plaintext_bytes, mode=old.mode,
    ).authenticated(last.keys)  # fmt: skip
    access = replace(access, pins=replace(access.pins, digest=None))
    transaction = Transaction.begin(access, RESTORE_OVER, on=replace(base, digest=last.base.digest))
    transaction.replace_all()
    transaction.keep_runs(runs)
    for entry in again:
        transaction.put(_encrypted_again(transaction, entry))
        report.done_bytes += entry.plaintext_length
    made = transaction.commit(always=True)
    assert made is not None
    report.version, report.changed = made.version, True
    return report


def _restore(access: Access, number: int, *, dry_run: bool) -> RunReport:
    location, transaction = access.location, Transaction.begin(access, "restore")
    base = transaction.base
    assert base is not None
    old, fenced = _since(location, base, number, transaction.keys)
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
        older = sum(
            each.version is None or each.version.key_id == base.key_id
            for each in kept_versions(location, keys=transaction.keys)
        )
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


_LOG = logging.getLogger("ags1.dataset")

# How often all is read again, because another `expire` removed what this one reads.
_LOOKS = 5
_SECOND = 1_000_000_000


def expire(
    access: Access, *, keep: int, older_than: float | None, grace: float, dry_run: bool, give_up: int = 0
) -> ExpireReport:
    """Remove old versions and what no version needs; see :meth:`ags1.dataset.Dataset.expire`."""
    for look in range(1, _LOOKS + 1):
        made = _Expiry(access, keep, older_than, grace, give_up)
        try:
            return made.run(dry_run)
        except (ConflictError, FileNotFoundError):
            if look == _LOOKS:
                raise
    raise AssertionError("the last look returns or raises")


@dataclass
class _Expiry:
    access: Access
    keep: int
    older_than: float | None
    grace: float
    give_up: int
    # Manifests that were read: what they name was compared already.
    known: set[str] = field(default_factory=set)

    keys: DatasetKeys = field(init=False)

    @property
    def location(self) -> Location:
        return self.access.location

    def run(self, dry_run: bool) -> ExpireReport:
        transaction = Transaction.begin(self.access, "expire")
        self.keys = transaction.keys
        head = transaction.base
        assert head is not None
        if self.give_up >= head.version:
            raise ValueError(
                f"`give_up={self.give_up}`: the last version, {head.version}, cannot be given up: restore another first"
            )
        now = self._store_time(transaction)
        try:
            going, staying = self._versions(now)
            rubbish, young = self._rubbish(staying, now)
            report = ExpireReport(
                version=head.version,
                versions=sorted(going),
                kept=[each.version for each in staying],
                objects=len(rubbish),
                object_bytes=sum(each.size for each in rubbish.values()),
                young_objects=young,
                dry_run=dry_run,
            )
            if not (going or rubbish):
                return report
            # This makes a version itself, and so would a run that is only tried.
            report.version = head.version + 1
            report.kept.append(report.version)
            if dry_run:
                return report
            transaction.fence(_runs_of(rubbish) - {transaction.run.id})

            def on_top(others: list[Version]) -> None:
                for version in others:
                    for name in self._names(version):
                        rubbish.pop(name, None)
                transaction.fence(_runs_of(rubbish) - {transaction.run.id})

            made = transaction.commit(always=True, on_top=on_top)
            assert made is not None
            report.version = made.version
            report.kept = sorted({*(each.version for each in staying), *range(head.version, made.version + 1)} - going)
            report.objects, report.object_bytes = len(rubbish), sum(each.size for each in rubbish.values())
            # Versions first: killed here, this leaves objects that no version names, not versions without objects. In
            # ascending order: a late writer relies on it.
            for number in sorted(going):
                remove([self.location.join(version_name(number))])
            remove(self.location.join(name) for name in rubbish if record_of(name) is None)
            for run in _runs_of(rubbish):
                remove_record(self.location, run)
            self._remove_empty(rubbish)
            _LOG.info(
                "%s: expire removed %d versions and %d objects of %d bytes",
                self.location, len(report.versions), report.objects, report.object_bytes,
            )  # fmt: skip
            return report
        finally:
            transaction.run.forget()

    def _store_time(self, transaction: Transaction) -> int:
        """The store's own time: that of an object which is written now, in nanoseconds."""
        place = self.location.join(f"{RUNS}/{transaction.run.id}/time")
        make_parent(place)
        with open_output(place) as output:
            output.write(b"now")
            output.commit()
        try:
            # From a listing, like the times that it is compared with: the metadata of one object may round to seconds.
            return max(each.modified for each in list_files(self.location.join(f"{RUNS}/{transaction.run.id}")))
        finally:
            remove_record(self.location, transaction.run.id)

    def _versions(self, now: int) -> tuple[set[int], list[Version]]:
        """Numbers of the versions to remove (never the last one), and the versions that stay, ascending."""
        found = list(kept_versions(self.location, keys=self.keys))
        last = max(self.give_up, self._last_old([each.number for each in reversed(found)], now))
        going: set[int] = set()
        staying: list[Version] = []
        for each in reversed(found):
            if each.number <= last:
                going.add(each.number)
                continue
            if each.version is None:
                assert each.error is not None
                raise self._refusal(each.number, each.error)
            if not each.is_committed:
                # Whoever can write here could make any version one of these. Only its number says that it may go.
                text = (
                    f"version {each.number + 1} does not follow version {each.number}: that was made by a late writer "
                    "and never committed, or files of versions were changed or removed"
                )
                raise self._refusal(each.number, FormatError(text))
            staying.append(each.version)
        return going, staying

    def _last_old(self, known: list[int], now: int) -> int:
        """The last version that is neither among the `keep` last ones nor young; 0 if there is none."""
        last = 0
        for number, following in islice(pairwise(known), max(0, len(known) - self.keep)):
            # A version is in use until the next one is made. All before the first that stays go, whatever the clock.
            if self.older_than is not None:
                replaced = status(self.location.join(version_name(following))).modified
                if now - replaced < self.older_than * _SECOND:
                    break
            last = number
        return last

    def _refusal(self, number: int, error: Ags1Error | OSError) -> Ags1Error | OSError:
        """The error for a version that cannot be read: its objects are unknown, so none may be removed."""
        text = (
            f"version {number} stays, and cannot be used, so nothing was removed: {error}. If it never will be, "
            "because it is damaged, give up that version and all before it: "
            f"`give_up={number}`"
        )
        return OSError(error.errno, text, error.filename) if isinstance(error, OSError) else type(error)(text)

    def _names(self, version: Version) -> Iterator[str]:
        """Names of the objects that a version which stays needs."""
        manifests = Manifests(self.location, version.uuid, version=version.version)
        try:
            yield from manifests.object_names(open_root(manifests, version, self.keys), self.known)
        except (Ags1Error, OSError) as error:
            raise self._refusal(version.version, error) from error

    def _rubbish(self, staying: list[Version], now: int) -> tuple[dict[str, ListedReference], int]:
        """Objects of runs that no version needs and that are old enough; and the number of those that are too young."""

        def names() -> Iterator[str]:
            self.known.clear()
            return self._names(staying[-1])

        found = unnamed(walk(self.location), names)
        for version in reversed(staying[:-1]):
            for name in self._names(version):
                found.pop(name, None)
        inner = _datasets_inside(found)
        rubbish: dict[str, ListedReference] = {}
        young = 0
        for each in found.values():
            by_run = record_of(each.name) is not None or run_of(each.name) is not None
            if not by_run or each.kind != "file" or _is_below(each.name, inner):
                continue
            try:
                each = each.looked_at(self.location)
            except FileNotFoundError:
                # A run has ended, and removed its record.
                continue
            if now - each.modified >= self.grace * _SECOND:
                rubbish[each.name] = each
            else:
                young += 1
        return rubbish, young

    def _remove_empty(self, names: Iterable[str]) -> None:
        above = {name.rpartition("/")[0] for name in names}
        above |= {
            "/".join(parts[:count]) for name in above for parts in [name.split("/")] for count in range(len(parts))
        }
        if self.location.is_local:
            remove_directories(
                self.location.join(each) for each in sorted(above - {"", CONTROL}, key=len, reverse=True)
            )


def _runs_of(names: Iterable[str]) -> set[str]:
    return {run for name in names if (run := record_of(name) or run_of(name)) is not None}


def _datasets_inside(listed: Iterable[str]) -> set[str]:
    """Directories below the dataset that are datasets themselves: their own versions name their objects."""
    found = set()
    for each in listed:
        above, control, name = each.rpartition(f"/{CONTROL}/")
        # Its first run begins with a record. No object of this dataset has such a name.
        begun = name.endswith("/run.json") and record_of(f"{CONTROL}/{name}") is not None
        if control and (begun or version_number(name) is not None):
            found.add(above)
    return found


def _is_below(name: str, directories: set[str]) -> bool:
    return bool(directories) and any(name[:end] in directories for end, each in enumerate(name) if each == "/")
