"""Authenticate every block of an AGS1 file without keeping its plaintext, and report the blocks that fail."""

from __future__ import annotations

from dataclasses import dataclass, field

from ags1 import layout
from ags1.errors import AuthenticationError
from ags1.streams.opening import open
from ags1.support.reports import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.core.typing import KeyLike
    from ags1.keys import KeyMetadata
    from ags1.streams.files import Progress
    from ags1.support.typing import Buffer

_WINDOW_BYTES = 16 << 20
_REPORTED = 1000


@dataclass(frozen=True)
class StreamVerifyReport(Report):
    """The result of :func:`verify_file`.

    Attributes
    ----------
    block_count, block_length, plaintext_length, encrypted_length : int
        Layout of the stream; lengths in bytes.
    failed_blocks : list of int
        Indices of the blocks whose tags did not verify, ascending; at most the first thousand.
    failed_count : int
        Number of all blocks that failed.
    length_trusted : bool
        Whether a trusted length was given. Without it, blocks missing at the end cannot be detected.
    """

    block_count: int
    block_length: int
    plaintext_length: int
    encrypted_length: int
    length_trusted: bool
    failed_blocks: list[int] = field(default_factory=list)
    failed_count: int = 0

    @property
    def ok(self) -> bool:
        """Whether every block authenticated."""
        return self.failed_count == 0


def verify_file(
    source: Any,
    key: KeyLike | None = None,
    *,
    key_metadata: KeyMetadata | Buffer | None = None,
    aad_prefix: Buffer = b"",
    length: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> StreamVerifyReport:
    """Authenticate every block of a stream.

    No plaintext is returned: it is decrypted into one buffer that is overwritten.

    Parameters
    ----------
    source : path, URL, seekable file object or buffer
        The stream.
    key, key_metadata, aad_prefix, length, threads
        As :func:`ags1.open`.
    progress : callable, optional
        Called as ``progress(done, total)`` with bytes of plaintext.

    Returns
    -------
    StreamVerifyReport
        Unlike reading, verifying continues after a block that fails, so that the report has all of them.

    Raises
    ------
    FormatError, TruncatedError
        Not AGS1, a bad header, or a length that does not agree.
    OSError
        Reading failed.
    ValueError
        The source is a pipe: it cannot be read again after verification.
    """
    with open(
        source, key=key, key_metadata=key_metadata, aad_prefix=aad_prefix, length=length, threads=threads
    ) as reader:
        plaintext = reader._plaintext
        if plaintext is None:
            raise ValueError("a pipe cannot be verified: give a file, or decrypt the pipe to /dev/null")
        block_length, size = plaintext.block_length, plaintext.size
        count = layout.block_count(size, block_length)
        window = max(1, _WINDOW_BYTES // block_length)
        memory = memoryview(bytearray(min(size, window * block_length)))
        failed: list[int] = []
        failures = 0
        start, run, told = 0, window, 0
        if progress is not None:
            progress(0, size)
        while start < count:
            end = min(start + run, count)
            offset, stop = start * block_length, min(end * block_length, size)
            bad = _first_failure(plaintext, start, memory[: stop - offset])
            if bad is None:
                # Grow again, so that scattered damage does not keep the windows small.
                start, run = end, min(2 * run, window)
            else:
                failures += 1
                if len(failed) < _REPORTED:
                    failed.append(bad)
                # Blocks before it were verified, blocks after it not. The next ones may fail too, and each
                # failure costs a pass over the whole run: so go one by one.
                start, run = bad + 1, 1
            if progress is not None and (start - told >= window or start == count):
                told = start
                progress(min(start * block_length, size), size)
        return StreamVerifyReport(
            block_count=count,
            block_length=block_length,
            plaintext_length=size,
            encrypted_length=plaintext.encrypted_length,
            length_trusted=plaintext.length_trusted,
            failed_blocks=failed,
            failed_count=failures,
        )


def cause_of(report: StreamVerifyReport) -> str:
    """What the blocks that failed tell of the cause."""
    if report.failed_count == report.block_count:
        cut = ", truncated" if report.block_count == 1 and not report.length_trusted else ""
        return f"wrong key, wrong AAD prefix, another file in its place{cut}, or damaged data"
    # A whole last block was not cut.
    is_short = report.plaintext_length % report.block_length
    if report.failed_blocks == [report.block_count - 1] and is_short and not report.length_trusted:
        return "truncated inside the last block, or that block is damaged"
    return "damaged, swapped, repeated or missing data"


def _first_failure(plaintext: Any, first: int, out: memoryview) -> int | None:
    """Authenticate the blocks from `first` that fill `out`; return the first that fails."""
    try:
        plaintext.open_whole(first, out)
    except AuthenticationError as error:
        found: int | None = error.block_index
        if found is None:
            raise
        return found
    return None
