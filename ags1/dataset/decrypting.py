"""A run that decrypts a dataset, or some of its files, into a directory or below a URL."""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain, pairwise

from ags1.dataset._files import Files
from ags1.dataset.entries import DatasetEntry
from ags1.dataset.joined import open_parts
from ags1.dataset.manifests import DatasetView
from ags1.dataset.reports import RunReport
from ags1.dataset.selection import Filter
from ags1.dataset.versions import numbers
from ags1.dataset.worker import DecryptWorker, on_threads
from ags1.dataset.writing import Options
from ags1.errors import Ags1Error
from ags1.storage import Location, SortedListing, TreeDirectories, Unsynced, inside, pass_unnamed, refuse_twins
from ags1.streams.stream import Reader
from ags1.support.arguments import spelled
from ags1.work.units import SharedProgress, run_on_threads

_LOG = logging.getLogger("ags1.dataset")
_PIECE = 1 << 20


def decrypt_files(view: DatasetView, target: Location, options: Options, *, overwrite: bool = True) -> RunReport:
    """Decrypt the files of a version that are wanted; see :meth:`ags1.dataset.Dataset.decrypt`."""
    dataset, root, wanted = view.location, view.root, options.wanted
    if inside(dataset, target) is not None:
        raise ValueError(f"the target {target} lies in the dataset: plaintext would stand beside what is encrypted")
    if (target.is_local or target.is_object) and numbers(target):
        raise ValueError(f"the target {target} is a dataset: plaintext would stand beside what is encrypted")
    name = inside(target, dataset)
    if name is not None and view.manifests.has_below(root, name):
        raise ValueError(
            f"the target {target} is above the dataset, which has files below {name}/: their plaintext would go into "
            "the dataset itself; choose another target"
        )
    refuse_twin_files(Files(lambda: view, dataset.text), wanted, target)
    report = RunReport(version=view.version.version)
    if not overwrite:
        refuse_different(target, _files(view, wanted), lambda entry: open_parts(dataset, entry, view.keys))
    if options.dry_run:
        entries = _files(view, wanted)
        for entry in entries if overwrite or not target.is_local else _missing(entries, target, report):
            report.done += 1
            report.done_bytes += entry.plaintext_length
            report.paths.append(entry.path)
        return report
    total = root.plaintext_bytes if root is not None and not wanted else None
    unsynced = Unsynced(target)
    errors: list[tuple[str, OSError]] = []
    how, progress = on_threads(options.threads), SharedProgress(options.progress, total)
    worker = DecryptWorker(dataset, target, view.keys)
    # The target is made even if no file is wanted.
    with TreeDirectories(target, view.version.mode) as directories:
        entries = made_before(view.manifests.entries(root), wanted, directories, unsynced, errors)
        if not overwrite and target.is_local:
            entries = _missing(entries, target, report)
        for outcome in run_on_threads(worker, entries, how, progress, on_error=options.on_error):
            entry = outcome.unit
            if outcome.error is not None:
                report.errors.append((entry.path, outcome.error))
            else:
                report.done += 1
                report.done_bytes += entry.plaintext_length
                unsynced.add(entry.path)
        if errors and options.on_error == "fail":
            raise errors[0][1]
        report.errors += errors
        if options.durable:
            unsynced.sync()
        directories.finish()
    _LOG.info(
        "%s: version %d decrypted to %s: %d files, %d bytes; %d failed",
        dataset, view.version.version, target, report.done, report.done_bytes, len(report.errors),
    )  # fmt: skip
    return report


def _files(view: DatasetView, wanted: Filter) -> Iterator[DatasetEntry]:
    return (entry for entry in view.manifests.files(view.root) if wanted.accepts(entry.path))


