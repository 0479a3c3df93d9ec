"""Selection of files by patterns of paths."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

Patterns = str | Sequence[str] | None


class Filter:
    """Selects files by glob patterns of their relative paths.

    Parameters
    ----------
    include, exclude : str or sequence of str, optional
        A pattern without ``/`` is compared with each component of a path, one with ``/`` with the whole path, where
        ``*`` stands for any characters, also ``/``. Without `include`, every file is selected; `exclude` wins.
    """

    def __init__(self, include: Patterns = None, exclude: Patterns = None) -> None:
        self._include = patterns_of(include, "include")
        self._exclude = patterns_of(exclude, "exclude")

    def __bool__(self) -> bool:
        return bool(self._include or self._exclude)

    def accepts(self, path: str) -> bool:
        """Whether a file or an empty directory is selected, and no directory above it is excluded."""
        path = path.removesuffix("/")
        if self._include and not any(matches(path, pattern) for pattern in self._include):
            return False
        while self._exclude and path:
            if self.prunes(path):
                return False
            path = path.rpartition("/")[0]
        return True

    def prunes(self, path: str) -> bool:
        """Whether `exclude` leaves out a file, or everything below a directory."""
        return any(matches(path, pattern) for pattern in self._exclude)


def patterns_of(patterns: Patterns, name: str) -> list[str]:
    """Return the patterns as a list. `name` is the argument that had them, for the message of an error."""
    if patterns is None:
        return []
    found = [patterns] if isinstance(patterns, str) else list(patterns)
    if not all(isinstance(pattern, str) for pattern in found):
        raise TypeError(f"{name} must be a glob pattern or a sequence of them")
    return [pattern.rstrip("/") for pattern in found]


def matches(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern, as :class:`Filter` compares them."""
    if "/" in pattern:
        return fnmatch.fnmatchcase(path, pattern)
    return any(fnmatch.fnmatchcase(part, pattern) for part in path.split("/"))
