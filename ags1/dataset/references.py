"""Objects in a dataset that no version names: verify reports them, and expire removes them.

listing    in about the order of paths  --+
manifests  in the order of paths        --+-->  names in one only; no others are held in memory
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import NamedTuple

from ags1.dataset.names import sort_key
from ags1.storage import TEMPORARY_SUFFIX, Location, iterate_files, status

__all__ = ["Listed", "unnamed", "walk"]


class Listed(NamedTuple):
    """An item of a listing: its name, relative to the dataset, and its kind.

    The kind is "file", "leftover" (a temporary file) or "other" (a link, a pipe, a socket, a device). `size` and
    `modified` (in nanoseconds) are -1 for a local file until :meth:`looked_at` reads them.
    """

    name: str
    kind: str
    size: int = -1
    modified: int = -1

    def looked_at(self, dataset: Location) -> Listed:
        """The same item with its length and time."""
        if self.size >= 0:
            return self
        seen = status(dataset.join(self.name))
        return self._replace(size=seen.size, modified=seen.modified)


def walk(location: Location) -> Iterator[Listed]:
    """List everything in a dataset, in about the order of paths."""
    if location.is_local:
        yield from _walk_local(location.path, "")
        return
    for each in iterate_files(location):
        yield Listed(each.name, _kind_of(each.name), each.size, each.modified)


def _walk_local(directory: str, above: str) -> Iterator[Listed]:
    try:
        with os.scandir(directory) as listing:
            entries = sorted(listing, key=lambda each: sort_key(each.name))
    except FileNotFoundError:
        if not above:
            raise
        # Removed in the meantime.
        return
    for each in entries:
        name = above + each.name
        if each.is_dir(follow_symlinks=False):
            yield from _walk_local(each.path, f"{name}/")
        else:
            yield Listed(name, _kind_of(name) if each.is_file(follow_symlinks=False) else "other")


def _kind_of(name: str) -> str:
    last = name.rpartition("/")[2]
    return "leftover" if last.startswith(".") and last.endswith(TEMPORARY_SUFFIX) else "file"


def unnamed(listed: Iterable[Listed], names: Iterable[str]) -> dict[str, Listed]:
    """Items of a listing whose names are not in `names`. Both have nearly the same order: only differences are held."""
    found: dict[str, Listed] = {}
    ahead: set[str] = set()
    for each, name in zip_longest(listed, names):
        if each is not None:
            if each.name in ahead:
                ahead.remove(each.name)
            else:
                found[each.name] = each
        if name is not None and found.pop(name, None) is None:
            ahead.add(name)
    return found
