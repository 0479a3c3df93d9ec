"""Which files a command line means, and where each result goes."""

from __future__ import annotations

import argparse
import os
import stat
import sys

from ags1.cli._parser import UsageError

__all__ = ["STANDARD", "expand", "pair_up", "size_of"]

STANDARD = "-"
SUFFIX = ".ags1"
_SEPARATORS = tuple(separator for separator in (os.sep, os.altsep) if separator)


def expand(patterns: list[str], *, only_suffix: str | None = None) -> list[str]:
    """Files that names, globs and directories stand for, in order, each once.

    A name that exists is itself, whatever characters it has. A glob that matches nothing is an error, so that a
    misspelt pattern does not pass for success. Directories stand for the files below them (`only_suffix` narrows
    those); links to directories are not followed.
    """
    found: dict[str, None] = {}
    for pattern in patterns:
        if pattern == STANDARD or "://" in pattern:
            found[pattern] = None
        elif os.path.isdir(pattern):
            below = list(_files_below(pattern, only_suffix))
            if not below:
                raise UsageError(f"there are no {only_suffix or ''} files below the directory {pattern}".replace("  ", " "))
            found.update(dict.fromkeys(below))
        elif os.path.lexists(pattern) or not any(character in pattern for character in "*?["):
            found[pattern] = None
        else:
            import glob

            matches = sorted(path for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path))
            if not matches:
                raise UsageError(f"no file matches {pattern}")
            found.update(dict.fromkeys(matches))
    return list(found)


def _files_below(directory: str, only_suffix: str | None) -> list[str]:
    found = []
    for parent, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names):
            path = os.path.join(parent, name)
            if (only_suffix is None or name.endswith(only_suffix)) and not name.endswith(".ags1-tmp") and _is_data(path):
                found.append(path)
    return found


def _is_data(path: str) -> bool:
    """Whether a file is none of a FIFO, a socket or a device: opening one found in a tree could wait for ever."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        # A dangling link, say, is no reason to leave it out in silence.
        return True


def pair_up(options: argparse.Namespace, *, encrypting: bool) -> list[tuple[str, str]]:
    """Pair every source with its target.

    Raises
    ------
    UsageError
        No source, many sources for one file, two sources for one target.
    """
    patterns = list(options.sources)
    if options.files_from:
        patterns += _read_list(options.files_from)
    if not patterns:
        raise UsageError("a SOURCE is needed before the TARGET (`-` for standard input)")
    target = options.target
    sources = expand(patterns, only_suffix=None if encrypting else SUFFIX)
    from_tree = any(os.path.isdir(pattern) for pattern in patterns)
    into_directory = target != STANDARD and "://" not in target and (os.path.isdir(target) or target.endswith(_SEPARATORS))
    if not into_directory and (len(sources) > 1 or from_tree):
        if target == STANDARD or (os.path.lexists(target) and not os.path.isdir(target)) or "://" in target:
            raise UsageError(f"{len(sources)} sources cannot go into one target: give a directory instead of {target}")
        into_directory = True
    if not into_directory:
        return [(sources[0], target)]
    pairs: dict[str, str] = {}
    for source in sources:
        if source == STANDARD:
            raise UsageError("standard input has no name: give a file as the TARGET")
        path = os.path.join(target, _name_below(source, patterns))
        path = path + SUFFIX if encrypting else path.removesuffix(SUFFIX)
        if path in pairs:
            raise UsageError(f"{pairs[path]} and {source} would both become {path}: use two directories")
        pairs[path] = source
    for path in pairs:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    return [(source, path) for path, source in pairs.items()]


def _name_below(source: str, patterns: list[str]) -> str:
    """Path of a source below the directory that it was found in, else its base name."""
    for pattern in patterns:
        if os.path.isdir(pattern) and source.startswith(os.path.join(pattern, "")):
            return os.path.relpath(source, pattern)
    return os.path.basename(source)


def _read_list(path: str) -> list[str]:
    lines = sys.stdin.read().splitlines() if path == STANDARD else _lines_of(path)
    return [line for line in (line.strip() for line in lines) if line and not line.startswith("#")]


def _lines_of(path: str) -> list[str]:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read().splitlines()


def size_of(path: str) -> int | None:
    """Bytes of a local file, None for anything else."""
    try:
        return os.stat(path).st_size if path != STANDARD and "://" not in path else None
    except OSError:
        return None
