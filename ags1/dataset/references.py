"""Objects in a dataset that no version names: verify reports them, and expire removes them.

listing    in about the order of paths  --+
manifests  in the order of paths        --+-->  names in one only; no others are held in memory
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import NamedTuple

from ags1.storage import TEMPORARY_SUFFIX, Directories, Location, iterate_files, status

# They are held in memory. Expired and interrupted runs leave up to a few times the objects of the dataset.
_MOST_UNNAMED = 10_000_000


class ListedReference(NamedTuple):
    """An item of a listing: its name, relative to the dataset, and its kind.

    The kind is "file", "leftover" (a temporary file) or "other" (a link, a pipe, a socket, a device, an object whose
    name cannot be listed). `size` and
    `modified` (in nanoseconds) are -1 for a local file until :meth:`looked_at` reads them.
    """

    name: str
    kind: str
    size: int = -1
    modified: int = -1

    def looked_at(self, dataset: Location) -> ListedReference:
        """The same item with its length and time."""
        if self.size >= 0:
            return self
        seen = status(dataset.as_root().join(self.name))
        return self._replace(size=seen.size, modified=seen.modified)


def walk(location: Location) -> Iterator[ListedReference]:
    """List everything in a dataset, in about the order of paths."""
    if not location.is_local:
        unlisted: list[OSError] = []
        for each in iterate_files(location, unlisted.append):
            yield ListedReference(each.name, _kind_of(each.name), each.size, each.modified)
        for error in unlisted:
            yield ListedReference(str(error.filename).removeprefix(f"{location.shown.rstrip('/')}/"), "other")
        return
    with Directories(location.path) as directories:
        for name, is_file, _ in directories.walk(stats=False):
            yield ListedReference(name, _kind_of(name) if is_file else "other")


def _kind_of(name: str) -> str:
    last = name.rpartition("/")[2]
    return "leftover" if last.startswith(".") and last.endswith(TEMPORARY_SUFFIX) else "file"


def unnamed(listed: Iterable[ListedReference], names: Callable[[], Iterable[str]]) -> dict[str, ListedReference]:
    """Items of a listing whose names are not in `names`. Both have nearly the same order: only differences are held.

    OSError EIO: so many more objects are listed than there are names that the listing seems to have no end.

    `names` is called once more if a store lists in no order: only then can it have listed an object twice, of which the
    second would be found nowhere.
    """
    found: dict[str, ListedReference] = {}
    ahead: set[str] = set()
    named = 0
    last, in_order = "", True
    for each, name in zip_longest(listed, names()):
        if each is not None:
            in_order = in_order and (each.size < 0 or each.name > last)
            last = each.name
            if each.name in ahead:
                ahead.remove(each.name)
            else:
                found[each.name] = each
                if len(found) > _MOST_UNNAMED + 10 * named:
                    raise OSError(
                        errno.EIO,
                        f"more than {_MOST_UNNAMED:,} objects beside the {named:,} of the dataset are listed, the last "
                        f"one is {each.name}: if the store does not have them, its listing has no end",
                    )
        named += name is not None
        if name is not None and found.pop(name, None) is None:
            ahead.add(name)
    if found and not in_order:
        for name in names():
            found.pop(name, None)
    return found
