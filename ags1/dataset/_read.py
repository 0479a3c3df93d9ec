"""Runs that read a whole dataset: decrypt and verify. Small files by the unit, large ones by their blocks."""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import ags1.dataset._tree as _tree
from ags1._blocks import open_blocks
from ags1.codec import decrypt_many
from ags1.dataset._manifest import Entry, Manifest, checked_metadata, sort_key
from ags1.dataset._store import LocalStore, RemoteStore
from ags1.dataset.reports import Problem, RunReport, TreeReport
from ags1.errors import Ags1Error, AuthenticationError
from ags1.files import decrypt_file
from ags1.keys import KeyMetadata
from ags1.layout import BLOCK_OVERHEAD, DEFAULT_BLOCK_LENGTH, HEADER_LENGTH, read_header
from ags1.verify import verify_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from concurrent.futures import Future
    from typing import Any

    from ags1.files import Progress

__all__ = ["decrypt", "verify"]

_SMALL = (1 << 20) + 1024
_LARGE = 32 << 20
_UNIT_FILES = 64
_UNIT_BYTES = 4 << 20
_UNITS_WAITING = 4
# A file that was swapped is looked for among those of its length; more than this many are not tried.
_TRIES = 100_000
_FATAL = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


class View:
    """A version of a dataset, to be read."""

    def __init__(self, store: LocalStore | RemoteStore, manifest: Manifest, version: int, staged: str | None) -> None:
        self.store = store
        self.manifest = manifest
        self.version = version
        self.staged = staged

    def locate(self, path: str) -> str:
        """Where a file is."""
        return self.store.locate(path, self.staged)

    def read(self, entry: Entry) -> bytes:
        """All of an encrypted file, if it has the length that it should have.

        Raises
        ------
        OSError
            It cannot be read.
        TruncatedError, FormatError
            It has another length.
        """
        path = self.locate(entry.path)
        if isinstance(self.store, RemoteStore):
            data: bytes = self.store.file_system.cat_file(path)
            return data
        # One byte more shows that the file is longer than it should be.
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            # Perhaps it was moved out of the staging directory just now.
            descriptor = os.open(self.locate(entry.path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = os.read(descriptor, entry.file_length + 1)
            while 0 < len(data) < entry.file_length:
                piece = os.read(descriptor, entry.file_length + 1 - len(data))
                if not piece:
                    break
                data += piece
        finally:
            os.close(descriptor)
        return data

    def source(self, path: str) -> Any:
        """What the functions on whole files take for a file of the dataset."""
        if isinstance(self.store, LocalStore):
            name = self.locate(path)
            if not stat.S_ISREG(os.stat(name).st_mode):
                # Opening a pipe would wait for its other end.
                raise OSError(errno.EINVAL, "is no regular file any more", name)
            return name
        return self.store.file_system.open(self.locate(path), "rb")


@dataclass
class _Unit:
    """Files that are worked on together, and what failed of them."""

    entries: list[Entry] = field(default_factory=list)
    size: int = 0
    failed: dict[str, Exception] = field(default_factory=dict)
    future: Future[None] | None = None


def _units(entries: Iterable[Entry]) -> Iterator[_Unit]:
    unit = _Unit()
    for entry in entries:
        large = entry.file_length > _SMALL
        if large or unit.size + entry.file_length > _UNIT_BYTES or len(unit.entries) >= _UNIT_FILES:
            if unit.entries:
                yield unit
            unit = _Unit()
        unit.entries.append(entry)
        unit.size += entry.file_length
        if large:
            yield unit
            unit = _Unit()
    if unit.entries:
        yield unit


def _work_through(
    units: Iterable[_Unit],
    small: Callable[[_Unit], None],
    large: Callable[[_Unit, int | None], None],
    done: Callable[[_Unit], None],
    threads: int | None,
) -> None:
    """Call `small` or `large` for each unit, some at a time, and then `done` in order."""
    from ags1._backend import backend

    workers = threads if threads is not None else int(backend()["threads"])
    pool = None
    if workers > 1:
        from concurrent.futures import ThreadPoolExecutor

        pool = ThreadPoolExecutor(workers, thread_name_prefix="ags1-dataset")
    waiting: deque[_Unit] = deque()

    def finish(count: int) -> None:
        while len(waiting) > count:
            unit = waiting.popleft()
            if unit.future is not None:
                unit.future.result()
            done(unit)

    try:
        for unit in units:
            first = unit.entries[0]
            if first.file_length > _LARGE:
                finish(0)
                large(unit, threads)
            elif pool is None:
                small(unit) if first.file_length <= _SMALL else large(unit, 1)
            elif first.file_length <= _SMALL:
                unit.future = pool.submit(small, unit)
            else:
                unit.future = pool.submit(large, unit, 1)
            waiting.append(unit)
            finish(_UNITS_WAITING * workers)
        finish(0)
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def _open_unit(view: View, unit: _Unit) -> list[tuple[Entry, memoryview]]:
    """The plaintexts of small files; those that fail go to ``unit.failed``, each under its own name."""
    ready: list[tuple[Entry, bytes, KeyMetadata]] = []
    for entry in unit.entries:
        try:
            ready.append((entry, view.read(entry), checked_metadata(entry, view.manifest.name)))
        except (OSError, Ags1Error) as error:
            unit.failed[entry.path] = _with_name(error, view, entry)
    try:
        return list(zip([entry for entry, _, _ in ready], _open_many(ready), strict=True))
    except Ags1Error:
        pass
    # One of them is not as it should be: which, only each by itself can say.
    good: list[tuple[Entry, memoryview]] = []
    for each in ready:
        try:
            good.append((each[0], _open_many([each])[0]))
        except Ags1Error as error:
            unit.failed[each[0].path] = _with_name(error, view, each[0])
    return good


def _open_many(files: list[tuple[Entry, bytes, KeyMetadata]]) -> list[memoryview]:
    return decrypt_many(
        [data for _, data, _ in files],
        [metadata.encryption_key for _, _, metadata in files],
        aad_prefixes=[metadata.aad_prefix or b"" for _, _, metadata in files],
        lengths=[metadata.file_length for _, _, metadata in files],
        threads=1,
    )


def _with_name(error: Exception, view: View, entry: Entry) -> Exception:
    """The error with the file's name in it."""
    name = view.locate(entry.path)
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "is in the manifest, but missing from the dataset", name)
    if isinstance(error, OSError) or name in str(error):
        return error
    text = str(error).removeprefix("buffer 0: ").removeprefix("buffer 0")
    again = type(error)(f"{name}: {text.strip(' :')}")
    if isinstance(error, AuthenticationError) and isinstance(again, AuthenticationError):
        again.block_index = error.block_index
    return again


# -- decrypting ----------------------------------------------------------------------------------------------------


def decrypt(
    view: View,
    target: str | os.PathLike[str],
    wanted: _tree.Filter,
    *,
    threads: int | None,
    on_error: str,
    progress: Progress | None,
    durable: bool,
    dry_run: bool,
) -> RunReport:
    """Decrypt all files, or some, into a tree of the same names."""
    root = os.path.abspath(os.fspath(target))
    if isinstance(view.store, LocalStore):
        inner, outer = os.path.realpath(root), os.path.realpath(view.store.root)
        if os.path.join(inner, "").startswith(os.path.join(outer, "")):
            raise ValueError(f"the target {root} lies in the dataset: plaintext would stand beside what is encrypted")
        if os.path.join(outer, "").startswith(os.path.join(inner, "")):
            name = os.path.relpath(outer, inner)
            if view.manifest.has_below(name):
                raise ValueError(
                    f"the target {root} is above the dataset, which has files below {name}/: their plaintext would go "
                    "into the dataset itself; choose another target"
                )
    report = RunReport(version=view.version)
    entries = (entry for entry in view.manifest.entries() if wanted.accepts(entry.path))
    if dry_run:
        for entry in entries:
            report.done += 1
            report.done_bytes += entry.plaintext_length
            report.paths.append(entry.path)
        return report
    os.makedirs(root, exist_ok=True)
    directories = _tree.Directories(root)
    publisher = _tree.Publisher(root, durable=durable)
    total = view.manifest.plaintext_bytes

    def small(unit: _Unit) -> None:
        for entry, plain in _open_unit(view, unit):
            try:
                directories.ensure(entry.path.rpartition("/")[0])
                target_is_there = os.path.lexists(os.path.join(root, entry.path))
                publisher.publish(entry.path, plain, replace=target_is_there)
            except OSError as error:
                unit.failed[entry.path] = error
                if error.errno in _FATAL:
                    raise

    def large(unit: _Unit, count: int | None) -> None:
        (entry,) = unit.entries
        done = report.done_bytes
        tell = None if progress is None or count == 1 else lambda part, _: progress(done + part, total)
        try:
            metadata = checked_metadata(entry, view.manifest.name)
            directories.ensure(entry.path.rpartition("/")[0])
            decrypt_file(
                view.source(entry.path),
                os.path.join(root, entry.path),
                key_metadata=metadata,
                threads=count,
                progress=tell,
                durable=durable,
            )
        except (OSError, Ags1Error) as error:
            unit.failed[entry.path] = _with_name(error, view, entry)
            if isinstance(error, OSError) and error.errno in _FATAL:
                raise

    def done(unit: _Unit) -> None:
        for path, error in unit.failed.items():
            if on_error == "fail":
                raise error
            report.errors.append((path, error))
        for entry in unit.entries:
            if entry.path not in unit.failed:
                report.done += 1
                report.done_bytes += entry.plaintext_length
        if progress is not None:
            progress(report.done_bytes, total)

    try:
        _work_through(_units(entries), small, large, done, threads)
    finally:
        publisher.close()
    return report


# -- verifying -----------------------------------------------------------------------------------------------------


def verify(view: View, *, threads: int | None, progress: Progress | None) -> TreeReport:
    """Authenticate every block of every file, and name what does not belong."""
    problems: dict[str, Problem] = {}
    suspects: dict[str, int] = {}
    done_bytes = 0
    total = view.manifest.plaintext_bytes

    def small(unit: _Unit) -> None:
        _open_unit(view, unit)

    def large(unit: _Unit, count: int | None) -> None:
        (entry,) = unit.entries
        try:
            metadata = checked_metadata(entry, view.manifest.name)
            report = verify_file(view.source(entry.path), key_metadata=metadata, threads=count)
            if not report.ok:
                raise AuthenticationError(f"{report.failed_count} blocks failed")
        except (OSError, Ags1Error) as error:
            unit.failed[entry.path] = error

    def done(unit: _Unit) -> None:
        nonlocal done_bytes
        for entry in unit.entries:
            if entry.path in unit.failed:
                problems[entry.path], length = _judge(view, entry, unit.failed[entry.path])
                if length is not None:
                    suspects[entry.path] = length
        done_bytes += sum(entry.plaintext_length for entry in unit.entries)
        if progress is not None:
            progress(done_bytes, total)

    _work_through(_units(view.manifest.entries()), small, large, done, threads)
    strangers = _strangers(view)
    for path, origin in _origins(view, {**suspects, **_lengths(view, strangers)}).items():
        if path in problems:
            problems[path] = Problem(path, "swapped", f"{path} is the file {origin}, put in its place")
        else:
            strangers[path] = Problem(path, "foreign", f"{path} is a copy of {origin}, under a name of no file")
    found = sorted(problems.values(), key=lambda each: sort_key(each.path))
    return TreeReport(view.version, view.manifest.file_count, total, found + list(strangers.values()))


def _judge(view: View, entry: Entry, error: Exception) -> tuple[Problem, int | None]:
    """What is wrong with a file; and its length, if it may be another file."""
    path = entry.path
    if isinstance(error, FileNotFoundError):
        return Problem(path, "missing", f"{path} is in the manifest, but not in the dataset"), None
    size = _size_of(view, path)
    if isinstance(error, OSError) or size is None:
        if size is not None or isinstance(view.store, RemoteStore):
            return Problem(path, "unreadable", f"{path} cannot be read: {error}"), None
        return Problem(path, "replaced", f"{path} is no regular file any more"), None
    try:
        metadata = checked_metadata(entry, view.manifest.name)
    except Ags1Error as damage:
        return Problem(path, "damaged", str(damage)), None
    begins_well = _begins_like(view, path, metadata)
    if size != entry.file_length:
        what = f"{path} has {size:,} bytes, not {entry.file_length:,}"
        if begins_well:
            kind = "truncated" if size < entry.file_length else "extended"
            more = "its end is missing" if kind == "truncated" else "something was added"
            return Problem(path, kind, f"{what}: {more}"), None
        if size < entry.file_length and entry.plaintext_length <= DEFAULT_BLOCK_LENGTH:
            # With its only tag gone, nothing says what it was.
            return Problem(path, "truncated", f"{what}: its end is missing, or it was replaced"), size
        return Problem(path, "replaced", f"{what}, and begins differently: another file, or another version"), size
    report = None
    try:
        report = verify_file(view.source(path), key_metadata=metadata, threads=1)
    except (OSError, Ags1Error) as again:
        return Problem(path, "replaced", f"{path} was replaced or damaged: {again}"), size
    if report.ok:
        return Problem(path, "unreadable", f"{path} was changed while it was verified: {error}"), None
    if report.failed_count == report.block_count:
        text = f"none of its {report.block_count:,} blocks is authentic"
        return Problem(path, "replaced", f"{path}: {text}: another file, another version of it, or damage"), size
    shown = ", ".join(str(index) for index in report.failed_blocks[:20])
    more = ", ..." if report.failed_count > 20 else ""
    text = f"{path}: {report.failed_count:,} of {report.block_count:,} blocks are damaged: {shown}{more}"
    return Problem(path, "damaged", text), None


def _size_of(view: View, path: str) -> int | None:
    """Bytes of a file, None if it is no regular one."""
    try:
        if isinstance(view.store, RemoteStore):
            return view.store.file_system.size(view.locate(path))
        found = os.stat(view.locate(path))
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _begins_like(view: View, path: str, metadata: KeyMetadata) -> bool:
    """Whether the first block of a file opens with a key, whatever comes behind it."""
    source: Any = None
    try:
        source = view.source(path)
        with open(source, "rb") if isinstance(source, str) else source as file:
            block_length = read_header(file.read(HEADER_LENGTH))
            wanted = min(block_length, DEFAULT_BLOCK_LENGTH) + BLOCK_OVERHEAD
            data = file.read(wanted)
        out = bytearray(max(0, len(data) - BLOCK_OVERHEAD))
        prefix = metadata.aad_prefix or b""
        open_blocks(data, out, metadata.encryption_key, prefix, block_length, 0, 1)
    except (Ags1Error, OSError, ValueError):
        return False
    return True


def _strangers(view: View) -> dict[str, Problem]:
    """What is in the tree and not in the manifest, by a merge of the two."""
    found: dict[str, Problem] = {}
    known = (entry.path for entry in view.manifest.entries())
    name = next(known, None)
    for path, kind in view.store.walk():
        while name is not None and sort_key(name) < sort_key(path):
            name = next(known, None)
        if kind == "leftover":
            found[path] = Problem(path, "leftover", f"{path} is a temporary file of an interrupted run: remove it")
        elif name != path:
            what = "is in no manifest: it was added, or left by a run that was interrupted"
            found[path] = Problem(path, "foreign", f"{path} {what}")
    return found


def _lengths(view: View, strangers: dict[str, Problem]) -> dict[str, int]:
    sizes = {path: _size_of(view, path) for path, each in strangers.items() if each.kind == "foreign"}
    return {path: size for path, size in sizes.items() if size is not None}


def _origins(view: View, suspects: dict[str, int]) -> dict[str, str]:
    """Which files of the dataset the suspects are, of those that are any."""
    found: dict[str, str] = {}
    by_length: dict[int, list[str]] = {}
    for path, length in suspects.items():
        by_length.setdefault(length, []).append(path)
    if not by_length:
        return found
    tries = 0
    for entry in view.manifest.entries():
        for path in by_length.get(entry.file_length, ()):
            if path == entry.path or path in found:
                continue
            tries += 1
            if tries > _TRIES:
                return found
            if _begins_like(view, path, entry.key_metadata):
                found[path] = entry.path
    return found
