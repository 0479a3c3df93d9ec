"""Expire: old versions go, and with them the objects that no version names any more.

    1  which versions go                              the last `keep` stay, and what is younger than `older_than`
    2  which objects the versions that stay need       from their manifests
    3  what else is there, by one listing              old enough, and with a name that a run gave it
    4  commit a version that fences the runs of those objects, then delete

A fenced run can commit nothing any more, however late it comes: that is why deleting is safe without a lock and without
a clock. The grace period only spares the work of writers that are alive: it is compared with the store's own time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice, pairwise

from ags1.dataset.classes import ClassKeys
from ags1.dataset.manifests import Manifests
from ags1.dataset.names import CONTROL, RUNS, record_of, run_of, version_name, version_number
from ags1.dataset.reports import ExpireReport
from ags1.dataset.runs import remove_record
from ags1.dataset.transaction import Transaction, open_root
from ags1.dataset.versions import Version, numbers, read_version
from ags1.errors import ConflictError
from ags1.storage import Entry, Location, list_files, make_parent, open_output, remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["expire"]

_ATTEMPTS = 20
_SECOND = 1_000_000_000


def expire(
    location: Location, kms: Any, *, keep: int, older_than: float | None, grace: float, dry_run: bool
) -> ExpireReport:
    """Remove old versions and what no version needs; see :meth:`ags1.dataset.Dataset.expire`."""
    for _ in range(_ATTEMPTS):
        try:
            return _Expiry(location, kms, keep, older_than, grace).run(dry_run)
        except ConflictError:
            # Somebody has committed meanwhile: what they need must stay, so everything is looked at again.
            continue
    raise ConflictError(f"{location}: others have committed all the time: expire it again later")


class _Expiry:
    def __init__(self, location: Location, kms: Any, keep: int, older_than: float | None, grace: float) -> None:
        self._location = location
        self._kms = kms
        self._keep = keep
        self._older_than = older_than
        self._grace = grace

    def run(self, dry_run: bool) -> ExpireReport:
        transaction = Transaction.begin(self._location, self._kms, "expire")
        head = transaction.base
        assert head is not None
        now = self._store_time(transaction)
        try:
            listed = list_files(self._location)
            going, staying = self._versions(head, listed, now)
            needed = self._needed(staying)
            inner = _datasets_inside(listed)
            rubbish = [each for each in listed if self._is_rubbish(each, needed, now) and not _is_below(each, inner)]
            fenced = {run for each in rubbish if (run := run_of(each.name)) is not None}
            fenced |= {run for each in rubbish if (run := record_of(each.name)) is not None}
            report = ExpireReport(
                version=head.version,
                versions=sorted(going),
                kept=sorted(each.version for each in staying),
                objects=len(rubbish),
                object_bytes=sum(each.size for each in rubbish),
                dry_run=dry_run,
            )
            if dry_run or not (going or rubbish):
                return report
            transaction.fence(fenced - {transaction.run.id})
            made = transaction.commit(always=True)
            assert made is not None
            report.version = made.version
            # Versions first: killed here, this leaves objects that nobody names, not versions without objects. In
            # ascending order: a late writer relies on it.
            remove(self._location.join(version_name(number)) for number in sorted(going))
            remove(each.location for each in rubbish if record_of(each.name) is None)
            for run in fenced:
                remove_record(self._location, run)
            self._remove_empty(each.name for each in rubbish)
            return report
        finally:
            transaction.run.forget()

    def _store_time(self, transaction: Transaction) -> int:
        """The store's own time: that of an object which is written now, in nanoseconds."""
        place = self._location.join(f"{RUNS}/{transaction.run.id}/time")
        make_parent(place)
        with open_output(place) as output:
            output.write(b"now")
            output.commit()
        try:
            # From a listing, as the times that it is compared with: a look at one object may round to seconds.
            return max(each.modified for each in list_files(self._location.join(f"{RUNS}/{transaction.run.id}")))
        finally:
            remove_record(self._location, transaction.run.id)

    def _versions(self, head: Version, listed: list[Entry], now: int) -> tuple[set[int], list[Version]]:
        """Numbers of the versions that go, and the versions that stay. Never the last one."""
        written = {
            number: each.modified
            for each in listed
            if each.name.startswith(f"{CONTROL}/")
            and (number := version_number(each.name.removeprefix(f"{CONTROL}/"))) is not None
        }
        going = set()
        known = numbers(self._location)
        for number, following in islice(pairwise(known), max(0, len(known) - self._keep)):
            # A version is in use until the next one comes. All before the first that stays go, whatever the clock did.
            young = self._older_than is not None and now - written.get(following, now) < self._older_than * _SECOND
            if number >= head.version or young:
                break
            going.add(number)
        staying = [read_version(self._location, number) for number in known if number not in going]
        return going, staying

    def _needed(self, versions: list[Version]) -> set[str]:
        needed: set[str] = set()
        for version in versions:
            keys = ClassKeys(version.classes, self._kms, self._location.text)
            version.authenticate(keys, f"version {version.version} of {self._location}")
            manifests = Manifests(self._location, version.uuid)
            root = open_root(manifests, version, self._kms)
            needed.update(manifests.object_names(root, needed))
        return needed

    def _is_rubbish(self, listed: Entry, needed: set[str], now: int) -> bool:
        name = listed.name
        if name in needed or now - listed.modified < self._grace * _SECOND:
            return False
        return name.startswith(f"{RUNS}/") or run_of(name) is not None

    def _remove_empty(self, names: Iterable[str]) -> None:
        """Remove directories that have nothing in them any more."""
        if not self._location.is_local:
            return
        above = {name.rpartition("/")[0] for name in names}
        above |= {
            "/".join(parts[:count]) for name in above for parts in [name.split("/")] for count in range(len(parts))
        }
        for directory in sorted(above - {"", CONTROL}, key=len, reverse=True):
            try:
                os.rmdir(self._location.join(directory).path)
            except OSError:
                continue


def _datasets_inside(listed: Iterable[Entry]) -> set[str]:
    """Directories below the dataset that are datasets of their own: their objects are named by their versions."""
    found = set()
    for each in listed:
        above, control, name = each.name.rpartition(f"/{CONTROL}/")
        # Its first run begins with a record. No object of this dataset has such a name.
        begun = name.endswith("/run.json") and record_of(f"{CONTROL}/{name}") is not None
        if control and (begun or version_number(name) is not None):
            found.add(above)
    return found


def _is_below(listed: Entry, directories: set[str]) -> bool:
    if not directories:
        return False
    name = listed.name
    return any(name[:end] in directories for end, each in enumerate(name) if each == "/")
