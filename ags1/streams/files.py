"""Whole files: encrypt_file and decrypt_file.

    local file to local file    positioned reads and writes, many threads, no GIL
    other seekable sources      pieces:  read (and sealed or opened) on request threads, several at once
                                         written in order on the caller's thread
    a pipe or a file object     through a Reader or a Writer

Every 0.2 seconds, or between pieces, progress is reported and signals (Ctrl-C) are handled. The target appears whole or
not at all.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial

from ags1 import layout
from ags1.core import descriptors
from ags1.core.gcm import random_bytes
from ags1.core.typing import KeyLike
from ags1.errors import AuthenticationError, LimitError
from ags1.keys import AAD_PREFIX_LENGTH, Key, KeyMetadata
from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.storage import (
    AtomicFile,
    Location,
    Output,
    PipeSource,
    Source,
    in_order,
    open_output,
    open_source,
    refuse_same,
)
from ags1.streams.cipher import INCOMPLETE, BlockCipher, Tell
from ags1.streams.opening import open
from ags1.streams.reading import Plaintext, piece_length, pieces_within
from ags1.streams.stream import Writer
from ags1.support.key_files import refuse_existing_secret
from ags1.support.typing import Any, Buffer

Progress = Callable[[int, "int | None"], object]
"""Called as ``progress(done, total)`` with bytes of plaintext; total is None for a pipe. An exception stops the work.
"""

_COPY_BYTES = 8 << 20


def encrypt_file(
    source: Any,
    target: Any,
    key: KeyLike | None = None,
    *,
    aad_prefix: Buffer = b"",
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
    progress: Progress | None = None,
    durable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    memory_budget: int | None = None,
    key_metadata_out: str | os.PathLike[str] | None = None,
) -> KeyMetadata:
    """Encrypt a file into an AGS1 file.

    Parameters
    ----------
    source, target : path, URL or binary file object
        The plaintext, and the encrypted file. A target path that exists is replaced, as `shutil.copy`
        does, atomically at the end; a failure before leaves it unchanged. File objects are not closed.
    key : buffer of 16, 24 or 32 bytes, or Key, optional
        The AES key. By default a fresh 256-bit key and, unless `aad_prefix` is given, a fresh 16-byte AAD prefix.
    aad_prefix : buffer
        Identity of the file. It is authenticated, not stored; decryption needs the same value.
    block_length : int
        Bytes of plaintext in a block. Iceberg reads only the default, 1 MiB.
    threads : int, optional
        Threads to use; by default every usable CPU.
    progress : callable, optional
        See :data:`Progress`.
    durable : bool
        Return only after a local target is on the disk, so that a power cut cannot lose it.
    storage_options : mapping, optional
        Settings for URLs that are not in the environment: credentials, endpoint, timeouts.
    memory_budget : int, optional
        Bytes that may be read and not yet written; 64 MiB by default.
    key_metadata_out : path, optional
        A file that does not exist yet, for what is returned (:meth:`KeyMetadata.save`). It is on the disk before the
        target is replaced; from a pipe, the length is known last, and gets there right after it.

    Returns
    -------
    KeyMetadata
        Key, AAD prefix and file length: all that decryption needs. It contains the key, so store it like a key.

    Raises
    ------
    FileExistsError
        `key_metadata_out` exists. The target was not changed.
    OSError
        Reading or writing failed, the disk is full, or the source changed while it was read.
    ValueError
        Two of source, target and `key_metadata_out` are the same file; a wrong argument.
    LimitError
        More than 2^31 - 1 blocks.
    """
    if key is None:
        key = Key.generate()
        if memoryview(aad_prefix).nbytes == 0:
            aad_prefix = random_bytes(AAD_PREFIX_LENGTH)
    metadata = KeyMetadata(key, aad_prefix)
    secret, prefix = metadata.encryption_key, metadata.aad_prefix or b""
    layout.encrypted_length(0, block_length)
    refuse_same(source, target)
    if key_metadata_out is not None:
        refuse_existing_secret(key_metadata_out)
        _refuse_key_in_target(key_metadata_out, target)
    cipher = BlockCipher(secret, prefix, block_length, threads)
    options = storage_options
    opened, mode = _open_plain(source, options)
    try:
        if isinstance(opened, PipeSource):
            into = os.fsdecode(target) if isinstance(target, bytes) else target
            with Writer(
                into, secret, aad_prefix=prefix, block_length=block_length, threads=threads, durable=durable,
                storage_options=options,
            ) as writer:  # fmt: skip
                _copy(opened.read_into, writer, progress)
                _saved(metadata, key_metadata_out)
            made = metadata.with_length(writer.encrypted_length)
            if key_metadata_out is not None:
                with AtomicFile(key_metadata_out, mode=0o600) as saved:
                    saved.write(made.encode())
                    saved.commit(durable=True)
            return made
        try:
            length = layout.encrypted_length(opened.size, block_length)
        except LimitError as error:
            raise LimitError(f"{opened.name}: {error}") from None
        with open_output(target, options, expected=length, mode=mode) as output:
            try:
                output.reserve(length)
                output.write(layout.write_header(block_length))
                tell = _telling(progress, opened.size)
                seal_source(opened, 0, opened.size, output, cipher, tell, memory_budget)
                opened.check()
                made = _saved(metadata.with_length(length), key_metadata_out)
                output.commit(durable=durable)
            except BaseException:
                output.abort(INCOMPLETE)
                raise
        return made
    finally:
        opened.close()


def _refuse_key_in_target(key_metadata_out: str | os.PathLike[str], target: Any) -> None:
    if not isinstance(target, (str, bytes, os.PathLike)) or not Location(target).is_local:
        return
    # Neither exists yet, so their names are compared.
    if os.path.realpath(Location(target).path) == os.path.realpath(key_metadata_out):
        raise ValueError(f"the target would replace its only key ({os.fspath(key_metadata_out)}): give another name")


def _saved(metadata: KeyMetadata, path: str | os.PathLike[str] | None) -> KeyMetadata:
    if path is not None:
        metadata.save(path)
    return metadata


def decrypt_file(
    source: Any,
    target: Any,
    key: KeyLike | None = None,
    *,
    key_metadata: KeyMetadata | Buffer | None = None,
    aad_prefix: Buffer = b"",
    length: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    durable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    memory_budget: int | None = None,
) -> int:
    """Decrypt an AGS1 file; every block is authenticated before the target appears.

    Parameters
    ----------
    source, target : path, URL or binary file object
        As :func:`encrypt_file`. A source may also be a buffer (bytes are a buffer, not a path). A target that is a
        pipe or a file object receives each block after it is authenticated; earlier blocks stay written if a later
        one fails.
    key, aad_prefix : optional
        The values that were used for encryption; or give `key_metadata` instead.
    key_metadata : KeyMetadata or its bytes, optional
        Key, AAD prefix and length.
    length : int, optional
        Trusted length of the encrypted file in bytes. Without it, blocks missing at the end are not detected.
    threads, progress, durable, storage_options, memory_budget
        As :func:`encrypt_file`.

    Returns
    -------
    int
        Bytes of plaintext written.

    Raises
    ------
    AuthenticationError
        A tag failed; the error names the file and the first block.
    FormatError, TruncatedError
        Not AGS1, a bad header, or a length that does not agree.
    OSError
        Reading or writing failed.
    TypeError, ValueError
        No key, two keys, or another wrong argument.
    """
    if not isinstance(source, bytes):
        refuse_same(source, target)
    with open(
        source, key=key, key_metadata=key_metadata, aad_prefix=aad_prefix, length=length, threads=threads,
        storage_options=storage_options, memory_budget=memory_budget,
    ) as reader:  # fmt: skip
        plaintext: Plaintext | None = reader._plaintext
        size = None if plaintext is None else plaintext.size
        mode = None if plaintext is None else plaintext.source.mode
        with open_output(target, storage_options, expected=size, mode=mode) as output:
            if plaintext is None:
                _copy(reader.readinto, output, progress)
            else:
                output.reserve(plaintext.size)
                if not plaintext.size:
                    # The tag of an empty file is its only data to check.
                    plaintext.read_into(0, memoryview(b""))
                open_plaintext(plaintext, 0, plaintext.size, output, _telling(progress, plaintext.size))
                plaintext.source.check()
            count = output.position
            output.commit(durable=durable)
        return count


def _open_plain(source: Any, storage_options: Mapping[str, Any] | None) -> tuple[Source | PipeSource, int | None]:
    """Open the plaintext to encrypt; also return the permission bits that the target may have."""
    if isinstance(source, Source):
        return source, source.mode
    if isinstance(source, bytes):
        # Bytes are a path here, as in the functions of os: ags1.encrypt takes bytes of plaintext.
        source = os.fsdecode(source)
    if not isinstance(source, (str, os.PathLike)) and not hasattr(source, "read"):
        raise TypeError(f"source must be a path, a URL or a binary file object, not {type(source).__name__}")
    if hasattr(source, "read") and not isinstance(source, os.PathLike):
        if isinstance(source, io.TextIOBase):
            raise TypeError("a binary file object is needed, but this one is text: open it with mode 'rb'")
        # From its position, like any copy.
        return PipeSource(source, _name_of(source), owned=False), None
    opened = open_source(source, storage_options)
    return opened, None if isinstance(opened, PipeSource) else opened.mode


def _name_of(file: Any) -> str | None:
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else None


def seal_source(
    source: Source,
    begin: int,
    size: int,
    output: Output,
    cipher: BlockCipher,
    tell: Tell,
    budget: int | None = None,
) -> None:
    """Seal `size` bytes of a source into blocks and append them to an output; `tell` gets the number of bytes done."""
    block_length = cipher.block_length
    with source.descriptor() as descriptor:
        if descriptor is not None and output.descriptor is not None:
            for done, count in _windows(size, block_length):
                so_far = partial(_tell_behind, tell, done)
                cipher.seal_file(descriptor, source.name, begin + done, count, output, done // block_length, so_far)
                tell(done + count)
            return
        to_file = output.descriptor is not None
        alone = cipher.alone()
        step = piece_length(block_length)

        def piece(done: int) -> Buffer:
            data = source.read(begin + done, min(step, size - done))
            return data if to_file else alone.sealed(data, done // block_length)

        pieces = range(0, max(size, 1), step)
        with closing(in_order(piece, pieces, at_once=pieces_within(block_length, budget))) as sealed:
            for done, data in zip(pieces, sealed, strict=True):
                if to_file:
                    cipher.seal_to(output, data, done // block_length)
                else:
                    output.write_owned(data)
                tell(min(done + step, size))


def open_plaintext(plaintext: Plaintext, first: int, end: int, output: Output, tell: Tell) -> None:
    """Append the plaintext between two offsets to an output; a block begins at the first offset."""
    try:
        _append_plaintext(plaintext, first, end, output, tell)
    except AuthenticationError as error:
        raise plaintext.explained(error) from None


def _append_plaintext(plaintext: Plaintext, first: int, end: int, output: Output, tell: Tell) -> None:
    cipher = plaintext.cipher
    with plaintext.source.descriptor() as descriptor:
        if descriptor is not None and output.descriptor is not None:
            for done, count in _windows(end - first, cipher.block_length):
                block = (first + done) // cipher.block_length
                so_far = partial(_tell_behind, tell, done)
                cipher.open_file(descriptor, plaintext.source.name, block, count, output, so_far)
                tell(done + count)
            return
        done = 0
        for data in plaintext.opened(first, end):
            output.write_owned(data)
            done += len(data)
            tell(done)


def _windows(size: int, block_length: int) -> list[tuple[int, int]]:
    """Offsets and lengths of as many blocks as one call takes; an empty file has one."""
    step = descriptors.MAX_WINDOW_BLOCKS * block_length
    return [(done, min(step, size - done)) for done in range(0, max(size, 1), step)]


def _tell_behind(tell: Tell, before: int, done: int) -> None:
    tell(before + done)


def _telling(progress: Progress | None, total: int | None) -> Callable[[int], None]:
    """Report the start of work, and return a function to call with the number of bytes done."""

    def tell(done: int) -> None:
        if progress is not None:
            progress(done, total)

    tell(0)
    return tell


def _copy(read_into: Callable[[memoryview], int], target: Any, progress: Progress | None) -> None:
    memory = memoryview(bytearray(_COPY_BYTES))
    tell = _telling(progress, None)
    done = 0
    while count := read_into(memory):
        target.write(memory[:count])
        done += count
        tell(done)
