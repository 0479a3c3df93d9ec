"""gzip, unpacked a piece at a time: what is in memory depends neither on the file nor on how much it unpacks to."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

from ags1.errors import Ags1Error, FormatError, TruncatedError

__all__ = ["Gunzip", "is_gzip"]

_MAGIC = b"\x1f\x8b"


def is_gzip(name: str) -> bool:
    """Whether the name of a file says that its text is compressed, also in front of the ending of AGS1 files."""
    return name.lower().removesuffix(".ags1").endswith(".gz")


class Gunzip:
    """The text of a gzip file, from its beginning on. Members follow each other, zeros may follow the last one.

    The reader has the compressed plaintext. It is read to its end, so that all of it is authentic.
    """

    def __init__(self, reader: Any, name: str) -> None:
        self._reader = reader
        self.name = name
        reader.seek(0)
        self._file = gzip.GzipFile(fileobj=reader, mode="rb")

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, fewer only at the end."""
        reader = self._reader
        if reader.size == 0:
            # It has a tag all the same.
            reader.pread(0, 1)
        try:
            return self._file.read(size)
        except Ags1Error:
            # Of the reader; those too that are an EOFError.
            raise
        except EOFError:
            raise self._truncated() from None
        except (gzip.BadGzipFile, zlib.error) as error:
            if not str(error).startswith("Not a gzipped file"):
                raise FormatError(
                    f"{self.name}: its gzip data is damaged near byte {reader.tell()} ({error}). What is encrypted is "
                    "authentic, so it was damaged before that"
                ) from None
            if reader.size == 1 and _MAGIC.startswith(reader.pread(0, 1)):
                raise self._truncated() from None
            is_begun = reader.pread(0, len(_MAGIC)) == _MAGIC
            what = "what follows its gzip data is none" if is_begun else "this is no gzip file"
            raise FormatError(
                f"{self.name}: {what}, though its name ends in .gz: rename it, leave it out with the option exclude, "
                "or read it with decode=binary"
            ) from None

    def _truncated(self) -> TruncatedError:
        what = f"{self.name}: the gzip file ends inside its data, after {self._reader.size} bytes: "
        if self._reader.length_trusted:
            return TruncatedError(f"{what}all that was encrypted is there, so it was not complete then")
        why = "it was not complete when it was encrypted, or it was cut since: its length is not trusted"
        return TruncatedError(what + why)
