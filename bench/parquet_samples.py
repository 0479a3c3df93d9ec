"""The sample files of a run: each made, copied or encrypted when a question first asks for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import ags1
from ags1 import parquet
from bench import floors, parquet_files, settings
from bench.settings import GIB

KEY = bytes(range(32))
OTHER_KEY = bytes(range(1, 33))
# Uniform encryption: all that PyArrow's own direct keys can do.
ENCRYPTION = parquet.EncryptionConfig(KEY)
DECRYPTION = parquet.DecryptionConfig(KEY)


class Samples:
    """Sample files in the directory of a run; plain ones come from the cache, where they are kept between runs.

    Parameters
    ----------
    directory
        Where sources and targets lie, on the file system that is measured.
    nbytes
        Bytes of a plaintext file.
    """

    def __init__(self, directory: Path, nbytes: int) -> None:
        self._directory = directory
        self._nbytes = nbytes

    def plain(self, variant: str) -> Path:
        """The file as PyArrow wrote it."""
        cache = floors.cache_directory()
        return self._made(
            f"plain-{variant}.parquet",
            lambda path: shutil.copyfile(parquet_files.cached(self._nbytes, variant, cache), path),
        )

    def encrypted(self, variant: str) -> Path:
        """The same, encrypted with KEY throughout."""
        source = self.plain(variant)
        return self._made(f"encrypted-{variant}.parquet", lambda path: parquet.encrypt_file(source, path, ENCRYPTION))

    def blocks(self, variant: str) -> Path:
        """The bytes of the plaintext file as an AGS1 stream under KEY: what the C loop decrypts."""
        source = self.plain(variant)
        return self._made(f"blocks-{variant}.ags1", lambda path: ags1.encrypt_file(source, path, KEY))

    def _made(self, name: str, make: Callable[[Path], object]) -> Path:
        path = self._directory / name
        if not path.exists():
            make(path)
            os.sync()
        return path


def away(path: Path) -> Callable[[], None]:
    """What removes an output and waits for the disk."""

    def remove() -> None:
        path.unlink(missing_ok=True)
        os.sync()

    return remove


def size_name(nbytes: int) -> str:
    """A size in words, for sizes that are only nearly round."""
    return f"{nbytes / GIB:.2g} GiB" if nbytes >= GIB // 2 else f"{round(nbytes / settings.MIB)} MiB"
