"""Trees of random modes, and what a mode becomes where such a tree is written again."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

UMASKS = (0o000, 0o002, 0o022, 0o027, 0o077, 0o137)
# Who is not root can read only what the modes allow.
_READ = 0 if os.geteuid() == 0 else 0o500


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def make_tree(root: Path, rng: random.Random, content: Callable[[], bytes], ending: str = "") -> Path:
    """Files, directories and links below `root`; some directories are empty. Modes are any, `root`'s too."""
    directories = [root]
    root.mkdir()
    for number in range(8):
        directories.append(rng.choice(directories) / f"d{number}")
        directories[-1].mkdir()
    for number in range(12):
        path = rng.choice(directories) / f"f{number}{ending}"
        path.write_bytes(content())
        path.chmod(rng.randrange(0o1000) | _READ)
    for number, place in enumerate(("f0", "d0", "nowhere", ".", "..", "/etc/hostname")):
        (rng.choice(directories) / f"l{number}{ending}").symlink_to(place)
    for path in reversed(directories):
        path.chmod(rng.choice([0o700, 0o750, 0o555, rng.randrange(0o1000), rng.randrange(0o2000)]) | _READ)
    return root


def below(root: Path) -> dict[str, os.stat_result]:
    """What is in a tree by its name, without links; "" is the tree itself."""
    found = {str(path.relative_to(root)): path.lstat() for path in root.rglob("*") if not path.is_symlink()}
    return {"": root.lstat()} | found


def links_in(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink())


def expected(source: os.stat_result, mask: int) -> int:
    """The mode of what is written again: no wider than in the source, and than the umask allows."""
    kept = 0o1777 if stat.S_ISDIR(source.st_mode) else 0o777
    return stat.S_IFMT(source.st_mode) | stat.S_IMODE(source.st_mode) & kept & ~mask


def different(source: Path, target: Path, mask: int, ending: str = "", *, empty: bool = True) -> dict[str, str]:
    """What has not the mode that is expected, or is missing or too much; `ending` is what the target's files have more.

    Without `empty`, directories without a file are not expected in the target.
    """
    before, after = below(source), below(target)
    files = [name for name, found in before.items() if stat.S_ISREG(found.st_mode)]
    wanted = {
        name + (ending if name in files else ""): expected(found, mask)
        for name, found in before.items()
        if empty or name in ("", *files) or any(each.startswith(f"{name}/") for each in files)
    }
    return {
        name: f"{wanted.get(name, 0):o} became {after[name].st_mode if name in after else 0:o}"
        for name in sorted(wanted.keys() | after.keys())
        if name not in after or wanted.get(name) != after[name].st_mode
    }
