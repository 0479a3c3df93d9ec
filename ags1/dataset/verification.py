"""Verify a dataset: authenticate every block of every file, and compare the existing objects with the manifests.

manifests   --> workers --> files that failed are examined again, to find the kind of the fault
one listing --> objects that no version names: left by a run, or foreign
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

from ags1.dataset.damage import damage_finding
from ags1.dataset.entries import DatasetEntry, Part
from ags1.dataset.manifests import DatasetView, Manifests, open_root
from ags1.dataset.names import CONTROL, RUNS, record_of, run_of, sort_key, version_name, version_number
from ags1.dataset.references import unnamed, walk
from ags1.dataset.versions import damaged, kept_versions
from ags1.dataset.worker import VerifyWorker, on_threads
from ags1.errors import Ags1Error, KeyAccessError
from ags1.storage import Location
from ags1.storage import status as status_of
from ags1.streams.files import Progress
from ags1.streams.verify import verify_file
from ags1.support.reports import DAMAGED, ERROR, NOT_CHECKED, WARNING, Finding, VerifyReport
from ags1.support.words import counted
from ags1.work.units import SharedProgress, UnitOutcome, run_on_threads

Perform = Callable[[DatasetView], Generator[UnitOutcome, None, None]]

_LOG = logging.getLogger("ags1.dataset")


def verify(view: DatasetView, *, threads: int | None = None, progress: Progress | None = None) -> VerifyReport:
    """Verify one version of a dataset; see :meth:`ags1.dataset.Dataset.verify`."""
    found = compare(view, threads=threads, progress=progress, goes_on=True)
    version = view.version
    of_files = [each.details["plaintext_length"] for each in found if "plaintext_length" in each.details]
    report = VerifyReport(view.location.shown)
    report.checked = {"files": version.file_count - len(of_files), "bytes": version.plaintext_bytes - sum(of_files)}
    report.facts = {"version": version.version, "files": version.file_count, "plaintext_bytes": version.plaintext_bytes}
    for each in found:
        report.add(each)
    report.sort()
    return report


def compare(
    view: DatasetView, *, threads: int | None = None, progress: Progress | None = None,
    perform: Perform | None = None, goes_on: bool = False,
) -> list[Finding]:  # fmt: skip
    """All findings of :func:`verify`, in the order of paths; of other objects last.

    Objects that other versions name are not foreign. `perform` verifies the files outside of this process, and yields
    the outcomes of the entries that failed. With `goes_on`, a damaged manifest is a finding, and the files that it
    lists are not verified. KeyAccessError: the KMS refused in `perform`.
    """
    return _Comparison(view, goes_on).run(threads, progress, perform)


def _finding(path: str, code: str, text: str) -> Finding:
    """A difference between the dataset and its manifests. What runs leave behind does no harm."""
    if code in ("unreferenced", "leftover"):
        return Finding(WARNING, code, path, text)
    return Finding(ERROR, code, path, text, NOT_CHECKED if code == "unreadable" else DAMAGED)


@dataclass
class _Comparison:
    view: DatasetView
    goes_on: bool
    problems: dict[str, Finding] = field(default_factory=dict)
    unexpected_files: dict[str, Finding] = field(default_factory=dict)
    # Versions that cannot be read, the last one first.
    unread: list[int] = field(default_factory=list)
    # Runs that have a record, so they go on, or were interrupted.
    recorded: set[str | None] = field(default_factory=set)

    def run(self, threads: int | None, progress: Progress | None, perform: Perform | None) -> list[Finding]:
        total = self.view.version.plaintext_bytes
        if perform is not None:
            outcomes = perform(self.view)
        else:
            worker = VerifyWorker(self.view.location, self.view.keys)
            entries = self.view.manifests.files(self.view.root, on_error=self._note_damage if self.goes_on else None)
            outcomes = run_on_threads(
                worker, entries, on_threads(threads), SharedProgress(progress, total), on_error="collect"
            )
        with closing(outcomes):
            for outcome in outcomes:
                if outcome.error is not None:
                    found = self._judge(outcome.unit, outcome.error)
                    details = {"plaintext_length": outcome.unit.plaintext_length}
                    self.problems[outcome.unit.path] = replace(found, details=details)
        _LOG.info("%s: every file was read; what is stored is compared with the manifests", self.view.location)
        self._find_strangers()
        by_path = (sorted(each.values(), key=_place) for each in (self.problems, self.unexpected_files))
        findings = [each for those in by_path for each in those]
        version = self.view.version
        _LOG.info(
            "%s: version %d verified: %d files, %d bytes; %d findings",
            self.view.location, version.version, version.file_count, total, len(findings),
        )  # fmt: skip
        return findings

    def _note_damage(self, error: Exception) -> None:
        if isinstance(error, FileNotFoundError):
            # The version was expired meanwhile.
            raise error
        number = self.view.version.version
        finding = damage_finding(number, error)
        self.unexpected_files[finding.message] = finding
        self.unread = [number]

    # -- faults of a file ------------------------------------------------------------------------------------------

    def _judge(self, entry: DatasetEntry, error: Exception) -> Finding:
        if isinstance(error, KeyAccessError):
            # Only a process of `perform` asks for the key: nothing can be said of any file.
            raise error
        for part in entry.parts:
            found = self._judge_part(entry, part)
            if found is not None:
                return found
        return _finding(entry.path, "unreadable", f"{entry.path} was changed while it was verified: {error}")

    def _judge_part(self, entry: DatasetEntry, part: Part) -> Finding | None:
        """The problem of an object, None if there is none."""
        path, place = entry.path, self.view.location.join(part.name)
        name = f"{path} ({part.name})"
        try:
            metadata = self.view.keys.open_part(part)
        except Ags1Error as error:
            return _finding(path, "damaged", str(error))
        try:
            size = _size_of(place)
        except (FileNotFoundError, NotADirectoryError):
            return _finding(path, "missing", f"{name} is in the manifest, but not in the dataset")
        except OSError as error:
            return _finding(path, "unreadable", f"{name} cannot be read: {error}")
        if size is None:
            return _finding(path, "replaced", f"{name} is no longer a regular file")
        if size != part.file_length:
            what = f"{name} has {size:,} bytes, not {part.file_length:,}"
            if size < part.file_length:
                return _finding(path, "truncated", f"{what}: its end is missing, or it was replaced")
            return _finding(path, "extended", f"{what}: bytes were added to it, or it was replaced")
        try:
            report = verify_file(place, key_metadata=metadata, threads=1)
        except OSError as error:
            return _finding(path, "unreadable", f"{name} cannot be read: {error}")
        except Ags1Error as error:
            return _finding(path, "damaged", f"{name}: its header was changed, or it was replaced: {error}")
        failed = report.having("damaged")
        if not failed:
            return None
        if report.checked["blocks"]:
            return _finding(path, "damaged", f"{name}: {failed[0].message.removeprefix(f'{report.subject}: ')}")
        blocks = report.facts["blocks"]
        if blocks == 1:
            # One changed bit and another file look the same.
            text = "its only block is not authentic: damage, or another file or version in its place"
            return _finding(path, "damaged", f"{name}: {text}")
        text = f"none of its {blocks:,} blocks is authentic"
        return _finding(path, "replaced", f"{name}: {text}: another file, another version of it, or damage")

    # -- other objects ---------------------------------------------------------------------------------------------

    def _find_strangers(self) -> None:
        """Report objects that no version names."""
        known: set[str] = set()
        listed = (each for each in walk(self.view.location) if not self._is_of_control(each.name))

        def names() -> Iterator[str]:
            known.clear()
            on_error = self._note_damage if self.goes_on else None
            return self.view.manifests.object_names(self.view.root, known, on_error)

        found = unnamed(listed, names)
        if found:
            for name in self._other_names(known):
                found.pop(name, None)
        own = 0
        for name, each in found.items():
            if self.unread and each.kind == "file" and run_of(name) is not None:
                own += 1
                continue
            self.unexpected_files[name] = self._unexpected(name, each.kind)
        if own:
            which = " or ".join(map(str, reversed(self.unread)))
            text = f"whether {counted(own, 'object')} that no other version names is of version {which} is not known"
            self.unexpected_files[CONTROL] = Finding(WARNING, "unknown", self.view.location.shown, text)

    def _is_of_control(self, name: str) -> bool:
        """Whether this is a version, or a record of an interrupted run: no manifest names these."""
        if name.startswith(f"{RUNS}/"):
            self.recorded.add(record_of(name))
            return True
        above, _, last = name.rpartition("/")
        return above == CONTROL and version_number(last) is not None

    def _other_names(self, known: set[str]) -> Iterator[str]:
        """Names of the objects of all other versions, including those committed in the meantime."""
        for each in kept_versions(self.view.location, keys=self.view.keys):
            name, version, error = version_name(each.number), each.version, each.error
            if each.number == self.view.version.version:
                continue
            if not each.is_committed and version is not None:
                code = "missing" if each.next_is_lost else "unreferenced"
                self.unexpected_files[name] = _finding(name, code, each.fault)
                continue
            try:
                if version is not None:
                    manifests = Manifests(self.view.location, version.uuid, version=version.version)
                    yield from manifests.object_names(open_root(manifests, version, self.view.keys), known)
            except FileNotFoundError:
                # Expired in the meantime.
                continue
            except (Ags1Error, OSError) as fault:
                error = fault
            if error is not None:
                if each.error is not None:
                    error = damaged(self.view.location, each.number, each.error)
                self.unexpected_files[name] = damage_finding(each.number, error)
                self.unread.append(each.number)

    def _unexpected(self, name: str, kind: str) -> Finding:
        if kind == "leftover":
            return _finding(name, "leftover", f"{name} is a temporary file of an interrupted run: remove it")
        run = run_of(name)
        if run is not None and kind == "file":
            why = "of a version that was removed, or of a program that still writes it"
            if run in self.recorded:
                why = f"of run {run}, which goes on, or was interrupted"
            text = f"{name} is in no version: it is {why}; it stays for the grace time, and a later expire removes it"
            return _finding(name, "unreferenced", text)
        return _finding(name, "foreign", f"{name} is of no run of this dataset: it was put there")


def _place(finding: Finding) -> bytes:
    return sort_key(finding.subject)


def _size_of(place: Location) -> int | None:
    """Bytes of a file; None if it is not a regular file."""
    try:
        return status_of(place).size
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EISDIR):
            raise
        return None
