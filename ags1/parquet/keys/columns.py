"""Finds the columns of a file that a configured name means.

    "a.b.list.element"      the leaf of that path
    "a" or "a.b"            a group: all leaves below it
    ("a.b", "list")         the parts of a path, for columns that have a dot in their name

For each leaf the most specific name applies: its own path first, then the innermost group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ags1.support.typing import Any

ColumnName = str | tuple[str, ...]
Path = tuple[str, ...]

_MOST_SHOWN = 10


class MissingColumnsError(ValueError):
    """A file does not have all named columns; `names` are those that it lacks.

    `alike` are those of them that it has in another case, and under no other name that was given.
    """

    def __init__(self, text: str, names: list[ColumnName], alike: list[ColumnName]) -> None:
        super().__init__(text, names, alike)
        self.names = names
        self.alike = alike

    def __str__(self) -> str:
        return str(self.args[0])


class ColumnNames:
    """Configured names, matched against the leaf paths of a file. A match is an index into `names`.

    `same` returns whether two names, given by index, have the same value (for example the same key). Only then may both
    mean one column, or a name be given twice. `asked` is the word for the value in messages.
    """

    __slots__ = ("_asked", "_dotted", "_names", "_parts", "_resolved", "_same")

    def __init__(self, names: Sequence[ColumnName], same: Callable[[int, int], bool], asked: str = "key") -> None:
        self._names = list(names)
        self._same = same
        self._asked = asked
        self._dotted: dict[str, int] = {}
        self._parts: dict[Path, int] = {}
        self._resolved: tuple[object, list[int | None]] = (None, [])
        for index, name in enumerate(self._names):
            # Two dictionaries, because "a.b" means two paths and ("a.b",) one.
            known = (
                self._dotted.setdefault(name, index) if isinstance(name, str) else self._parts.setdefault(name, index)
            )
            if not same(known, index):
                raise ValueError(f"the column name {name!r} is given twice, with different {asked}s")

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[ColumnName]:
        return iter(self._names)

    def find(self, path: Path) -> int | None:
        """Index of the name that applies to a leaf. ValueError: two equally specific names have different values."""
        if len(path) == 1 and not self._parts:
            return self._dotted.get(path[0])
        return next((self._one_of(found, path) for found in self._matches(path)), None)

    def resolve(self, paths: Sequence[Path], *, missing_allowed: bool = False) -> list[int | None]:
        """The result of :meth:`find` for each leaf, after checking that every name means a column.

        MissingColumnsError: a name means no column, unless `missing_allowed`, or one in another case that no other name
        means. ValueError: a name means two columns of which neither is below the other; or as :meth:`find`.
        """
        # Many files have the columns of the one before.
        asked = tuple(paths), missing_allowed
        if self._resolved[0] == asked:
            return list(self._resolved[1])
        found: list[int | None] = []
        meant: dict[int, Path] = {}
        for path in paths:
            counts = None
            for names in self._matches(path):
                if counts is None:
                    counts = self._one_of(names, path)
                for index, prefix in names:
                    if meant.setdefault(index, prefix) != prefix:
                        raise ValueError(
                            f"the column name {self._names[index]!r} means both {meant[index]!r} and {prefix!r}: "
                            "give the parts of its path in a tuple, and on a command line write \\. for a dot in a name"
                        )
            found.append(counts)
        missing = [
            name for index, name in enumerate(self._names) if index not in meant and not self._is_repeated(index)
        ]
        if missing:
            nameless = [path for path, index in zip(paths, found, strict=True) if index is None]
            alike = _in_another_case(missing, nameless)
            if alike or not missing_allowed:
                raise MissingColumnsError(_unknown(alike or missing, paths), missing, alike)
        self._resolved = asked, found
        return list(found)

    def _is_repeated(self, index: int) -> bool:
        name = self._names[index]
        return (self._dotted[name] if isinstance(name, str) else self._parts[name]) != index

    def _matches(self, path: Path) -> Iterator[list[tuple[int, Path]]]:
        """Names that mean this leaf, the most specific first; equally specific names are in one list."""
        dotted, parts = self._dotted, self._parts
        for length in range(len(path), 0, -1):
            prefix = path[:length]
            names = []
            if (index := dotted.get(".".join(prefix))) is not None:
                names.append((index, prefix))
            if (index := parts.get(prefix)) is not None:
                names.append((index, prefix))
            if names:
                yield names

    def _one_of(self, names: list[tuple[int, Path]], path: Path) -> int:
        first = names[0][0]
        for index, _ in names[1:]:
            if not self._same(first, index):
                raise ValueError(
                    f"the column {'.'.join(path)} is meant by {self._names[first]!r} and by {self._names[index]!r}, "
                    f"with different {self._asked}s"
                )
        return first


def _in_another_case(names: Sequence[ColumnName], paths: Sequence[Path]) -> list[ColumnName]:
    known = {tuple(part.casefold() for part in path[:length]) for path in paths for length in range(1, len(path) + 1)}
    dotted = {".".join(parts) for parts in known}
    return [
        name
        for name in names
        if (name.casefold() in dotted if isinstance(name, str) else tuple(part.casefold() for part in name) in known)
    ]


def _unknown(missing: list[ColumnName], paths: Sequence[Path]) -> str:
    import difflib

    columns = [".".join(path) for path in paths]
    # Names of groups too, because they are valid names.
    known = dict.fromkeys(columns)
    known.update(dict.fromkeys(".".join(path[:length]) for path in paths for length in range(1, len(path))))
    folded = {name.casefold(): name for name in known}
    text = f"there {'are' if len(missing) > 1 else 'is'} no column{'s' * (len(missing) > 1)} "
    text += _listed([repr(name) for name in missing])
    wanted = missing[0] if isinstance(missing[0], str) else ".".join(missing[0])
    close = [folded[each] for each in difflib.get_close_matches(wanted.casefold(), folded, n=3, cutoff=0.6)]
    if close:
        text += f"; did you mean {' or '.join(repr(each) for each in close)}?"
    if not columns:
        return f"{text}; the file has no columns"
    return f"{text}; the file has {len(columns)}: {_listed(columns)}"


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(texts[:_MOST_SHOWN]) + (", ..." if len(texts) > _MOST_SHOWN else "")


def named_values(given: object, argument: str) -> list[tuple[ColumnName, Any]]:
    """Names and values from a mapping of name to value, or from pairs of a list of names and a value.

    TypeError, ValueError: it is neither; the message names the argument.
    """
    if isinstance(given, Mapping):
        return [(_checked(name, argument), value) for name, value in given.items()]
    if isinstance(given, (str, bytes, bytearray, memoryview)) or not isinstance(given, Iterable):
        raise TypeError(
            f"{argument} must be a mapping from column name to value, or pairs of a list of names and a value, "
            f"not {type(given).__name__}"
        )
    found: list[tuple[ColumnName, Any]] = []
    for pair in given:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"{argument} must be a mapping, or pairs of a list of column names and a value")
        names, value = pair
        several = names_in_list(names, argument) if isinstance(names, (list, set, frozenset)) else [names]
        found += [(_checked(name, argument), value) for name in several]
    return found


def list_of_columns_text(master: str, given: object) -> str:
    """The message for a value of `column_key_ids` that is no list: often a mapping from column to key."""
    text = "column_key_ids maps ids of master keys to lists of column names"
    if not isinstance(given, str):
        return f"{text}, and {master!r} has {type(given).__name__}"
    as_meant, as_given = {given: [master]}, {master: [given]}
    return f"{text}: give {as_meant} if {given!r} is the master key, else {as_given}"


def names_in_list(names: object, argument: str) -> list[ColumnName]:
    """The column names in a list. TypeError, ValueError: not a list (a tuple is one path), empty, or not names."""
    if not isinstance(names, (list, set, frozenset)):
        raise TypeError(f"{argument} must have a list of column names here, not {type(names).__name__}")
    if not names:
        raise ValueError(f"{argument} has an empty list of columns")
    return [_checked(name, argument) for name in names]


def _checked(name: object, argument: str) -> ColumnName:
    if isinstance(name, str):
        if not name:
            raise ValueError(f"{argument} has an empty column name")
        return name
    if isinstance(name, tuple):
        if not name:
            raise ValueError(f"{argument} has an empty column path")
        if all(isinstance(part, str) for part in name):
            return name
    raise TypeError(f"{argument} has a column name that is neither a str nor a tuple of str: {type(name).__name__}")
