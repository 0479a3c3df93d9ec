"""Expire: remove old versions, and the objects that no remaining version names.

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

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice, pairwise

from ags1.dataset.keys import DatasetKeys
from ags1.dataset.manifests import Manifests, open_root
from ags1.dataset.names import CONTROL, RUNS, record_of, run_of, version_name, version_number
from ags1.dataset.pins import Access
from ags1.dataset.references import ListedReference, unnamed, walk
from ags1.dataset.reports import ExpireReport
from ags1.dataset.runs import remove_record
from ags1.dataset.transaction import Transaction
from ags1.dataset.versions import Version, kept_versions
from ags1.errors import Ags1Error, ConflictError, FormatError
from ags1.storage import Location, list_files, make_parent, open_output, remove, remove_directories, status

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
            raise ValueError(f"`give_up={self.give_up}`: the last version, {head.version}, cannot be given up")
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
            report.kept.append(head.version + 1)
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
        found = list(kept_versions(self.location))
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
            self._authenticate(each.version)
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

    def _authenticate(self, version: Version) -> None:
        try:
            version.authenticate(self.keys, f"version {version.version} of {self.location}")
        except Ags1Error as error:
            raise self._refusal(version.version, error) from error

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
        manifests = Manifests(self.location, version.uuid)
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
