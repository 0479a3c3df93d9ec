"""Verify a dataset: authenticate every block of every file, and compare the existing objects with the manifests.

manifests   --> workers --> files that failed are examined again, to find the kind of the fault
one listing --> objects that no version names: left by a run, or foreign
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from ags1.core.blocks import open_blocks
from ags1.dataset.entries import DatasetEntry, Part
from ags1.dataset.manifests import Manifests
from ags1.dataset.names import CONTROL, RUNS, record_of, run_of, sort_key, version_name, version_number
from ags1.dataset.references import ListedReference, unnamed, walk
from ags1.dataset.reports import DatasetVerifyReport, Phase, Problem
from ags1.dataset.versions import Version, kept_versions
from ags1.dataset.views import DatasetView, open_root
from ags1.dataset.worker import VerifyWorker, on_threads
from ags1.errors import Ags1Error, KeyAccessError
from ags1.keys import KeyMetadata
from ags1.layout import BLOCK_OVERHEAD, DEFAULT_BLOCK_LENGTH, HEADER_LENGTH
from ags1.storage import Location, PipeSource, open_source
from ags1.storage import status as status_of
from ags1.streams.files import Progress
from ags1.streams.verify import verify_file
from ags1.work.threads import SharedProgress, run_on_threads
from ags1.work.units import UnitOutcome

Perform = Callable[[DatasetView], Generator[UnitOutcome, None, None]]

_LOG = logging.getLogger("ags1.dataset")

# What is done after every file was read.
_COMPARING = "listing what is stored"
_REPLACEMENTS = "searching the origin of replaced objects"
_STRANGERS = "searching the origin of foreign objects"

# The origin of a swapped object is searched among the objects of its length. No more than this many are tried for the
# objects of files, and as many for those of no file: each try reads and decrypts up to a block.
_TRIES = 1000
# A listing is told of once for so many objects.
_TOLD_OBJECTS = 1000


def verify(
    view: DatasetView, *, threads: int | None = None, progress: Progress | None = None,
    perform: Perform | None = None, phase: Phase | None = None,
) -> DatasetVerifyReport:  # fmt: skip
    """Verify one version of a dataset; see :meth:`ags1.dataset.Dataset.verify`.

    Objects that other versions name are not foreign. `perform` verifies the files outside of this process, and yields
    the outcomes of the entries that failed. KeyAccessError: there, the KMS refused.
    """
    return _Verification(view, phase).run(threads, progress, perform)


@dataclass
class _Verification:
    view: DatasetView
    phase: Phase | None = None
    problems: dict[str, Problem] = field(default_factory=dict)
    unexpected_files: dict[str, Problem] = field(default_factory=dict)
    # Objects that may be copies of others: name -> length, and the path of their file.
    suspects: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    # Versions that cannot be read, the last one first.
    unread: list[int] = field(default_factory=list)
    # Runs that have a record, so they go on, or were interrupted.
    recorded: set[str | None] = field(default_factory=set)

    def run(self, threads: int | None, progress: Progress | None, perform: Perform | None) -> DatasetVerifyReport:
        total = self.view.version.plaintext_bytes
        if perform is not None:
            outcomes = perform(self.view)
        else:
            worker = VerifyWorker(self.view.location, self.view.keys)
            entries = self.view.manifests.files(self.view.root)
            outcomes = run_on_threads(
                worker, entries, on_threads(threads), SharedProgress(progress, total), on_error="collect"
            )
        with closing(outcomes):
            for outcome in outcomes:
                if outcome.error is not None:
                    self.problems[outcome.unit.path] = self._judge(outcome.unit, outcome.error)
        _LOG.info("%s: every file was read; what is stored is compared with the manifests", self.view.location)
        self._find_strangers()
        self._find_origins()
        found = sorted(self.problems.values(), key=lambda each: sort_key(each.path))
        others = sorted(self.unexpected_files.values(), key=lambda each: sort_key(each.path))
        report = DatasetVerifyReport(self.view.version.version, self.view.version.file_count, total, found + others)
        _LOG.info(
            "%s: version %d verified: %d files, %d bytes; %d problems",
            self.view.location, report.version, report.file_count, total, len(report.problems),
        )  # fmt: skip
        return report

    # -- faults of a file ------------------------------------------------------------------------------------------

    def _judge(self, entry: DatasetEntry, error: Exception) -> Problem:
        if isinstance(error, KeyAccessError):
            # Only a process of `perform` asks for the key: nothing can be said of any file.
            raise error
        for part in entry.parts:
            found = self._judge_part(entry, part)
            if found is not None:
                return found
        return Problem(entry.path, "unreadable", f"{entry.path} was changed while it was verified: {error}")

    def _judge_part(self, entry: DatasetEntry, part: Part) -> Problem | None:
        """The problem of an object, None if there is none."""
        path, place = entry.path, self.view.location.join(part.name)
        name = f"{path} ({part.name})"
        try:
            metadata = self.view.keys.open_part(part)
        except Ags1Error as error:
            return Problem(path, "damaged", str(error))
        try:
            size = _size_of(place)
        except (FileNotFoundError, NotADirectoryError):
            return Problem(path, "missing", f"{name} is in the manifest, but not in the dataset")
        except OSError as error:
            return Problem(path, "unreadable", f"{name} cannot be read: {error}")
        if size is None:
            return Problem(path, "replaced", f"{name} is no longer a regular file")
        if size != part.file_length:
            what = f"{name} has {size:,} bytes, not {part.file_length:,}"
            if _begins_like(place, metadata, part.file_length):
                if size < part.file_length:
                    return Problem(path, "truncated", f"{what}: its end is missing")
                return Problem(path, "extended", f"{what}: bytes were added to it")
            self.suspects[part.name] = size, path
            if size < part.file_length and part.plaintext_length <= DEFAULT_BLOCK_LENGTH:
                # Its only tag is missing, so a cut and a replacement look the same.
                return Problem(path, "truncated", f"{what}: its end is missing, or it was replaced")
            return Problem(path, "replaced", f"{what}, and begins differently: another file, or another version")
        try:
            report = verify_file(place, key_metadata=metadata, threads=1)
        except OSError as error:
            return Problem(path, "unreadable", f"{name} cannot be read: {error}")
        except Ags1Error as error:
            if _begins_like(place, metadata, part.file_length):
                return Problem(path, "damaged", f"{name}: its header was changed: {error}")
            self.suspects[part.name] = size, path
            return Problem(path, "replaced", f"{name} was replaced or damaged: {error}")
        if report.ok:
            return None
        if report.failed_count == report.block_count:
            self.suspects[part.name] = size, path
            if report.block_count == 1:
                # One changed bit and another file look the same.
                text = "its only block is not authentic: damage, or another file or version in its place"
                return Problem(path, "damaged", f"{name}: {text}")
            text = f"none of its {report.block_count:,} blocks is authentic"
            return Problem(path, "replaced", f"{name}: {text}: another file, another version of it, or damage")
        shown = ", ".join(str(index) for index in report.failed_blocks[:20])
        more = ", ..." if report.failed_count > 20 else ""
        text = f"{name}: {report.failed_count:,} of {report.block_count:,} blocks are damaged: {shown}{more}"
        return Problem(path, "damaged", text)

    # -- other objects ---------------------------------------------------------------------------------------------

    def _find_strangers(self) -> None:
        """Report objects that no version names."""
        known: set[str] = set()
        listed = (each for each in self._told(walk(self.view.location)) if not self._is_of_control(each.name))

        def names() -> Iterator[str]:
            known.clear()
            return self.view.manifests.object_names(self.view.root, known)

        found = unnamed(listed, names)
        if found:
            for name in self._other_names(known):
                found.pop(name, None)
        for name, each in found.items():
            self.unexpected_files[name] = self._unexpected(name, each.kind)

    def _told(self, listed: Iterator[ListedReference]) -> Iterator[ListedReference]:
        count = 0
        for count, each in enumerate(listed):
            if count % _TOLD_OBJECTS == 0:
                self._tell(_COMPARING, count, None)
            yield each
        self._tell(_COMPARING, count, None)

    def _tell(self, doing: str, done: int, total: int | None) -> None:
        if self.phase is not None:
            self.phase(doing, done, total)

    def _is_of_control(self, name: str) -> bool:
        """Whether this is a version, or a record of an interrupted run: no manifest names these."""
        if name.startswith(f"{RUNS}/"):
            self.recorded.add(record_of(name))
            return True
        above, _, last = name.rpartition("/")
        return above == CONTROL and version_number(last) is not None

    def _other_names(self, known: set[str]) -> Iterator[str]:
        """Names of the objects of all other versions, including those committed in the meantime."""
        for each in kept_versions(self.view.location):
            name, version, error = version_name(each.number), each.version, each.error
            if each.number == self.view.version.version:
                continue
            if not each.is_committed and version is not None:
                self.unexpected_files[name] = self._uncommitted(version, name)
                continue
            try:
                if version is not None:
                    version.authenticate(self.view.keys, name)
                    manifests = Manifests(self.view.location, version.uuid)
                    yield from manifests.object_names(open_root(manifests, version, self.view.keys), known)
            except FileNotFoundError:
                # Expired in the meantime.
                continue
            except (Ags1Error, OSError) as fault:
                error = fault
            if error is not None:
                text = f"version {each.number} cannot be read, so its own objects count as unreferenced: {error}"
                kind = "unreadable" if isinstance(error, OSError) else "damaged"
                self.unexpected_files[name] = Problem(f"version {each.number}", kind, text)
                self.unread.append(each.number)

    def _uncommitted(self, version: Version, name: str) -> Problem:
        """The problem of a version that the next one does not name as its parent."""
        try:
            version.authenticate(self.view.keys, name)
        except Ags1Error as error:
            text = f"{name} is not the parent of the next version, and not authentic: {error}"
            return Problem(name, "replaced", text)
        text = "was made by a late writer and never committed: expire removes it when it is old, or is told to"
        return Problem(name, "unreferenced", f"{name} {text}")

    def _unexpected(self, name: str, kind: str) -> Problem:
        if kind == "leftover":
            return Problem(name, "leftover", f"{name} is a temporary file of an interrupted run: remove it")
        run = run_of(name)
        if run is not None and kind == "file":
            why = "of a version that was removed, or of a program that still writes it"
            if self.unread:
                which = " or ".join(map(str, reversed(self.unread)))
                why = f"of version {which}, which cannot be read, or {why}"
            if run in self.recorded:
                why = f"of run {run}, which goes on, or was interrupted"
            text = f"{name} is in no version: it is {why}; it stays for the grace time, and a later expire removes it"
            return Problem(name, "unreferenced", text)
        if kind == "file":
            size = _size_of(self.view.location.join(name))
            if size is not None:
                self.suspects[name] = size, None
        return Problem(name, "foreign", f"{name} is of no run of this dataset: it was put there")

    def _find_origins(self) -> None:
        """Find the objects of the dataset that the suspects are copies of."""
        for of_files in (True, False):
            by_length: dict[int, list[str]] = {}
            for name, (length, path) in self.suspects.items():
                if (path is not None) is of_files:
                    by_length.setdefault(length, []).append(name)
            if by_length:
                self._find_among(by_length, _REPLACEMENTS if of_files else _STRANGERS)

    def _find_among(self, by_length: dict[int, list[str]], doing: str) -> None:
        for name, origin in self._origins(by_length, doing):
            path = self.suspects[name][1]
            if path is not None:
                text = f"{path}: its object {name} is that of {origin}, put in its place"
                self.problems[path] = Problem(path, "swapped", text)
            else:
                text = f"{name} is a copy of an object of {origin}, under a name of no file"
                self.unexpected_files[name] = Problem(name, "foreign", text)

    def _origins(self, by_length: dict[int, list[str]], doing: str) -> Iterator[tuple[str, str]]:
        tries = 0
        self._tell(doing, tries, _TRIES)
        found: set[str] = set()
        for entry in self.view.manifests.files(self.view.root):
            for part in entry.parts:
                for name in by_length.get(part.file_length, ()):
                    if name == part.name or name in found:
                        continue
                    tries += 1
                    if tries > _TRIES:
                        return
                    self._tell(doing, tries, _TRIES)
                    try:
                        metadata = self.view.keys.open_part(part)
                    except Ags1Error:
                        continue
                    if _begins_like(self.view.location.join(name), metadata, part.file_length):
                        found.add(name)
                        yield name, entry.path


def _size_of(place: Location) -> int | None:
    """Bytes of a file; None if it is not a regular file."""
    try:
        return status_of(place).size
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EISDIR):
            raise
        return None


def _begins_like(place: Location, metadata: KeyMetadata, file_length: int) -> bool:
    """Whether the first block of what had a length opens with a key; what comes behind does not matter."""
    try:
        source = open_source(place)
    except OSError:
        return False
    assert not isinstance(source, PipeSource)
    try:
        # Whatever its header says: every object of a dataset has blocks of this length.
        block_length = DEFAULT_BLOCK_LENGTH
        wanted = min(min(source.size, file_length) - HEADER_LENGTH, block_length + BLOCK_OVERHEAD)
        out = bytearray(max(0, wanted - BLOCK_OVERHEAD))
        data = source.read(HEADER_LENGTH, wanted)
        open_blocks(data, out, metadata.encryption_key, metadata.aad_prefix or b"", block_length, 0, 1)
    except (Ags1Error, OSError, ValueError):
        return False
    finally:
        source.close()
    return True
