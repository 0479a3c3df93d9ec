"""gzip, unpacked a piece at a time: what is in memory depends neither on the file nor on how much it unpacks to."""

from __future__ import annotations

import zlib

from ags1.errors import FormatError, TruncatedError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Gunzip", "is_gzip"]

_READ = 4 << 20
# zlib copies what it has not taken yet whenever it answers, so it gets little at once.
_FED = 32 << 10
_WITH_HEADER_AND_CHECKSUM = 31
_MAGIC = b"\x1f\x8b"


def is_gzip(name: str) -> bool:
    """Whether the name of a file says that its text is compressed, also in front of the ending of AGS1 files."""
    return name.lower().removesuffix(".ags1").endswith(".gz")


class Gunzip:
    """The text of a gzip file, from its beginning on. Members follow each other, zeros may follow the last one.

    Parameters
    ----------
    reader : Reader
        The plaintext, which is compressed. It is read to its end, so that all of it is authentic.
    name : str
        What errors call it.
    """

    def __init__(self, reader: Any, name: str) -> None:
        self._reader = reader
        self.name = name
        self._data = memoryview(b"")
        self._taken = 0
        self._read = 0
        self._member: Any = None

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, fewer also elsewhere than at the end; b"" only there.

        Raises
        ------
        FormatError, TruncatedError
            This is no gzip, is damaged, or ends too early.
        AuthenticationError
            From the reader.
        """
        while True:
            ended = self._taken == len(self._data) and not self._refill()
            if self._member is None and (ended or not self._begin()):
                if ended:
                    return b""
                continue
            # At the end too: what did not fit the last answer may still be in there.
            made = self._unpack(size)
            if made:
                return made
            if ended and self._member is not None:
                raise TruncatedError(
                    f"{self.name}: the gzip file ends inside its data, after {self._read} bytes: "
                    + (
                        "all that was encrypted is there, so it was not complete then"
                        if self._reader.length_trusted
                        else "it was not complete when it was encrypted, or it was cut since, for nobody vouches for "
                        "its length"
                    )
                )

    def _refill(self) -> bool:
        # An empty file has a tag all the same: this looks at it.
        more = self._read == 0 or self._read < self._reader.size
        self._data = memoryview(self._reader.pread(self._read, _READ) if more else b"")
        self._taken = 0
        self._read += len(self._data)
        return len(self._data) > 0

    def _begin(self) -> bool:
        """Whether another member begins here."""
        if self._offset:
            some = bytes(self._data[self._taken : self._taken + _FED])
            zeros = len(some) - len(some.lstrip(b"\0"))
            self._taken += zeros
            if zeros:
                return False
        found = bytes(self._data[self._taken : self._taken + len(_MAGIC)])
        if not _MAGIC.startswith(found):
            what = f"no gzip data follows at byte {self._offset}" if self._offset else "this is no gzip file"
            raise FormatError(
                f"{self.name}: {what}, though its name ends in .gz: rename it, leave it out with the option exclude, "
                "or read it with decode=binary"
            )
        self._member = zlib.decompressobj(_WITH_HEADER_AND_CHECKSUM)
        return True

    @property
    def _offset(self) -> int:
        return self._read - len(self._data) + self._taken

    def _unpack(self, size: int) -> bytes:
        fed = self._data[self._taken : self._taken + _FED]
        try:
            made: bytes = self._member.decompress(fed, size)
        except zlib.error as error:
            raise FormatError(
                f"{self.name}: its gzip data is damaged near byte {self._offset} ({error}). What is "
                "encrypted is authentic, so it was damaged before that"
            ) from None
        ended = self._member.eof
        self._taken += len(fed) - len(self._member.unused_data if ended else self._member.unconsumed_tail)
        if ended:
            self._member = None
        return made
