"""The key material file beside a Parquet file: its path, and how it is read and changed.

DIRECTORY/NAME    DIRECTORY/_KEY_MATERIAL_FOR_NAME.json

Two files cannot be replaced at once. So while a Parquet file is replaced, the key material file has the entries of the
old file and of the new one, under different names:

    {old}  -->  {old, new}  -->  the Parquet file is replaced  -->  {new}

Whatever ends the work, the file that is there can be read. The next writer drops what is left.
"""

from __future__ import annotations

import errno
import os

from ags1.errors import FormatError, KeyAccessError
from ags1.parquet.keys.material import encode_entries, parse_entries
from ags1.storage import Location, is_directory, is_url, list_files, open_output, read_whole, status
from ags1.support.typing import Any
from ags1.support.words import LINK

_PREFIX = "_KEY_MATERIAL_FOR_"
_SUFFIX = ".json"
# Enough for 32,767 columns, each with material twenty times as long as usual.
_LONGEST = 256 << 20


def key_material_path(source: str | os.PathLike[str]) -> str:
    """Path or URL of the key material file of a Parquet file."""
    text = os.fspath(source)
    # An fsspec URL may be a chain; its last part is the file name, as in a path.
    separators = "/" if is_url(text) or os.altsep is None else "/" + os.sep
    cut = max(text.rfind(each) for each in separators) + 1
    if not text[cut:]:
        raise ValueError(f"{text!r} names no file")
    return f"{text[:cut]}{_PREFIX}{text[cut:]}{_SUFFIX}"


def is_key_material_name(path: str) -> bool:
    """Whether a path is that of a key material file."""
    name = path.replace(os.sep, "/").rpartition("/")[2]
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX) and len(name) > len(_PREFIX) + len(_SUFFIX)


def key_material_location(source: Location) -> Location:
    """Location of the key material file of a Parquet file, reached as that is."""
    beside = Location(key_material_path(source.text), source.storage_options)
    return beside if source.root is None else source.beside(beside.name)


def read_key_material(source: Any) -> bytes:
    """The key material file of a Parquet file, read with the options of a Location, or a file object's file system.

    KeyAccessError: there is none. FormatError: it is too long.
    """
    file_system = getattr(source, "fs", None)
    try:
        if file_system is None:
            beside = key_material_location(Location(source))
            path = beside.text
            return read_key_material_file(beside)
        path = key_material_path(source.path)
        with file_system.open(path, "rb") as file:
            data: bytes = file.read(_LONGEST + 1)
    except FileNotFoundError:
        raise KeyAccessError(
            f"its key material is stored beside it, and there is no file {path}: it was lost, or not moved together "
            "with the Parquet file"
        ) from None
    if len(data) > _LONGEST:
        raise _too_long(path)
    return data


def read_key_material_file(place: Location) -> bytes:
    """The contents of a key material file."""
    try:
        return bytes(memoryview(read_whole(place, _LONGEST)))
    except FormatError:
        raise _too_long(place.shown) from None


def _too_long(path: str) -> FormatError:
    return FormatError(f"{path} is longer than {_LONGEST} bytes, the limit for key material")


def key_material_entries(source: Location) -> dict[str, str]:
    """The entries of the key material file of a Parquet file, by name; none if there is no such file.

    FormatError: the file is something else.
    """
    beside = key_material_location(source)
    try:
        return parse_entries(read_key_material_file(beside))
    except FileNotFoundError:
        return {}
    except FormatError as error:
        raise FormatError(f"{beside}: {error}") from None


def add_key_material(source: Location, new: dict[str, str]) -> None:
    """Add the entries of a Parquet file that will replace `source`; those of the old file stay."""
    entries = key_material_entries(source)
    if not new.keys().isdisjoint(entries):
        text = "has keys of another process that writes the same file now; nothing was replaced: try again"
        raise OSError(errno.EBUSY, text, key_material_location(source).shown)
    write_key_material_file(key_material_location(source), encode_entries(entries | new))


def drop_key_material(source: Location, replaced: frozenset[str], new: dict[str, str]) -> None:
    """Drop the `replaced` entries. Those of the new file are there afterwards, even if another writer dropped them.

    FileExistsError: another writer has put its own in their place, and maybe its file; nothing was changed.
    """
    entries = key_material_entries(source)
    if any(entries.get(name, text) != text for name, text in new.items()):
        text = "another process has written this file and its keys at the same moment: write it again"
        raise FileExistsError(errno.EEXIST, text, source.shown)
    kept = {name: text for name, text in entries.items() if name not in replaced} | new
    if kept != entries:
        write_key_material_file(key_material_location(source), encode_entries(kept))


def write_key_material_file(place: Location, data: bytes) -> None:
    """Replace a key material file, whole or not at all; local files survive a power cut.

    Remote file systems replace it as atomically as they can: S3, GCS and Azure publish an object when it is
    complete.
    """
    with open_output(place) as output:
        output.write(data)
        output.commit(durable=True)


def find_key_material(where: Location, *, recursive: bool) -> list[Location]:
    """The key material files of a location, which is a directory, a key material file, or a Parquet file.

    OSError: there is none, or a directory cannot be listed. A directory is never skipped, because its files would keep
    the old master key unnoticed.
    """
    if not is_directory(where):
        one = where if is_key_material_name(where.text) else key_material_location(where)
        try:
            status(one)
        except FileNotFoundError:
            raise FileNotFoundError(
                2, "there is no such key material file, nor a directory of that name", one.text
            ) from None
        return [one]

    def refuse(name: str) -> None:
        place = where.join(name)
        if is_key_material_name(name) or is_directory(place):
            text = f"{LINK}, so its keys would stay as they are: replace it by what it leads to"
            raise OSError(errno.ENOTDIR, text, place.shown)

    return [
        where.as_root().join(each.name)
        for each in list_files(where, on_link=refuse if recursive else None)
        if is_key_material_name(each.name) and (recursive or "/" not in each.name)
    ]
