"""Entries of a manifest: a file, the objects that hold it and the identity of its source; or a directory.

entry   path, mode, version, identity of the source
  part  object name, plaintext length, key metadata sealed under the dataset's key       one, or many for a big file

A directory has a path that ends in "/", and no part.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field, replace

from ags1.dataset.names import check_entry_path, check_path, sort_key
from ags1.errors import FormatError
from ags1.layout import encrypted_length
from ags1.support.typing import Any


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """Length, times, inode and etag of a source when it was read. A source with an equal identity is unchanged.

    Only if it `is_known`: where a server tells neither an etag nor a time, an equal length says nothing. Times are in
    nanoseconds, 0 if unknown. `ctime_ns` and `inode` are 0 except for local files; `etag` is "" except for objects.
    """

    size: int
    mtime_ns: int = 0
    ctime_ns: int = 0
    inode: int = 0
    etag: str = ""

    @property
    def is_known(self) -> bool:
        """Whether it tells one content from another."""
        return bool(self.etag or self.mtime_ns)

    def to_json(self) -> list[Any]:
        """The form in a manifest."""
        return [self.size, self.mtime_ns, self.ctime_ns, self.inode, self.etag]

    @classmethod
    def from_json(cls, fields: Any) -> SourceIdentity:
        """Read that form. ValueError, TypeError: it is not valid."""
        size, mtime_ns, ctime_ns, inode, etag = fields
        if not all(type(each) is int for each in (size, mtime_ns, ctime_ns, inode)) or not isinstance(etag, str):
            raise TypeError("not the identity of a source")
        if abs(mtime_ns) >> 90:
            raise ValueError("no file system has this time")
        return cls(size, mtime_ns, ctime_ns, inode, etag)


@dataclass(frozen=True, slots=True)
class Part:
    """One object of a file: a whole AGS1 stream of blocks of 1 MiB, under a name relative to the dataset.

    `sealed_key` is its key metadata, sealed by :class:`ags1.dataset.keys.DatasetKeys`.
    """

    name: str
    plaintext_length: int
    sealed_key: bytes = field(repr=False)

    @property
    def file_length(self) -> int:
        """Bytes of the encrypted object."""
        return encrypted_length(self.plaintext_length)


@dataclass(frozen=True, slots=True)
class DatasetEntry:
    """One file of a dataset, or a directory. Its keys are sealed, so it can be pickled and shown.

    Attributes
    ----------
    path : str
        Relative to the dataset, with ``/``; that of a directory ends in ``/``. Bytes that are not UTF-8 are
        surrogates, as in :func:`os.fsdecode`.
    parts : tuple of Part
        The objects that hold it, in the order of the plaintext; at least one for a file, none for a directory.
    version : int
        Version of the dataset in which the file was added or last changed.
    source : SourceIdentity or None
        Identity of the source file; None if a program wrote the data. Of an empty directory, it has the time only; any
        other directory has none.
    mode : int or None
        Permission bits of the source.
    """

    path: str
    parts: tuple[Part, ...]
    version: int
    source: SourceIdentity | None = None
    mode: int | None = None

    @classmethod
    def of_directory(cls, path: str, mtime_ns: int, version: int, mode: int | None = None) -> DatasetEntry:
        """The entry of a directory; its path ends in ``/``. `mtime_ns` is 0 if it is not empty."""
        return cls(path, (), version, SourceIdentity(0, mtime_ns) if mtime_ns else None, mode)

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory, and no file."""
        return self.path.endswith("/")

    def is_same_file(self, other: DatasetEntry | None) -> bool:
        """Whether the other entry differs at most in the version, as after a removal and a restore."""
        return other is not None and replace(self, version=other.version) == other

    @property
    def key(self) -> bytes:
        """The sort key of entries."""
        return sort_key(self.path)

    @property
    def modified_ns(self) -> int | None:
        """When the source was last changed, in nanoseconds since 1970; None where that is not known."""
        return None if self.source is None else self.source.mtime_ns or None

    @property
    def plaintext_length(self) -> int:
        """Bytes of plaintext."""
        return sum(part.plaintext_length for part in self.parts)

    @property
    def file_length(self) -> int:
        """Bytes of all objects."""
        return sum(part.file_length for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """The form that it has in a manifest."""
        fields: dict[str, Any] = {
            "path": self.path,
            "parts": [
                [part.name, part.plaintext_length, base64.b64encode(part.sealed_key).decode("ascii")]
                for part in self.parts
            ],
            "version": self.version,
        }
        if self.source is not None:
            fields["source"] = self.source.to_json()
        if self.mode is not None:
            fields["mode"] = self.mode
        return fields

    @classmethod
    def from_json(cls, fields: Any, name: str) -> DatasetEntry:
        """Read that form; `name` is the manifest's, for errors."""
        try:
            parts = tuple(
                Part(check_path(each), length, binascii.a2b_base64(key)) for each, length, key in fields["parts"]
            )
            path, version = fields["path"], fields["version"]
            mode, source = fields.get("mode"), fields.get("source")
            identity = None if source is None else SourceIdentity.from_json(source)
            right = (
                isinstance(path, str)
                and type(version) is int
                and (mode is None or type(mode) is int)
                and (_is_empty(parts, identity) if path.endswith("/") else parts)
                and all(type(part.plaintext_length) is int and part.plaintext_length >= 0 for part in parts)
            )
        except FormatError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
            right = False
        if not right:
            raise FormatError(f"{name}: an entry has a field that is missing or of a wrong type")
        check_entry_path(path)
        return cls(path, parts, version, identity, mode)


def _is_empty(parts: tuple[Part, ...], source: SourceIdentity | None) -> bool:
    """Whether an entry is as one of a directory has to be."""
    return not parts and (source is None or source == SourceIdentity(0, source.mtime_ns))
