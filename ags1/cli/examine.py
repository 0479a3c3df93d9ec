"""``ags1 inspect`` and ``ags1 verify``."""

from __future__ import annotations

import os
import shlex
import time
from argparse import Namespace
from collections.abc import Callable

from ags1 import layout
from ags1.cli.command import Positional, command
from ags1.cli.keys import LENGTH_HELP, Keys
from ags1.cli.output import say, say_json, standard_input, warn
from ags1.cli.paths import STANDARD, Job, dataset_above, expand, refuse_reading, shown
from ags1.cli.report import Reporter
from ags1.cli.transfer import work_through
from ags1.cli.verification import VERIFY_FIELDS, verified
from ags1.errors import Ags1Error, AuthenticationError
from ags1.streams.metadata_files import KEY_METADATA_SUFFIX, SUFFIX, metadata_beside
from ags1.streams.verify import verify_file
from ags1.support.exit_codes import EXIT_DATA, EXIT_IO, EXIT_UNPROTECTED, UsageError, describe
from ags1.support.typing import Any
from ags1.support.words import counted, size_text

_AGS1, _DAMAGED, _OTHER, _UNREADABLE = "AGS1", "damaged", "not AGS1", "unreadable"


@command(
    files=Positional("FILE...", "file, glob, directory, or `-` for standard input"),
    said="LIST",
    fields="file, status (AGS1, damaged, not AGS1, unreadable), encrypted_length, format, problem, block_length, "
    "iceberg, plaintext_length, blocks, last_block_length, overhead, error",
)
def inspect(files: list[str], said: Namespace) -> int:
    """Header, block length, blocks, plaintext length, and what is wrong with the file; a table for many files. Nothing
    of it is authenticated: that takes `ags1 verify` and the key.

    examples:
      ags1 inspect sales.avro.ags1
      ags1 inspect vault/ --json
    """
    code = 0
    for path in files:
        vault = dataset_above(path) if "://" in path or os.path.isdir(path) else None
        if vault is not None:
            warn(f"ags1: note: {path} is part of the dataset {vault}: see `ags1 dataset versions {shlex.quote(vault)}`")
    paths = [found.path for found in expand(files, said)]
    records = []
    if len(paths) > 1 and not said.json:
        say(_row("status", "plaintext bytes", "blocks", "block length", "file"))
    with Reporter(said, ("reading", "read")) as reporter:
        for record in reporter.rows(map(_describe, paths)):
            if record["error"]:
                code = code or EXIT_IO
            elif record["problem"]:
                code = code or EXIT_DATA
            if said.json:
                say_json(record)
            elif len(paths) > 1:
                _print_row(record)
                records.append(record)
            elif record["error"]:
                warn(f"ags1: {record['error']}")
            else:
                _print_stream(record)
    if records:
        say(_sum_up(records))
    return code


def _describe(path: str) -> dict[str, Any]:
    """What can be known of a file without a key, or why it cannot be read."""
    try:
        return {**_describe_stream(path), "error": None}
    except OSError as error:
        return {"file": path, "status": _UNREADABLE, "error": describe(error)}


def _describe_stream(path: str) -> dict[str, Any]:
    head, size = _head_and_size(path)
    record: dict[str, Any] = {
        "file": path,
        "status": _AGS1,
        "encrypted_length": size,
        "format": None,
        "problem": None,
    }
    try:
        block_length = layout.read_header(head)
        record.update(format="AGS1", block_length=block_length, iceberg=block_length == layout.DEFAULT_BLOCK_LENGTH)
        plaintext_length = layout.plaintext_length(size, block_length)
    except Ags1Error as error:
        record["problem"] = str(error)
        record["status"] = _DAMAGED if head.startswith(layout.MAGIC) else _OTHER
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
        stream = standard_input()
        head = stream.read(16)
        size = len(head)
        while piece := stream.read(1 << 20):
            size += len(piece)
        return head, size
    if "://" in path:
        from ags1.storage import open_source

        source: Any = open_source(path)
        return bytes(memoryview(source.read(0, min(16, source.size)))), source.size
    with open(path, "rb") as file:
        return file.read(16), os.fstat(file.fileno()).st_size


def _row(status: str, plaintext: str, blocks: str, block_length: str, file: str) -> str:
    return f"{status:<10}  {plaintext:>19}  {blocks:>10}  {block_length:>13}  {file}"


def _print_row(record: dict[str, Any]) -> None:
    plaintext, blocks, block_length = (
        f"{record[name]:,}" if name in record else "-" for name in ("plaintext_length", "blocks", "block_length")
    )
    say(_row(record["status"], plaintext, blocks, block_length, shown(record["file"])))
    if record["error"]:
        warn(f"ags1: {record['error']}")


