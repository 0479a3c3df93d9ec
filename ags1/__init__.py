"""Encrypt and decrypt data-lake files at the speed of OpenSSL: AES GCM Stream (AGS1) and Iceberg's keys.

>>> import ags1
>>> key = ags1.Key.generate()
>>> stream = ags1.encrypt(b"hello", key)
>>> ags1.decrypt(stream, key)
b'hello'

Importing this package loads the codec and the keys. Everything else (streams, files, arrow, avro, the command line) is
imported on first use; if a dependency is missing, the error names the extra to install.
"""

from __future__ import annotations

import importlib
import os

import ags1.support.interrupts  # noqa: F401  imported before all that takes time
from ags1 import layout
from ags1.codec import Batch, NumberedPrefixes, decrypt, decrypt_into, decrypt_many, encrypt, encrypt_into, encrypt_many
from ags1.errors import (
    Ags1Error,
    AlreadyEncryptedError,
    AuthenticationError,
    BackendError,
    ConflictError,
    FormatError,
    KeyAccessError,
    LimitError,
    TruncatedError,
    UnsupportedError,
)
from ags1.keys import Key, KeyMetadata
from ags1.layout import encrypted_length, plaintext_length, split_offsets
from ags1.version import version as __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1 import arrow as arrow
    from ags1 import avro as avro
    from ags1 import bench as bench
    from ags1 import dataset as dataset
    from ags1 import fs as fs
    from ags1 import iceberg as iceberg
    from ags1 import kms as kms
    from ags1 import parquet as parquet
    from ags1.core.backend import backend
    from ags1.streams.files import decrypt_file, encrypt_file
    from ags1.streams.opening import open
    from ags1.streams.stream import Reader, Writer
    from ags1.streams.verify import verify_file
    from ags1.support.reports import Finding, FindingsReport, VerifyReport

__all__ = [
    "Ags1Error",
    "AlreadyEncryptedError",
    "AuthenticationError",
    "BackendError",
    "Batch",
    "ConflictError",
    "Finding",
    "FindingsReport",
    "FormatError",
    "Key",
    "KeyAccessError",
    "KeyMetadata",
    "LimitError",
    "NumberedPrefixes",
    "Reader",
    "TruncatedError",
    "UnsupportedError",
    "VerifyReport",
    "Writer",
    "__version__",
    "backend",
    "decrypt",
    "decrypt_file",
    "decrypt_into",
    "decrypt_many",
    "encrypt",
    "encrypt_file",
    "encrypt_into",
    "encrypt_many",
    "encrypted_length",
    "get_include",
    "layout",
    "open",
    "plaintext_length",
    "split_offsets",
    "verify_file",
]

_LAZY_MODULES = ("arrow", "audit", "avro", "bench", "dataset", "fs", "iceberg", "kms", "parquet", "spark", "streams")
_NEEDS = {"arrow": ("pyarrow",), "fs": ("fsspec",), "spark": ("pyspark", "pyarrow", "pandas")}
_LAZY_NAMES = {
    "Finding": "ags1.support.reports",
    "FindingsReport": "ags1.support.reports",
    "Reader": "ags1.streams.stream",
    "VerifyReport": "ags1.support.reports",
    "Writer": "ags1.streams.stream",
    "backend": "ags1.core.backend",
    "decrypt_file": "ags1.streams.files",
    "encrypt_file": "ags1.streams.files",
    "open": "ags1.streams.opening",
    "verify_file": "ags1.streams.verify",
}


def get_include() -> str:
    """Directory of the C and Cython contract: an include path for compilers, an ``include_path`` for Cython."""
    here = os.path.dirname(os.path.abspath(__file__))
    installed = os.path.join(here, "include")
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(here), "include")


def __getattr__(name: str) -> Any:
    if name in _LAZY_MODULES:
        return importlib.import_module(f"ags1.{name}")
    if name in _LAZY_NAMES:
        value = getattr(importlib.import_module(_LAZY_NAMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'ags1' has no attribute {name!r}")


def __dir__() -> list[str]:
    from ags1.support.lazy import can_import

    # help() and inspect.getmembers get every name that is listed.
    return sorted([*__all__, *(name for name in _LAZY_MODULES if can_import(*_NEEDS.get(name, ())))])
