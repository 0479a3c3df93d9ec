"""Names in a dataset: of files, of the objects that hold them, and of its own control files.

    target/day=1/sales.csv.4f1c2a9be07d-9c41e2f0.ags1      an encrypted file: path, run, and a number of its own
    target/_ags1/v-7.json                                  version 7 (ags1.dataset.versions)
    target/_ags1/manifests/4f1c2a9be07d-01f3a4c2.ags1      a manifest, made by that run (ags1.dataset.manifests)
    target/_ags1/runs/4f1c2a9be07d/...                     the record of an unfinished run (ags1.dataset.runs)

No name is used twice: the id of a run is a random number, and each object has a second one. So no run overwrites an
object of another run, and each name contains the run that made it.
"""

from __future__ import annotations

import re

from ags1.core.gcm import random_bytes
from ags1.errors import FormatError

CONTROL = "_ags1"
"""Directory of the dataset's own objects. No path of a file begins with it."""
MANIFESTS = f"{CONTROL}/manifests"
RUNS = f"{CONTROL}/runs"
MAX_PATH = 4096
"""Bytes of the longest path."""

_MAX_COMPONENT = 255
_ENDING = ".ags1"
_OBJECT = re.compile(r"(?:.*[./])?([0-9a-f]{12})-[0-9a-f]{8}(?:-p[0-9]{5})?\.ags1", re.DOTALL)
_RECORD = re.compile(rf"{RUNS}/([0-9a-f]{{12}})/[\w-]+(?:\.(?:json|sealed))?", re.ASCII)
_VERSION = re.compile(r"v-([1-9][0-9]{0,17})\.json")


def sort_key(path: str) -> bytes:
    """The sort key of a path: its bytes in a file system."""
    return path.encode("utf-8", "surrogateescape")


def check_path(path: str) -> str:
    """Return a path of a file of a dataset: relative, without empty or dot components, not below ``_ags1``.

    FormatError: any other path, because joined to a directory it could lead out of that directory.
    """
    parts = path.split("/")
    if path == "" or "\0" in path or parts[0] == CONTROL or any(part in ("", ".", "..") for part in parts):
        raise FormatError(f"{path!r} is no path that a file of a dataset can have")
    return path


def check_entry_path(path: str) -> bytes:
    """The sort key of the path of an entry: one of :func:`check_path`, or for a directory such a path and one ``/``."""
    check_path(path.removesuffix("/"))
    return sort_key(path)


def check_new_path(path: str) -> None:
    """Raise ValueError unless `path`, of a caller and not of a manifest, is one that :func:`check_path` returns."""
    try:
        check_path(path)
    except FormatError as error:
        text = f"{error}: give a relative one without empty, '.' or '..' parts, not below {CONTROL}"
        raise ValueError(text) from None


def new_run() -> str:
    """The id of a new run, 12 hexadecimal digits."""
    return random_bytes(6).hex()


def new_object_name(path: str, run: str) -> str:
    """A new, unique name for the object that holds a file, relative to the dataset.

    Bytes of the path that are not UTF-8 are written as ``%XX``, because names in object stores are text. Components
    are shortened to 255 bytes. The manifest has the full path.
    """
    directory, _, name = path.rpartition("/")
    behind = f".{run}-{random_bytes(4).hex()}{_ENDING}"
    # Room for the number of a part.
    kept = sort_key(name)[: _MAX_COMPONENT - len(behind) - 7]
    text = _shortened(_escaped(kept.decode("utf-8", "surrogateescape")), _MAX_COMPONENT - len(behind) - 7)
    above = _escaped(directory)
    if above is not directory:
        above = "/".join(_shortened(each, _MAX_COMPONENT) for each in above.split("/"))
    return f"{above}/{text}{behind}" if above else f"{text}{behind}"


def _shortened(text: str, most: int) -> str:
    while len(text.encode()) > most:
        text = text[:-1]
    return text


def _escaped(text: str) -> str:
    if text.isascii():
        return text
    # A lone surrogate is a byte that is not UTF-8, or half of a character that was cut.
    return "".join(f"%{ord(each) - 0xDC00:02X}" if "\udc80" <= each <= "\udcff" else each for each in text)


def part_name(name: str, index: int) -> str:
    """Name of a part of a big file; `name` is that of :func:`new_object_name`."""
    return f"{name.removesuffix(_ENDING)}-p{index:05d}{_ENDING}"


def new_manifest_name(run: str) -> str:
    """A new, unique name for a manifest."""
    return f"{MANIFESTS}/{run}-{random_bytes(4).hex()}{_ENDING}"


def run_of(name: str) -> str | None:
    """The run that made an object, by its name; None if it is not an object of a dataset."""
    found = _OBJECT.fullmatch(name)
    return found[1] if found else None


def record_of(name: str) -> str | None:
    """The run whose record an object belongs to, by its name; None if it belongs to none."""
    found = _RECORD.fullmatch(name)
    return found[1] if found else None


def version_name(number: int) -> str:
    """Name of a version, relative to the dataset."""
    return f"{CONTROL}/v-{number}.json"


def version_number(name: str) -> int | None:
    """The version number in a name of the control directory; None if there is none."""
    found = _VERSION.fullmatch(name)
    return int(found[1]) if found else None
