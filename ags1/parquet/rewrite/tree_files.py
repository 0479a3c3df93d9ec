"""A file of a tree on its way into another tree: where it is written, what it may replace, and when it is finished.

    directories made, no link followed --> finished before? --> not Parquet in the way? --> changed since? --> the work

:class:`TreeWork` describes the work on all files, for threads and for tasks of Spark. The commands call
:func:`transfer` and :func:`copy`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

from ags1.errors import FormatError
from ags1.parquet.rewrite.operations import COPY, OTHER, PARQUET, FileOperation, Lacking, copy_file, newer
from ags1.parquet.structure.copying import seekable
from ags1.parquet.structure.footer import ENCRYPTED_MAGIC, MAGIC
from ags1.storage import Entry, Location, make_parent, status
from ags1.streams.files import Progress
from ags1.support.arguments import spelled
from ags1.support.typing import Any

DONE, FINISHED, PUT_OFF, LEFT_OUT = "ok", "skipped", "put off", "left out"


@dataclass(frozen=True)
class TransferResult:
    """What became of a file.

    `status` is DONE; FINISHED, by an earlier run; PUT_OFF, to be copied after all other files; or LEFT_OUT, for a
    `reason`. `target` is the file in the other tree.
    """

    status: str
    target: Location | None = None
    reason: str | None = None


@dataclass(frozen=True)
class TreeWork:
    """What is done with each file of a tree that becomes another. Its methods are the work on one file.

    `operation` makes the operation in the process that does the work. `kind_of` returns what :func:`classify` says of
    a file. If both functions can be pickled, the description can be pickled.
    """

    operation: Callable[[], FileOperation]
    kind_of: Callable[[Entry], tuple[str, str]]
    target: Location
    others: str
    resume: bool
    overwrite: bool
    durable: bool

    def kind(self, source: Entry, *_: object) -> tuple[str, str]:
        """What to do with the file: as `kind_of`, and COPY for other files, if they are copied."""
        kind, reason = self.kind_of(source)
        return (COPY if kind == OTHER and self.others == "copy" else kind), reason

    def lacking(self, source: Entry, *_: object) -> Lacking:
        """The columns that the file lacks."""
        if self.kind(source)[0] != PARQUET:
            return Lacking(source.name, [], [], "")
        return self.operation().lacking(source, source.name)

    def transfer(self, source: Entry, threads: int | None, progress: Progress) -> TransferResult:
        """Encrypt, decrypt or re-key the file, or put it off, or leave it out."""
        kind, reason = self.kind(source)
        if kind == COPY:
            return TransferResult(PUT_OFF)
        if kind == OTHER and self.others == "error":
            raise FormatError(
                f"{source.name}: {reason}; {spelled('others', 'copy')} copies such files, {spelled('others', 'skip')} "
                "leaves them out"
            )
        if kind != PARQUET:
            return TransferResult(LEFT_OUT, reason=reason)
        target, how = self._place(source), {"threads": threads, "progress": progress, "durable": self.durable}
        done = transfer(source, target, self.operation(), resume=self.resume, overwrite=self.overwrite, **how)
        return TransferResult(DONE if done else FINISHED, target)

    def copy(self, source: Entry, threads: int | None, progress: Progress) -> TransferResult:
        """Copy the file as it is."""
        target = self._place(source)
        done = copy(source, target, resume=self.resume, progress=progress, durable=self.durable)
        return TransferResult(DONE if done else FINISHED, target)

    def _place(self, source: Entry) -> Location:
        return self.target.as_root().join(source.name)


def transfer(
    source: Entry, target: Location, operation: FileOperation, *, resume: bool, overwrite: bool, **options: Any
) -> bool:
    """Do the work on a Parquet file, unless an earlier run has finished it: then return False.

    Parameters
    ----------
    source : Entry
        The file as it was listed; its name is the one in the tree.
    target : Location
        Below the root of the other tree.
    resume, overwrite : bool
        Whether to look for the work of an earlier run, and to replace then what is better protected than the result.
    **options
        Of the operation: threads, progress, durable.

    Raises
    ------
    FileExistsError
        The target is no regular file, or not a Parquet file: no earlier run can have written it. Or it is newer than
        its source, and better protected than the result.
    OSError
        The source was changed since it was listed. Nothing was written.
    """
    is_there = _make_way(target)
    if is_there and resume and operation.is_finished(source, target, overwrite=overwrite):
        return False
    if is_there:
        _refuse_other(target)
    _refuse_changed(source)
    operation.run(source, target, source.name, **options)
    return True


def copy(source: Entry, target: Location, *, resume: bool, **options: Any) -> bool:
    """Copy a file as it is, unless the target is newer and has the same length: then return False."""
    is_there = _make_way(target)
    there = newer(source, target) if is_there and resume else None
    if there is not None and there.size == source.size:
        return False
    copy_file(source.location, target, **options)
    return True


def _make_way(target: Location) -> bool:
    """Make the directories above a file; return whether it may be there. A link in its place will be replaced."""
    make_parent(target)
    if not target.is_local:
        return True
    try:
        status(target)
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EISDIR):
            raise
        if os.path.islink(target.path):
            return False
        text = "is in the way, and not a regular file: move it away"
        raise FileExistsError(errno.EEXIST, text, target.shown) from None
    return True


def _refuse_other(target: Location) -> None:
    try:
        with seekable(target) as opened:
            begin = b"" if opened is None else bytes(memoryview(opened.read(0, min(4, opened.size))))
    except FileNotFoundError:
        return
    if begin and begin not in (MAGIC, ENCRYPTED_MAGIC):
        text = "a file that is not Parquet is in the way: move it away"
        raise FileExistsError(errno.EEXIST, text, target.shown)


def _refuse_changed(source: Entry) -> None:
    if not status(source.location).is_same(source.size, source.modified, source.etag):
        text = "was changed since it was listed; nothing was written: use a source that does not change"
        raise OSError(errno.EBUSY, text, source.path)
