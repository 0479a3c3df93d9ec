"""A file that has the name of a directory of another file: an object store holds both, a directory cannot."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from ags1.storage.location import Location


class Twins:
    """Finds files that would be directories above other files. Names come sorted; each belongs to a side."""

    def __init__(self) -> None:
        # Each name is a prefix of the next one.
        self._prefixes: list[tuple[str, bool]] = []

    def above(self, name: str, side: bool = True) -> list[tuple[str, bool]]:
        """The earlier names, with their sides, that would be directories above this one."""
        while self._prefixes and not name.startswith(self._prefixes[-1][0]):
            self._prefixes.pop()
        found = [each for each in self._prefixes if name.startswith(f"{each[0]}/")]
        self._prefixes.append((name, side))
        return found

    def above_on_other_side(self, name: str, side: bool) -> str | None:
        """The first of these names that belongs to the other side."""
        return next((each for each, other in self.above(name, side) if other != side), None)


def refuse_twins(names: Iterable[str], target: Location) -> None:
    """Refuse a tree that a target with directories cannot hold, before anything is written; `names` are sorted.

    NotADirectoryError: one file has the name of a directory of another file.
    """
    if target.is_object:
        return
    twins = Twins()
    for name in names:
        for above, _ in twins.above(name):
            text = (
                f"{above} and {name} cannot both be written here, because {above} would be a file and a directory; "
                "nothing was written: leave one of the two out, or write to an object store"
            )
            raise NotADirectoryError(errno.ENOTDIR, text, target.shown)
