"""Authenticate every block of an AGS1 file without keeping its plaintext, and report the blocks that fail."""

from __future__ import annotations

from ags1 import layout
from ags1.errors import AuthenticationError
from ags1.streams.opening import open
from ags1.support.reports import DAMAGED, ERROR, NOT_PROTECTED, WARNING, Finding, VerifyReport
from ags1.support.words import listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.core.typing import KeyLike
    from ags1.keys import KeyMetadata
    from ags1.streams.files import Progress
    from ags1.support.typing import Buffer

_WINDOW_BYTES = 16 << 20
# Blocks that failed: those that are kept, and the runs of them in a message.
_KEPT = 1000
_LISTED = 20


def verify_file(
    source: Any,
    key: KeyLike | None = None,
    *,
    key_metadata: KeyMetadata | Buffer | None = None,
    aad_prefix: Buffer = b"",
    length: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
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
    VerifyReport
        Unlike reading, verifying continues after a block that fails, so that the report has all of them.
        `checked` has "blocks" and "bytes". `facts` has "blocks", all of them, "block_length", "plaintext_length",
        "encrypted_length" and "length_trusted".

        The codes: "damaged", with the `details` "blocks", the indices of the first thousand blocks that failed,
        ascending, and "failed", the number of all; "untrusted-length", a warning: without a trusted length, blocks
        missing at the end cannot be detected.

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
                if len(failed) < _KEPT:
                    failed.append(bad)
                # Blocks before it were verified, blocks after it not. The next ones may fail too, and each
                # failure costs a pass over the whole run: so go one by one.
                start, run = bad + 1, 1
            if progress is not None and (start - told >= window or start == count):
                told = start
                progress(min(start * block_length, size), size)
        stored, trusted = plaintext.encrypted_length, plaintext.length_trusted
        report = VerifyReport(plaintext.source.name or "the stream")
    report.checked = {"blocks": count - failures, "bytes": stored}
    report.facts = {
        "blocks": count,
        "block_length": block_length,
        "plaintext_length": size,
        "encrypted_length": stored,
        "length_trusted": trusted,
    }
    if failures:
        text = f"{report.subject}: {_failure(failed, failures, report.facts)}"
        report.add(Finding(ERROR, "damaged", report.subject, text, DAMAGED, {"blocks": failed, "failed": failures}))
    if not trusted:
        text = f"{report.subject}: no trusted length was given, so blocks missing at the end are not detected"
        report.add(Finding(WARNING, "untrusted-length", report.subject, text, NOT_PROTECTED))
    return report


def _failure(failed: list[int], count: int, facts: dict[str, Any]) -> str:
    """Which blocks failed, and what that tells of the cause."""
    blocks = facts["blocks"]
    if count == blocks:
        which = "its only block is not" if blocks == 1 else f"none of its {blocks:,} blocks is"
        cut = ", truncated" if blocks == 1 and not facts["length_trusted"] else ""
        return f"{which} authentic: wrong key, wrong AAD prefix, another file in its place{cut}, or damaged data"
    cause = "damaged, swapped, repeated or missing data"
    # A whole last block was not cut.
    if failed == [blocks - 1] and facts["plaintext_length"] % facts["block_length"] and not facts["length_trusted"]:
        cause = "truncated inside the last block, or that block is damaged"
    which = listed(_runs(failed), _LISTED)
    return f"{count:,} of {blocks:,} blocks failed authentication ({cause}): block {which}"


def _runs(blocks: list[int]) -> list[str]:
    """Neighbours in one: [1, 2, 3, 7] is ["1-3", "7"]."""
    runs: list[list[int]] = []
    for block in blocks:
        if runs and runs[-1][1] == block - 1:
            runs[-1][1] = block
        else:
            runs.append([block, block])
    return [str(first) if first == last else f"{first}-{last}" for first, last in runs]


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
