"""Keys in files and environment variables: raw bytes, hexadecimal or base64 text."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Callable

from ags1.errors import KeyAccessError
from ags1.support.typing import Buffer

SECRET_EXISTS = "it exists and was not replaced: what its key encrypted would be lost"
_SIZES = (16, 24, 32)
_LARGEST = 4096


def load_key(reference: str | os.PathLike[str]) -> bytes:
    """Read the bytes of a key; see ``Key.load``."""
    text = os.fspath(reference)
    if not isinstance(text, str):
        raise TypeError(f"a key is loaded from a path, file:PATH or env:NAME, not from {type(reference).__name__}")
    kind, name = split_reference(text) if isinstance(reference, str) else ("file", text)
    if kind == "env":
        _refuse_key(name, "env:NAME needs the name of a variable")
        return key_of_variable(name)
    _refuse_key(name, "the name of a file is needed")
    return parse_key(read_key_file(name)[0], name)


def split_reference(text: str) -> tuple[str, str]:
    """Split ``file:PATH`` or ``env:NAME`` into "file" or "env" and the name; other text is the path of a file.

    ValueError: the name is missing.
    """
    kind, colon, name = text.partition(":")
    if not colon or kind not in ("env", "file"):
        return "file", text
    if not name:
        raise ValueError(f"{kind}: needs the name of a {'variable' if kind == 'env' else 'file'} after it")
    return kind, local_path(text) if name.startswith("//") else name


def local_path(path: str) -> str:
    """The path of a local file that may be given as a URL, ``file:///...``."""
    return path.removeprefix("file://")


def key_of_variable(name: str) -> bytes:
    """Read the key in an environment variable; KeyAccessError if it is not set, or holds no key."""
    value = os.environ.get(name)
    if value is None:
        raise KeyAccessError(f"the environment variable {name} is not set")
    return parse_key(value.encode("utf-8", "surrogateescape"), f"the environment variable {name}", raw=False)


def read_key_file(path: str, kind: str = "key file") -> tuple[bytes, int]:
    """Return contents and mode of a small file with a secret. KeyAccessError calls it a `kind`."""
    try:
        with open(local_path(path), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise KeyAccessError(f"the {kind} {path} cannot be read: {error.strerror}") from error
    if len(data) > _LARGEST:
        raise KeyAccessError(f"{path} is not a {kind}: it has more than {_LARGEST} bytes")
    return data, mode


def save_key(key: Buffer, path: str | os.PathLike[str]) -> None:
    """Write a key to a new file as hexadecimal text; see ``Key.save``."""
    write_secret(path, bytes(key).hex().encode() + b"\n")


def refuse_existing_secret(path: str | os.PathLike[str]) -> None:
    """Raise FileExistsError if there is a file that :func:`write_secret` would not replace."""
    if os.path.lexists(path):
        raise _exists(os.fspath(path))


def _exists(name: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, SECRET_EXISTS, name)


def write_secret(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a secret to a new file that only its owner can read; it is durable then.

    FileExistsError: it exists. OSError: it cannot be written; then there is none.
    """
    name = os.fspath(path)
    try:
        # 0600 from the start: a later chmod leaves a moment in which others can open it.
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
    except FileExistsError:
        raise _exists(name) from None
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        directory = os.open(os.path.dirname(name) or ".", os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except BaseException:
        os.unlink(name)
        raise


def parse_key(data: bytes, where: str, *, raw: bool = True, note: Callable[[str], None] | None = None) -> bytes:
    """A key's bytes from raw bytes, unless `raw` is False, hexadecimal or base64. Errors show lengths, never contents.

    `where` names the file or variable in messages; `note` is called with a remark if the bytes are ambiguous, by
    default it is a warning. KeyAccessError: the bytes are not a key.
    """
    if raw and len(data) in _SIZES:
        for decoded in (from_hex(data), from_base64(data)):
            if decoded is not None and len(decoded) in _SIZES:
                (note or _warn)(
                    f"{where} has {len(data)} bytes that could be text: taken as a raw {8 * len(data)}-bit key. If it "
                    f"is the text of a {8 * len(decoded)}-bit key, end it with a newline"
                )
                break
        return data
    text = data.strip()
    for decoded in (from_hex(text), from_base64(text)):
        if decoded is not None and len(decoded) in _SIZES:
            return decoded
    kinds = "16, 24 or 32 bytes as hexadecimal or base64 text are needed"
    if raw:
        kinds = "16, 24 or 32 raw bytes, or the same as hexadecimal or base64 text, are needed"
    held = "nothing" if not data else f"{len(data)} bytes"
    del data, text, decoded
    raise KeyAccessError(f"{where} holds no AES key: it has {held}, but {kinds}")


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)


def looks_like_key(text: str) -> bool:
    """Whether a text that should be a name is a key itself, and no file has that name."""
    data = text.encode("utf-8", "surrogateescape")
    decoded = from_hex(data) or from_base64(data)
    return decoded is not None and len(decoded) in _SIZES and not os.path.lexists(text)


def _refuse_key(text: str, wanted: str) -> None:
    if looks_like_key(text):
        del text
        raise ValueError(f"{wanted}, but this looks like a key itself: give that to ags1.Key")


def from_hex(text: bytes) -> bytes | None:
    """Decode hexadecimal text; None if it is not valid."""
    try:
        return bytes.fromhex(text.decode("ascii")) if not text.isspace() and b" " not in text else None
    except ValueError:
        return None


def from_base64(text: bytes) -> bytes | None:
    """Decode base64 text; None if it is not valid."""
    import base64

    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None
