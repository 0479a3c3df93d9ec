"""``ags1 inspect`` and ``ags1 verify``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

from ags1 import layout
from ags1.cli import EXIT_DATA, EXIT_IO, describe
from ags1.cli._keys import key_metadata_for
from ags1.cli._parser import UsageError
from ags1.cli._paths import STANDARD, expand
from ags1.cli._report import format_bytes, format_rate
from ags1.cli._transfer import UNPROTECTED, work_through
from ags1.errors import Ags1Error, AuthenticationError
from ags1.verify import verify_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["inspect", "verify"]

_SHOWN_BLOCKS = 20


def inspect(options: argparse.Namespace) -> int:
    """Run ``ags1 inspect``."""
    code = 0
    paths = expand(options.files)
    for index, path in enumerate(paths):
        try:
            record = describe_stream(path)
        except OSError as error:
            record = {"file": path, "error": describe(error)}
            code = code or EXIT_IO
        if record.get("problem"):
            code = code or EXIT_DATA
        if options.json:
            import json

            print(json.dumps(record))
        else:
            if index:
                print()
            _print_stream(record)
    return code


def describe_stream(path: str) -> dict[str, Any]:
    """What can be known of a file without a key."""
    head, size = _head_and_size(path)
    record: dict[str, Any] = {"file": path, "encrypted_length": size, "format": None, "problem": None}
    try:
        block_length = layout.read_header(head)
        record.update(format="AGS1", block_length=block_length, iceberg=block_length == layout.DEFAULT_BLOCK_LENGTH)
        plaintext_length = layout.plaintext_length(size, block_length)
    except Ags1Error as error:
        record["problem"] = str(error)
        if record["format"]:
            stride = block_length + layout.BLOCK_OVERHEAD
            record["whole_blocks"] = max(0, size - layout.HEADER_LENGTH) // stride
            record["bytes_behind_them"] = max(0, size - layout.HEADER_LENGTH) % stride
        return record
    blocks = layout.block_count(plaintext_length, block_length)
    record.update(
        plaintext_length=plaintext_length,
        blocks=blocks,
        last_block_length=plaintext_length - (blocks - 1) * block_length,
        overhead=size - plaintext_length,
    )
    return record


def _head_and_size(path: str) -> tuple[bytes, int]:
    if path == STANDARD:
        stream = sys.stdin.buffer
        head = stream.read(16)
        size = len(head)
        while piece := stream.read(1 << 20):
            size += len(piece)
        return head, size
    if "://" in path:
        from ags1._sources import remote_file_system

        file_system, name = remote_file_system(path)
        size = int(file_system.info(name)["size"])
        return file_system.cat_file(name, start=0, end=min(16, size)), size
    with open(path, "rb") as file:
        return file.read(16), os.fstat(file.fileno()).st_size


def _print_stream(record: dict[str, Any]) -> None:
    print(record["file"])
    if record.get("error"):
        print(f"  error             {record['error']}")
        return
    if record["format"] is None:
        print(f"  not AGS1          {record['problem']}")
        print(f"  length            {record['encrypted_length']:,} bytes")
        return
    note = "" if record["iceberg"] else "   (Iceberg reads only 1,048,576)"
    print("  format            AGS1 (AES GCM Stream, version 1)")
    print(f"  encrypted length  {record['encrypted_length']:,} bytes ({format_bytes(record['encrypted_length'])})")
    print(f"  block length      {record['block_length']:,} bytes of plaintext{note}")
    if record["problem"]:
        print(f"  whole blocks      {record['whole_blocks']:,}, and {record['bytes_behind_them']:,} bytes behind them")
        print(f"  problem           {record['problem']}")
        return
    print(f"  blocks            {record['blocks']:,}, the last one with {record['last_block_length']:,} bytes")
    print(f"  plaintext length  {record['plaintext_length']:,} bytes, if no block is missing at the end")
    print(f"  overhead          {record['overhead']:,} bytes")
    print(f"  {_picture(record)}")


def _picture(record: dict[str, Any]) -> str:
    """Draw the stream as a person would on paper."""
    full, last = f"[12|{record['block_length']:,}|16]", f"[12|{record['last_block_length']:,}|16]"
    blocks = record["blocks"]
    if blocks == 1:
        body = last
    elif blocks == 2:
        body = f"{full}{last}"
    elif blocks == 3:
        body = f"{full}{full}{last}"
    else:
        body = f"{full}{full} ... {last}"
    return f"AGS1 header [8] {body}   (nonce | ciphertext | tag)"


def verify(options: argparse.Namespace) -> int:
    """Run ``ags1 verify``."""
    paths = expand(options.files, only_suffix=".ags1")
    if STANDARD in paths:
        raise UsageError("standard input cannot be verified: give a file, or decrypt it to /dev/null")
    if len(paths) > 1 and options.length is not None:
        raise UsageError("--length is the length of one file: use --key-metadata for many")
    keys = {path: key_metadata_for(options, path) for path in paths}

    def one(path: str, _: str, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
        started = time.monotonic()
        report = verify_file(path, key_metadata=keys[path], threads=options.threads, progress=progress)
        seconds = time.monotonic() - started
        if not report.ok:
            raise _failure(path, report)
        rate = format_rate(report.plaintext_length, seconds)
        line = f"{path}: {report.block_count:,} blocks authentic, {report.plaintext_length:,} bytes  {seconds:.2f} s  {rate}"
        if not report.length_trusted:
            line += "  (length not protected)"
        return line, {
            "file": path, "blocks": report.block_count, "plaintext_length": report.plaintext_length,
            "length_trusted": report.length_trusted, "failed_blocks": [], "seconds": round(seconds, 6),
        }  # fmt: skip

    options.jobs = 1
    untrusted = any(metadata.file_length is None for metadata in keys.values())
    pairs = [(path, "") for path in paths]
    return work_through(options, "verifying", pairs, one, note=UNPROTECTED if untrusted else None)


def _failure(path: str, report: Any) -> AuthenticationError:
    shown = ", ".join(str(block) for block in report.failed_blocks[:_SHOWN_BLOCKS])
    more = f" and {report.failed_count - _SHOWN_BLOCKS} more" if report.failed_count > _SHOWN_BLOCKS else ""
    if report.failed_count == report.block_count:
        return AuthenticationError(
            f"{path}: none of its {report.block_count} blocks is authentic: most likely a wrong key or a wrong AAD "
            f"prefix, else the whole file is damaged (block {shown}{more})"
        )
    return AuthenticationError(
        f"{path}: {report.failed_count} of {report.block_count} blocks failed authentication (damaged, swapped, "
        f"repeated or missing data): block {shown}{more}"
    )
