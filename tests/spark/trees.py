"""Trees that the tests of the pipeline encrypt, and what a dataset has in it."""

from __future__ import annotations

import os
from pathlib import Path

from ags1 import dataset
from tests.checks import MIB, pattern
from tests.dataset.conftest import write_tree as write_tree

Tree = dict[str, bytes]

PART = MIB
HUGE = pattern(3 * MIB + 12_345)
CONTENTS: Tree = {
    "a.txt": b"first",
    "b/empty": b"",
    "b/sp ace 'quoted' #%41?": b"a name with spaces",
    "b.d/x": b"between b and b/",
    "huge.bin": HUGE,
    "large.bin": pattern(MIB + 1),
    "one block": pattern(MIB),
    "year=2026/\u65e5\u672c/\u00e9 \U0001f600": b"no ASCII",
    **{f"many/{index:03}": pattern(index) for index in range(150)},
}
STRANGE = os.fsdecode(b"no-utf-8-\xff\xfe/\x80")


def read_tree(root: Path) -> Tree:
    """All files below a directory."""
    found = {}
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, root)] = file.read()
    return found


def plain_of(vault: str | Path, kms_url: str, key_id: str = "lake", *, whole: bool = True) -> Tree:
    """What a dataset holds, through the readers of plain Python, which find nothing wrong with it if it is whole."""
    found = {}
    with dataset.open(str(vault), kms_url, key_id=key_id) as opened:
        for entry in opened.files:
            with opened.open(entry.path) as reader:
                found[entry.path] = reader.read()
        assert not whole or opened.verify().findings == []
    return found


def objects(vault: str | Path, kms_url: str, version: int | None = None) -> dict[str, list[Path]]:
    """Where the objects of each file of a dataset are."""
    with dataset.open(str(vault), kms_url, version=version) as opened:
        return {entry.path: [Path(vault, part.name) for part in entry.parts] for entry in opened.files}


def stored(vault: str | Path, kms_url: str) -> dict[str, bytes]:
    """The bytes of the objects of each file."""
    found = objects(vault, kms_url)
    return {path: b"".join(place.read_bytes() for place in places) for path, places in found.items()}


def unfinished(vault: Path) -> list[str]:
    """Runs that left a record."""
    runs = vault / "_ags1" / "runs"
    return sorted(os.listdir(runs)) if runs.exists() else []


def give_up(vault: str | Path, kms_url: str, *, dry_run: bool = False) -> dataset.ExpireReport:
    """Remove what no version names and the records of runs, also if a run was about to commit it."""
    with dataset.open(vault, kms_url) as opened:
        return opened.expire(keep=1000, grace=0, dry_run=dry_run)


def versions(vault: Path) -> list[str]:
    """The files of versions."""
    return sorted(name for name in os.listdir(vault / "_ags1") if name.startswith("v-"))


def assert_dataset(vault: Path, contents: Tree, kms_url: str, key_id: str = "lake") -> None:
    """It holds these files, and nothing else is there."""
    assert plain_of(vault, kms_url, key_id) == contents
    assert set(os.listdir(vault / "_ags1")) <= {"manifests", "runs", *versions(vault)}
