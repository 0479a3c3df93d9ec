"""What is in a dataset, and what of it no version names: what verify reports, and expire removes.

listing    in about the order of paths  --+
manifests  in the order of paths        --+-->  what is in one only; nothing else is held
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
    """Something in a dataset: its name, relative to that, and its kind.

    That is "file", "leftover" (a temporary file) or "other": a link, a pipe, a socket, a device. `size` and `modified`
    (in nanoseconds) are -1 of a local file, at which :meth:`looked_at` looks.
    """

    name: str
    kind: str
    size: int = -1
    modified: int = -1

    def looked_at(self, dataset: Location) -> Listed:
        """The same with its length and time."""
        if self.size >= 0:
            return self
        seen = status(dataset.join(self.name))
        return self._replace(size=seen.size, modified=seen.modified)


def walk(location: Location) -> Iterator[Listed]:
    """All that is in a dataset, in about the order of paths."""
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
        # Removed meanwhile.
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
    """What of a listing is not among names. Both come in nearly the same order: only what differs is held."""
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
