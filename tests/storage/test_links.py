"""Below a root nothing is read, written, listed or removed through a link, and no pipe is waited for."""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ags1.storage import (
    Location,
    create,
    is_directory,
    iterate_files,
    list_files,
    list_names,
    make_parent,
    match,
    open_output,
    open_source,
    read_whole,
    remove,
    remove_directories,
    status,
)
from tests.checks import every

Put = Callable[[Path, Path], None]


def linked(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def looped(path: Path, outside: Path) -> None:
    path.symlink_to(path)


def dangling(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "nothing")


def piped(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def write(place: Location) -> None:
    with open_output(place) as output:
        output.write(b"written")
        output.commit(durable=True)


def make(place: Location) -> None:
    make_parent(place)
    create(place, b"made")


OPERATIONS: dict[str, Callable[[Location], Any]] = {
    "read_whole": lambda place: read_whole(place, 100),
    "open_source": open_source,
    "status": status,
    "write": write,
    "create": lambda place: create(place, b"made"),
    "make": make,
    "remove": lambda place: remove([place]),
    "list_files": lambda place: list_files(place),
    "list_names": list_names,
    "iterate_files": lambda place: list(iterate_files(place)),
    "remove_directories": lambda place: remove_directories([place]),
    "is_directory": is_directory,
}


class Scene:
    """A root with what an attacker can put there, and a tree outside that must stay as it is."""

    def __init__(self, path: Path, put: Put) -> None:
        self.outside = path / "outside"
        (self.outside / "empty").mkdir(parents=True)
        (self.outside / "precious").write_bytes(b"precious")
        self.root = path / "real"
        (self.root / "d").mkdir(parents=True)
        put(self.root / "d" / "at", self.outside)
        # The root itself is what the caller names, also through a link.
        (path / "vault").symlink_to(self.root)
        self.place = Location(path / "vault").as_root()

    def files(self) -> dict[str, bytes | None]:
        """What is outside."""
        return {str(each): each.read_bytes() if each.is_file() else None for each in self.outside.rglob("*")}


@every("case", list(itertools.product([linked, looped, dangling, piped], OPERATIONS)))
def test_nothing_outside_of_a_root_is_reached(case: tuple[Put, str], tmp_path: Path) -> None:
    put, name = case
    for number, below in enumerate(("", "/precious", "/empty", "/empty/new")):
        scene = Scene(tmp_path / f"{put.__name__}-{name}-{number}", put)
        before = scene.files()
        found = None
        with contextlib.suppress(OSError):
            found = OPERATIONS[name](scene.place.join(f"d/at{below}"))
        # What is read is not what lies outside, what is listed is nothing, and what is removed is the link itself.
        assert not found, (below, found)
        assert scene.files() == before, below


def test_a_name_cannot_climb_out_of_a_root(tmp_path: Path) -> None:
    (tmp_path / "vault" / "d").mkdir(parents=True)
    (tmp_path / "precious").write_bytes(b"precious")
    place = Location(tmp_path / "vault").as_root().join("d/../../precious")
    for name in ("read_whole", "open_source", "status", "write", "create", "make", "remove"):
        with pytest.raises(OSError, match="no name of a directory"):
            OPERATIONS[name](place)
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_a_root_is_a_directory_like_any_other(tmp_path: Path) -> None:
    root = Location(tmp_path / "vault").as_root()
    assert not is_directory(root)
    for name in ("b/c", "a", "b.d", "b/a"):
        make_parent(root.join(name))
        write(root.join(name))
    for name, put in (("b/l", linked), ("b/p", piped)):
        put(tmp_path / "vault" / name, tmp_path)
    assert [each.name for each in list_files(root)] == ["a", "b.d", "b/a", "b/c"]
    assert [each.name for each in iterate_files(root)] == ["a", "b.d", "b/a", "b/c"]
    assert [each.name for each in list_files(root.join("b"))] == ["a", "c"]
    assert sorted(list_names(root)) == ["a", "b.d"]
    place = pickle.loads(pickle.dumps(root.join("b/c")))
    assert (bytes(memoryview(read_whole(place, 10))), status(place).size) == (b"written", 7)
    assert place.root == root.path
    assert place.beside("a").root == root.path
    with pytest.raises(FileExistsError):
        create(place, b"again")
    remove([place, root.join("b/a"), root.join("b/l"), root.join("b/p"), root.join("gone/x")])
    remove_directories([root.join("b"), root.join("gone")])
    assert sorted(os.listdir(tmp_path / "vault")) == ["a", "b.d"]


def test_patterns_match_as_those_of_a_shell(tmp_path: Path) -> None:
    names = (".x", "*x", "ax", "a.x", "]x", "!x", "^x", "a]", "[a", "a-b", "-")
    for name in names:
        (tmp_path / name).touch()
    generator = random.Random(5)
    patterns = {"".join(generator.choices("ab.*?[]!-^x", k=generator.randint(1, 6))) for _ in range(3000)}
    for pattern in {"[.*]x", *patterns}:
        if not set(pattern) & set("*?[") or pattern == "**":
            continue
        found = {each.name for each in match(Location(f"{tmp_path}/{pattern}"))}
        assert found == {name for name in names if fnmatch.fnmatchcase(name, pattern)}, pattern


def test_below_a_root_that_does_not_exist_there_is_nothing_to_remove(tmp_path: Path) -> None:
    root = Location(str(tmp_path / "gone")).as_root()
    remove([root.join("a")])
    remove_directories([root.join("b"), root])
    assert not (tmp_path / "gone").exists()
