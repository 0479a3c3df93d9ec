"""The file beside a Parquet file in which its key material is stored: where it lies, reading and replacing it.

DIRECTORY/NAME    DIRECTORY/_KEY_MATERIAL_FOR_NAME.json
"""

from __future__ import annotations

import os

from ags1.errors import FormatError, KeyAccessError
from ags1.storage import Location, file_system_of, is_url, open_output, read_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "find_key_material",
    "is_key_material_name",
    "key_material_path",
    "read_key_material",
    "read_key_material_file",
    "write_key_material_file",
]

_PREFIX = "_KEY_MATERIAL_FOR_"
_SUFFIX = ".json"
# 32,767 columns, each with material twenty times as long as usual.
_LONGEST = 256 << 20


def key_material_path(source: str | os.PathLike[str]) -> str:
    """Path or URL of the key material file of a Parquet file."""
    text = os.fspath(source)
    # A URL of fsspec may chain several; the last part of it is the file, as in a path.
    separators = "/" if is_url(text) or os.altsep is None else "/" + os.sep
    cut = max(text.rfind(each) for each in separators) + 1
    if not text[cut:]:
        raise ValueError(f"{text!r} names no file")
    return f"{text[:cut]}{_PREFIX}{text[cut:]}{_SUFFIX}"


def is_key_material_name(path: str) -> bool:
    """Whether a path is that of a key material file."""
    name = path.replace(os.sep, "/").rpartition("/")[2]
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX) and len(name) > len(_PREFIX) + len(_SUFFIX)


def read_key_material(source: Any) -> bytes:
    """The key material file of a Parquet file.

    Parameters
    ----------
    source : path, URL, Location or file object of an fsspec file system
        The Parquet file. The options of a Location, or the file system of a file object, are what its key material is
        read with.

    Raises
    ------
    KeyAccessError
        There is none.
    FormatError
        It is far too long for one.
    """
    file_system = getattr(source, "fs", None)
    given = source.text if isinstance(source, Location) else source if file_system is None else source.path
    path = key_material_path(given)
    options = source.storage_options if isinstance(source, Location) else None
    try:
        return read_key_material_file(path, file_system, options)
    except FileNotFoundError:
        raise KeyAccessError(
            f"its key material is stored outside of it, and there is no file {path}: it was lost, or not moved "
            "together with the Parquet file"
        ) from None


def read_key_material_file(path: str, file_system: Any = None, storage_options: Any = None) -> bytes:
    """The contents of a key material file, in a given fsspec file system or by path or URL."""
    if file_system is None:
        try:
            return bytes(memoryview(read_whole(Location(path, storage_options), _LONGEST)))
        except FormatError:
            raise _too_long(path) from None
    with file_system.open(path, "rb") as file:
        data: bytes = file.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise _too_long(path)
    return data


def _too_long(path: str) -> FormatError:
    return FormatError(f"{path} is longer than {_LONGEST} bytes, which no key material is")


def write_key_material_file(path: str, data: bytes) -> None:
    """Replace a key material file, whole or not at all; local files survive a power cut.

    On a remote file system it is replaced as atomically as that can: S3, GCS and Azure publish an object when it is
    complete.
    """
    with open_output(path) as output:
        output.write(data)
        output.commit(durable=True)


def find_key_material(where: str, *, recursive: bool) -> list[str]:
    """Paths of the key material files that a path or URL means: those in a directory, one itself, or a Parquet file's.

    Raises
    ------
    FileNotFoundError
        There is no such directory or file.
    """
    if is_url(where) and not where.startswith("file://"):
        return _find_remote(where, recursive=recursive)
    path = where.removeprefix("file://")
    if not os.path.isdir(path):
        one = path if is_key_material_name(path) else key_material_path(path)
        if not os.path.exists(one):
            raise FileNotFoundError(2, "there is no such key material file, nor a directory of that name", one)
        return [one]
    found = []

    def stop(error: OSError) -> None:
        # A directory that was passed over would keep its old master key unnoticed.
        raise error

    for directory, directories, names in os.walk(path, onerror=stop):
        directories[:] = sorted(directories) if recursive else []
        found += [os.path.join(directory, name) for name in sorted(names) if is_key_material_name(name)]
    return found


def _find_remote(url: str, *, recursive: bool) -> list[str]:
    file_system, path = file_system_of(Location(url))
    if not file_system.isdir(path):
        one = url if is_key_material_name(url) else key_material_path(url)
        if not file_system.exists(file_system_of(Location(one))[1]):
            raise FileNotFoundError(2, "there is no such key material file, nor a directory of that name", one)
        return [one]
    names = file_system.find(path, maxdepth=None if recursive else 1)
    return [file_system.unstrip_protocol(name) for name in sorted(names) if is_key_material_name(name)]