def _sum_up(records: list[dict[str, Any]]) -> str:
    parts = []
    for status in (_AGS1, _DAMAGED, _OTHER, _UNREADABLE):
        those = [record for record in records if record["status"] == status]
        if those:
            parts.append(f"{len(those):,} {status}")
        if those and status == _AGS1:
            parts[-1] += f" with {size_text(sum(record['plaintext_length'] for record in those))} of plaintext"
    hint = "; `ags1 inspect` of one file says what is wrong" if any(record.get("problem") for record in records) else ""
    return f"{counted(len(records), 'file')}: {', '.join(parts)}{hint}"


def _print_stream(record: dict[str, Any]) -> None:
    say(shown(record["file"]))
    length = f"{record['encrypted_length']:,} bytes"
    if record["encrypted_length"] >= 1000:
        length += f" ({size_text(record['encrypted_length'])})"
    if record["format"] is None:
        say(f"  {record['status']:<16}  {record['problem']}")
        say(f"  length            {length}")
        return
    note = "" if record["iceberg"] else "   (Iceberg reads only 1,048,576)"
    say("  format            AGS1 (AES GCM Stream, version 1)")
    say(f"  encrypted length  {length}")
    say(f"  block length      {record['block_length']:,} bytes of plaintext{note}")
    if record["problem"]:
        say(f"  whole blocks      {record['whole_blocks']:,}, and {record['bytes_behind_them']:,} bytes behind them")
        say(f"  problem           {record['problem']}")
        return
    say(f"  blocks            {record['blocks']:,}, the last one with {record['last_block_length']:,} bytes")
    say(f"  plaintext length  {record['plaintext_length']:,} bytes, if no block is missing at the end")
    say(f"  overhead          {record['overhead']:,} bytes")


@command(
    files=Positional("FILE...", "AGS1 file, glob or directory"),
    key="KEY",
    length="LENGTH",
    work="jobs WORK",
    needs="(--key-metadata PATH | ...)",
    epilog=LENGTH_HELP,
    fields=VERIFY_FIELDS,
)
def verify(files: list[str], key: Namespace, length: Namespace, work: Namespace) -> int:
    """A directory stands for the .ags1 files below it. A file is missing if the directory of --key-metadata has key
    metadata for it, and exit code 1 says so. With --any-length, the exit code is 5 at best.

    examples:
      ags1 verify sales.avro.ags1 --key-metadata sales.key-metadata
      ags1 verify vault/ --key-metadata keys/ --jobs 4
    """
    keys = Keys(key, length)
    refuse_reading(files, "verify VAULT")
    found = expand(files, work, only_suffix=SUFFIX)
    jobs = [Job(path, "", name, size) for path, name, size in found]
    if any(job.source == STANDARD for job in jobs):
        raise UsageError("standard input cannot be verified: give a file, or decrypt it to /dev/null")
    if len(jobs) > 1 and length.length is not None:
        raise UsageError("--length is the length of one file: use --key-metadata for many")
    metadata = {job.source: keys.metadata_for(job.source, job.name) for job in jobs}
    unused = _unused_metadata(files, jobs, key.key_metadata)
    jobs += [Job(name, "", name, 0) for name in unused]

    def one(job: Job, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
        if job.source in unused:
            raise AuthenticationError(f"{job.source}: missing: there is key metadata for it, {unused[job.source]}")
        started = time.monotonic()
        found = verify_file(job.source, key_metadata=metadata[job.source], threads=work.threads, progress=progress)
        return verified(found, started)

    code = work_through(work, ("verifying", "verified"), jobs, one, lambda job: {"subject": job.source}, name_all=True)
    return EXIT_UNPROTECTED if not code and keys.note_any_length(work) else code


def _unused_metadata(files: list[str], jobs: list[Job], directory: str | None) -> dict[str, str]:
    """Key metadata of a directory that no file of the trees has, by the path that such a file would have."""
    is_tree = all(_is_directory(each, jobs) for each in files)
    if directory is None or not os.path.isdir(directory) or not is_tree:
        return {}
    used = {os.path.normpath(metadata_beside(directory, job.source, job.name)) for job in jobs}
    found = {}
    for parent, _, names in os.walk(directory):
        for path in (os.path.normpath(os.path.join(parent, name)) for name in sorted(names)):
            if path.endswith(f"{SUFFIX}{KEY_METADATA_SUFFIX}") and path not in used:
                name = os.path.relpath(path, directory).removesuffix(KEY_METADATA_SUFFIX)
                found[f"{files[0].rstrip('/')}/{name}" if len(files) == 1 else name] = path
    return found


def _is_directory(given: str, jobs: list[Job]) -> bool:
    """Whether an argument is a directory or a prefix, of which all files are looked at."""
    if "://" not in given:
        return os.path.isdir(given)
    inside = f"{given.rstrip('/')}/"
    return any(job.source.startswith(inside) for job in jobs)
