"""``ags1 encrypt``, ``ags1 decrypt`` and ``ags1 cat``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable

from ags1.cli import describe, exit_code
from ags1.cli._keys import KEY_METADATA_SUFFIX, aad_prefix, has_key, key_metadata_for, write_private
from ags1.cli._parser import UsageError
from ags1.cli._paths import STANDARD, expand, pair_up, size_of
from ags1.cli._report import Reporter, format_bytes, format_rate
from ags1.files import decrypt_file, encrypt_file
from ags1.keys import KeyMetadata
from ags1.stream import open as open_stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["cat", "decrypt", "encrypt", "work_through"]

UNPROTECTED = (
    "note: no trusted length was given, so whole blocks missing at the end of a file would not be noticed "
    "(--length or --key-metadata gives one)"
)


def encrypt(options: argparse.Namespace) -> int:
    """Run ``ags1 encrypt``."""
    fresh = not has_key(options)
    if fresh and not options.key_metadata_out:
        raise UsageError(
            "a key is needed: --key-file FILE or --key-env NAME (ags1 keygen makes one), or --key-metadata-out PATH "
            "for a fresh key for each file"
        )
    pairs = pair_up(options, encrypting=True)
    many = len(pairs) > 1 or os.path.isdir(options.target)
    given = None if fresh else {source: key_metadata_for(options, source) for source, _ in pairs}

    def one(source: str, target: str, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
        _check_clobber(options, target)
        metadata_path = _metadata_path(options, source, many)
        started = time.monotonic()
        metadata = KeyMetadata.generate() if given is None else given[source]
        if given is None and (options.aad_prefix is not None or options.aad_prefix_hex is not None):
            metadata = KeyMetadata(metadata.encryption_key, aad_prefix(options, source))
        if metadata_path is not None and fresh:
            # Written before the file: an encrypted file whose fresh key was lost would be lost with it.
            write_private(metadata_path, metadata.encode(), replace=True)
        metadata = encrypt_file(
            _standard(source, sys.stdin), _standard(target, sys.stdout), metadata.encryption_key,
            aad_prefix=metadata.aad_prefix or b"", block_length=options.block_length, threads=options.threads,
            progress=progress, fsync=options.fsync,
        )  # fmt: skip
        if metadata_path is not None:
            write_private(metadata_path, metadata.encode(), replace=True)
        seconds = time.monotonic() - started
        stored = metadata.file_length or 0
        line = f"{source} -> {target}  {format_bytes(stored)}  {seconds:.2f} s  {format_rate(stored, seconds)}"
        return line, {"source": source, "target": target, "encrypted_length": stored, "seconds": round(seconds, 6)}

    return work_through(options, "encrypting", pairs, one)


def decrypt(options: argparse.Namespace) -> int:
    """Run ``ags1 decrypt``."""
    pairs = pair_up(options, encrypting=False)
    if len(pairs) > 1 and options.length is not None:
        raise UsageError("--length is the length of one file: use --key-metadata for many")
    keys = {source: key_metadata_for(options, source) for source, _ in pairs}

    def one(source: str, target: str, progress: Callable[..., None]) -> tuple[str, dict[str, Any]]:
        _check_clobber(options, target)
        started = time.monotonic()
        size = decrypt_file(
            _standard(source, sys.stdin), _standard(target, sys.stdout), key_metadata=keys[source],
            threads=options.threads, progress=progress, fsync=options.fsync,
        )  # fmt: skip
        seconds = time.monotonic() - started
        line = f"{source} -> {target}  {format_bytes(size)}  {seconds:.2f} s  {format_rate(size, seconds)}"
        return line, {
            "source": source, "target": target, "plaintext_length": size, "seconds": round(seconds, 6),
            "length_trusted": keys[source].file_length is not None,
        }  # fmt: skip

    untrusted = any(metadata.file_length is None for metadata in keys.values())
    return work_through(options, "decrypting", pairs, one, note=UNPROTECTED if untrusted else None)


def cat(options: argparse.Namespace) -> int:
    """Run ``ags1 cat``."""
    for path in expand(options.files, only_suffix=".ags1"):
        metadata = key_metadata_for(options, path)
        with open_stream(_standard(path, sys.stdin), key_metadata=metadata, threads=options.threads) as reader:
            left = options.bytes
            if options.offset:
                if reader.seekable():
                    reader.seek(options.offset)
                else:
                    _skip(reader, options.offset)
            while left is None or left > 0:
                data = reader.read(8 << 20 if left is None else min(left, 8 << 20))
                if not data:
                    break
                sys.stdout.buffer.write(data)
                left = None if left is None else left - len(data)
    sys.stdout.buffer.flush()
    return 0


def work_through(
    options: argparse.Namespace,
    doing: str,
    pairs: list[tuple[str, str]],
    one: Callable[[str, str, Callable[..., None]], tuple[str, dict[str, Any]]],
    note: str | None = None,
) -> int:
    """Call `one` for every pair, `--jobs` at a time; go on after a failure; answer the first failure's exit code."""
    if options.jobs < 1:
        raise UsageError(f"--jobs must be at least 1, got {options.jobs}")
    sizes = [size_of(source) for source, _ in pairs]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    if any(target == STANDARD for _, target in pairs):
        # Standard output carries the data.
        options.quiet, options.json = True, False
    reporter = Reporter(options, doing, total, len(pairs))
    if note is not None:
        reporter.note(note)
    codes: list[int] = []

    def attempt(pair: tuple[str, str]) -> None:
        source, target = pair
        try:
            line, record = one(source, target, reporter.progress_of(source))
        except (Exception, KeyboardInterrupt) as error:
            if len(pairs) == 1 and not options.json:
                raise
            codes.append(exit_code(error))
            text = describe(error)
            shown = text if source in text else f"{source}: {text}"
            reporter.finished(shown, {"source": source, "target": target, "error": text})
            if isinstance(error, KeyboardInterrupt):
                raise
        else:
            reporter.finished(line, {**record, "error": None})

    try:
        for _ in _map(attempt, pairs, options.jobs, reporter.stop):
            pass
    finally:
        reporter.close()
    return codes[0] if codes else 0


def _map(
    function: Callable[[Any], None], items: list[Any], jobs: int, stop: Callable[[], None]
) -> Iterable[None]:
    if jobs == 1 or len(items) == 1:
        return map(function, items)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(jobs) as pool:
        try:
            return list(pool.map(function, items))
        except BaseException:
            # Only this thread is interrupted; the pool would wait for the others to finish their files.
            stop()
            raise


def _standard(path: str, stream: Any) -> Any:
    return stream.buffer if path == STANDARD else path


def _check_clobber(options: argparse.Namespace, target: str) -> None:
    if options.no_clobber and target != STANDARD and "://" not in target and os.path.lexists(target):
        raise FileExistsError(17, "File exists, and --no-clobber was given", target)


def _metadata_path(options: argparse.Namespace, source: str, many: bool) -> str | None:
    path: str | None = options.key_metadata_out
    if path is None:
        return None
    if many or os.path.isdir(path):
        os.makedirs(path, exist_ok=True)
        return os.path.join(path, os.path.basename(source) + ".ags1" + KEY_METADATA_SUFFIX)
    return path


def _skip(reader: Any, count: int) -> None:
    while count > 0:
        data = reader.read(min(count, 1 << 20))
        if not data:
            return
        count -= len(data)
