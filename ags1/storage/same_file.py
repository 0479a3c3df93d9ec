"""Whether the file that is read and the file that is written are one."""

from __future__ import annotations

import os
import stat

from ags1.storage.location import Location
from ags1.support.typing import Any


def refuse_same(source: Any, target: Any) -> None:
    """Raise ValueError if source and target are one file, by their paths or URLs, or by an open descriptor."""
    if is_same(source, target):
        name = Location(source)
        raise ValueError(f"source and target are the same file ({name}): write to another name, then rename")
    refuse_writing_into(source, target)


def is_same(source: Any, target: Any) -> bool:
    """Whether two paths or URLs are one file."""
    paths = [Location(file) for file in (source, target) if _is_path(file)]
    if len(paths) < 2:
        return False
    if not (paths[0].is_local and paths[1].is_local):
        return paths[0] == paths[1]
    try:
        return os.path.samefile(paths[0].path, paths[1].path) and os.path.isfile(paths[0].path)
    except OSError:
        return False


def refuse_writing_into(source: Any, target: Any) -> None:
    """Raise ValueError if `target` is an open file, as of ``>> FILE``, that is the source file.

    Each byte that is written there changes what is still to be read. A target that is a path appears at the end.
    """
    if _is_path(target):
        return
    written = _identity(target)
    if written is not None and written == _identity(source):
        name = getattr(target, "name", None)
        raise ValueError(
            f"{name if isinstance(name, str) else 'the target'} is open on the source file, and was not changed: "
            "write to another file, then rename it"
        )


def _is_path(file: Any) -> bool:
    return isinstance(file, (str, bytes, os.PathLike)) and not hasattr(file, "read")


def _identity(file: Any) -> tuple[int, int] | None:
    """Device and inode of a regular local file, given by its path or open."""
    try:
        if not _is_path(file):
            found = os.fstat(file.fileno())
        elif (location := Location(file)).is_local:
            found = os.stat(location.path)
        else:
            return None
    except (AttributeError, OSError, TypeError, ValueError):
        # A file object without a descriptor, a buffer, or a path with nothing there.
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None