def made_before(
    entries: Iterable[DatasetEntry], wanted: Filter, directories: TreeDirectories, unsynced: Unsynced,
    errors: list[tuple[str, OSError]],
) -> Iterator[DatasetEntry]:  # fmt: skip
    """The wanted files among sorted entries; directories are made before a file of them is yielded.

    So are the empty directories that are wanted. Those that cannot be made are added to `errors`.
    """
    above: list[DatasetEntry] = []
    for entry, following in pairwise(chain(entries, (None,))):
        assert entry is not None
        above = [each for each in above if entry.path.startswith(each.path)]
        if entry.is_directory:
            above.append(entry)
            if following is not None and following.path.startswith(entry.path):
                # It is made with the first file that is wanted.
                continue
        if not wanted.accepts(entry.path):
            continue
        for each in above:
            try:
                directories.make(each.path.rstrip("/"), each.mode, each.modified_ns)
            except OSError as error:
                # Of others, what writes a file into it says what is wrong.
                if each is entry:
                    errors.append((each.path, error))
            else:
                if each is entry:
                    unsynced.add(each.path)
        above = []
        if not entry.is_directory:
            yield entry


def _missing(entries: Iterator[DatasetEntry], target: Location, report: RunReport) -> Iterator[DatasetEntry]:
    """The files that a directory does not have yet; those of an earlier run are counted."""
    for entry in entries:
        if _is_same(entry, _status(target, entry)):
            report.unchanged += 1
        else:
            yield entry


def refuse_twin_files(files: Files, wanted: Filter, target: Location) -> None:
    """Refuse files of a store that a target with directories cannot hold, before anything is written.

    NotADirectoryError: one file has the name of a directory of another file.
    """
    refuse_twins((path for leaf in files.leaves() for path, *_ in leaf.sizes() if wanted.accepts(path)), target)


def refuse_different(
    target: Location, entries: Iterable[DatasetEntry], open_entry: Callable[[DatasetEntry], Reader]
) -> None:
    """Raise FileExistsError if the target has files that differ from those that would be written."""
    count, example = 0, ""
    with ExitStack() as opened:
        listing = None
        if not target.is_local:
            try:
                listing = opened.enter_context(SortedListing(target, on_error=pass_unnamed))
            except FileNotFoundError:
                return
        for entry in entries:
            if listing is not None:
                differs = listing.size_of(entry.path) is not None
            else:
                found = _status(target, entry)
                differs = found is not None and not (
                    _is_same(entry, found) or _has_content(open_entry, target, entry, found)
                )
            if differs:
                count, example = count + 1, example or entry.path
    if count:
        differ = "file in it differs" if count == 1 else "files in it differ"
        text = f"{count:,} {differ} from what would be written, such as {example}, and nothing was written"
        raise FileExistsError(
            errno.EEXIST, (f"{text}: {spelled('overwrite', True)} replaces the files there"), target.shown
        )


def _status(target: Location, entry: DatasetEntry) -> os.stat_result | None:
    """The status of a file, or of a link in its place; None if there is neither, or the way leads through a link."""
    path = os.path.join(target.path, entry.path)
    above = os.path.join(os.path.realpath(target.path), os.path.dirname(entry.path))
    if os.path.realpath(os.path.dirname(path)) != os.path.normpath(above):
        # What is there is not in this directory, and no earlier run has written it: the work refuses to go there.
        return None
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode) else None


def _is_same(entry: DatasetEntry, found: os.stat_result | None) -> bool:
    """Whether a file looks like what an earlier run has written."""
    if found is None or not stat.S_ISREG(found.st_mode):
        return False
    return (found.st_size, found.st_mtime_ns) == (entry.plaintext_length, entry.modified_ns)


def _has_content(
    open_entry: Callable[[DatasetEntry], Reader], target: Location, entry: DatasetEntry, found: os.stat_result
) -> bool:
    """Whether a file has the plaintext of an entry; what cannot be read is not written either, so nothing is lost."""
    if not stat.S_ISREG(found.st_mode) or found.st_size != entry.plaintext_length:
        return False
    with open(os.path.join(target.path, entry.path), "rb") as file, suppress(Ags1Error):
        with open_entry(entry) as reader:
            while data := reader.read(_PIECE):
                if data != file.read(len(data)):
                    return False
    return True
