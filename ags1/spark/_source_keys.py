"""Keys of plain AGS1 files, by reference: ``env:NAME`` or ``file:PATH``. They are read where they are used.

env:NAME      an environment variable of the executors: the key in hexadecimal or base64
file:PATH     a key file as ``ags1 keygen`` makes it, or key metadata; on every executor
file:DIR      a directory with NAME.key-metadata for each file, as ``ags1 encrypt --key-metadata-out`` makes it
"""

from __future__ import annotations

import os

from ags1._gcm import Key
from ags1._key_files import from_base64, from_hex, parse_key, read_key_file
from ags1._metadata_files import SUFFIX, decode_metadata, metadata_beside, text_of_prefix
from ags1.errors import KeyAccessError
from ags1.keys import KeyMetadata
from ags1.spark._source_options import SourceOptions

__all__ = ["FileKeys"]

_SIZES = (16, 24, 32)


class FileKeys:
    """The keys that a reference names, each read once. Holds keys: it cannot be pickled."""

    def __init__(self, options: SourceOptions) -> None:
        self._kind, _, self._where = options.keyref.partition(":")
        self._options = options
        self._found: KeyMetadata | None = None

    @property
    def several(self) -> bool:
        """Whether each file has key metadata of its own."""
        return self._kind == "file" and os.path.isdir(self._where)

    def metadata_for(self, path: str, name: str) -> KeyMetadata:
        """Key, AAD prefix and, if somebody recorded it, length of a file, whose name is below the given directory.

        No message shows what a variable or a file holds.
        """
        if self.several:
            return decode_metadata(_read(metadata_beside(self._where, path, name)), path)
        if self._found is None:
            self._found = self._load()
        found = self._found
        if found.aad_prefix is None and (self._options.aad_prefix or self._options.aad_prefix_hex):
            return KeyMetadata(found.encryption_key, self._aad_prefix(name), found.file_length)
        return found

    def _load(self) -> KeyMetadata:
        if self._kind == "env":
            text = os.environ.get(self._where)
            where = f"the environment variable {_name(self._where)}"
            if text is None:
                raise KeyAccessError(f"{where} is not set in this process: executors need it too, or use keyref=file:")
            return _parsed(text.encode("utf-8", "surrogateescape"), where, raw=False)
        return _parsed(_read(self._where), self._where, raw=True)

    def _aad_prefix(self, name: str) -> bytes:
        if self._options.aad_prefix_hex:
            return bytes.fromhex(self._options.aad_prefix_hex)
        return os.fsencode(text_of_prefix(self._options.aad_prefix, name.removesuffix(SUFFIX)))

    def __repr__(self) -> str:
        return "<ags1.spark.FileKeys, redacted>"

    def __reduce__(self) -> str:
        raise TypeError("keys cannot be pickled: they are read where they are used")


def _name(text: str) -> str:
    """The name of a variable for a message; whoever gave the key itself does not get it repeated."""
    return text if text.isidentifier() and len(text) not in (32, 48, 64) else "of this name"


def _read(path: str) -> bytes:
    try:
        return read_key_file(path)[0]
    except KeyAccessError as error:
        raise KeyAccessError(f"{error}; every executor needs it under this path") from None


def _parsed(data: bytes, where: str, *, raw: bool) -> KeyMetadata:
    """A key in raw bytes, hexadecimal or base64, or key metadata in any of them."""
    text = data.strip()
    for each in (data if raw else b"", from_hex(text) or b"", from_base64(text) or b""):
        if each.startswith(b"\x01") and len(each) not in _SIZES:
            return decode_metadata(each, where)
    # Here nobody reads warnings of bytes that could be text too.
    return KeyMetadata(Key(parse_key(data, where, raw=raw, note=lambda remark: None)))
