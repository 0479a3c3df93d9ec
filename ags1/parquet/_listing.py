"""The files of a directory, on this machine or of a remote file system."""

from __future__ import annotations

import os
import stat

from ags1._atomic import TEMPORARY_SUFFIX
from ags1._sources import is_url, remote_file_system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["Listed", "join", "list_files", "make_directory_of", "modified"]


class Listed:
    """A file of a directory.

    Attributes
    ----------
    name : str
        Relative to the directory, with ``/`` between its parts.
    path : str
        Path or URL.
    size : int
        Bytes.
    """

    __slots__ = ("name", "path", "size")

    def __init__(self, name: str, path: str, size: int) -> None:
        self.name = name
        self.path = path
        self.size = size


def list_files(source: str | os.PathLike[str], target: str | os.PathLike[str] | None) -> list[Listed]:
    """All files below a directory, by name; links to directories are not followed.

    Parameters
    ----------
    target : path or URL, optional
        Where they will go: what lies below it is left out, if it lies in the source.

    Raises
    ------
    ValueError
        Source and target are one directory.
    OSError
        There is no such directory, or one below it cannot be read.
    """
    root = os.fsdecode(source)
    goal = None if target is None else os.fsdecode(target)
    if is_url(root) and not root.startswith("file://"):
        if goal is not None and goal.rstrip("/") == root.rstrip("/"):
            raise _same(root)
        return _remote(root)
    root = root.removeprefix("file://")
    excluded = None
    if goal is not None and (not is_url(goal) or goal.startswith("file://")):
        excluded = os.path.realpath(goal.removeprefix("file://"))
        if excluded == os.path.realpath(root):
            raise _same(root)
    if not os.path.isdir(root):
        os.scandir(root).close()
    found = []
    for parent, folders, names in os.walk(root, onerror=_raise):
        folders[:] = [name for name in folders if os.path.realpath(os.path.join(parent, name)) != excluded]
        for name in names:
            path = os.path.join(parent, name)
            state = os.stat(path)
            if name.endswith(TEMPORARY_SUFFIX):
                continue
            if not stat.S_ISREG(state.st_mode):
                raise OSError(22, "it is a pipe, a socket or a device: take it away first", path)
            found.append(Listed(os.path.relpath(path, root).replace(os.sep, "/"), path, state.st_size))
    return sorted(found, key=lambda each: each.name)


def _remote(url: str) -> list[Listed]:
    file_system, path = remote_file_system(url)
    base = path.rstrip("/") + "/"
    found = []
    for full, info in file_system.find(path, detail=True).items():
        name = full[len(base) :] if full.startswith(base) else full.lstrip("/")[len(base.lstrip("/")) :]
        if name:
            found.append(Listed(name, f"{url.rstrip('/')}/{name}", int(info.get("size") or 0)))
    if not found and not file_system.isdir(path):
        raise FileNotFoundError(2, "No such directory", url)
    return sorted(found, key=lambda each: each.name)


def join(directory: str | os.PathLike[str], name: str) -> str:
    """Path or URL of a file in a directory."""
    root = os.fsdecode(directory)
    return f"{root.rstrip('/')}/{name}" if is_url(root) else os.path.join(root, *name.split("/"))


def make_directory_of(path: str) -> None:
    """Make the directory that a file will be in, where there are such things."""
    if not is_url(path) or path.startswith("file://"):
        os.makedirs(os.path.dirname(os.path.abspath(path.removeprefix("file://"))), exist_ok=True)


def modified(path: str) -> int | None:
    """When a file was last written, in nanoseconds; None if that is not known, or there is none."""
    try:
        if is_url(path) and not path.startswith("file://"):
            file_system, inside = remote_file_system(path)
            return int(file_system.modified(inside).timestamp() * 1_000_000_000)
        return os.stat(path.removeprefix("file://")).st_mtime_ns
    except (OSError, NotImplementedError):
        return None


def _same(directory: str) -> ValueError:
    return ValueError(f"source and target are the same directory ({directory}): write to another, then rename")


def _raise(error: OSError) -> NoReturn:
    raise error
