"""open(): one function for binary and text streams, like the builtin."""

from __future__ import annotations

import io
from collections.abc import Mapping

from ags1.core.typing import KeyLike
from ags1.keys import KeyMetadata
from ags1.layout import DEFAULT_BLOCK_LENGTH
from ags1.streams.stream import Reader, Writer
from ags1.streams.text import TextWriter, check_text_options
from ags1.support.arguments import spelled
from ags1.support.typing import Buffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal, TypedDict, overload

    from typing_extensions import Unpack

    class _Options(TypedDict, total=False):
        key: KeyLike | None
        aad_prefix: Buffer
        length: int | None
        key_metadata: KeyMetadata | Buffer | None
        block_length: int
        threads: int | None
        storage_options: Mapping[str, Any] | None
        memory_budget: int | None

    class _TextOptions(_Options, total=False):
        encoding: str | None
        errors: str | None
        newline: str | None


_READING = frozenset({"rb", "br"})
_WRITING = frozenset({"wb", "bw"})
_READING_TEXT = frozenset({"r", "rt", "tr"})
_WRITING_TEXT = frozenset({"w", "wt", "tw"})

if TYPE_CHECKING:

    @overload
    def open(file: Any, mode: Literal["rb", "br"] = "rb", **options: Unpack[_Options]) -> Reader: ...
    @overload
    def open(file: Any, mode: Literal["wb", "bw"], **options: Unpack[_Options]) -> Writer: ...
    @overload
    def open(
        file: Any, mode: Literal["r", "rt", "tr", "w", "wt", "tw"], **options: Unpack[_TextOptions]
    ) -> io.TextIOWrapper: ...
    @overload
    def open(file: Any, mode: str, **options: Unpack[_TextOptions]) -> Reader | Writer | io.TextIOWrapper: ...


def open(
    file: Any,
    mode: str = "rb",
    *,
    key: KeyLike | None = None,
    aad_prefix: Buffer = b"",
    length: int | None = None,
    key_metadata: KeyMetadata | Buffer | None = None,
    block_length: int = DEFAULT_BLOCK_LENGTH,
    threads: int | None = None,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    memory_budget: int | None = None,
) -> Reader | Writer | io.TextIOWrapper:
    """Open an AGS1 stream for reading or writing plaintext.

    Parameters
    ----------
    file : path, URL, file object or buffer
        A file that is opened from a path or URL ("s3://...") is closed with the stream; a binary file object of the
        caller is not. Any buffer can be read. Bytes are the stream itself, never a path.
    mode : {"rb", "wb", "r", "w", "rt", "wt"}
        Binary or text, for reading or writing. A stream cannot be appended to or updated. A text file appears when it
        is closed, like that of a Writer: not after an exception in a ``with`` body. (Another TextIOWrapper around a
        Writer closes it in this case too, and so publishes an incomplete stream.)
    key : buffer of 16, 24 or 32 bytes, or Key, optional
        The AES key; this or `key_metadata` is needed.
    aad_prefix : buffer
        Identity of the file.
    length : int, optional
        Trusted length of the encrypted stream in bytes, for reading.
    key_metadata : KeyMetadata or its bytes, optional
        Key, AAD prefix and, if it has one, trusted length, instead of the three arguments.
    block_length : int
        For writing: bytes of plaintext in a block.
    threads : int, optional
        Threads to use.
    encoding, errors, newline : str, optional
        For text, as in the builtin ``open``. UTF-16 and UTF-32 are written with a byte order mark.
    storage_options : mapping, optional
        Settings for the URL that are not in the environment: credentials, endpoint, timeouts.
    memory_budget : int, optional
        For reading: bytes that may be fetched and decrypted ahead.

    Returns
    -------
    Reader, Writer or io.TextIOWrapper
        A TextIOWrapper has the Reader or Writer as its ``buffer``.

    Raises
    ------
    TypeError
        Neither or both of `key` and `key_metadata`.
    ValueError
        Another mode, or `encoding`, `errors` or `newline` in a binary one.
    LookupError
        An unknown encoding.
    FormatError, TruncatedError, OSError
        As :class:`Reader` and :class:`Writer`.
    """
    text = mode in _READING_TEXT or mode in _WRITING_TEXT
    if not text and mode not in _READING and mode not in _WRITING:
        raise ValueError(
            f"mode must be 'rb', 'wb', 'r' or 'w' (or 'rt', 'wt'), got {mode!r}: a stream is read, or written whole"
        )
    if text:
        # Before the file is opened.
        encoding = check_text_options(encoding, errors, newline)
    for name, value in (("encoding", encoding), ("errors", errors), ("newline", newline)):
        if value is not None and not text:
            raise ValueError(f"binary mode doesn't take an {name} argument")
    if key_metadata is not None:
        if key is not None or aad_prefix != b"":
            raise TypeError(
                f"give {spelled('key_metadata')}, or {spelled('key')} and {spelled('aad_prefix')}, not both"
            )
        if not isinstance(key_metadata, KeyMetadata):
            key_metadata = KeyMetadata.decode(key_metadata)
        key = key_metadata.encryption_key
        aad_prefix = key_metadata.aad_prefix or b""
        if length is None:
            length = key_metadata.file_length
    if key is None:
        raise TypeError(f"a key is needed: give {spelled('key')} (16, 24 or 32 bytes) or {spelled('key_metadata')}")
    if mode in _READING or mode in _READING_TEXT:
        reader = Reader(
            file, key, aad_prefix=aad_prefix, length=length, threads=threads, storage_options=storage_options,
            memory_budget=memory_budget,
        )  # fmt: skip
        return io.TextIOWrapper(reader, encoding=encoding, errors=errors, newline=newline) if text else reader
    writer = Writer(
        file, key, aad_prefix=aad_prefix, block_length=block_length, threads=threads, storage_options=storage_options
    )
    return TextWriter(writer, encoding, errors, newline) if text else writer
