"""Keys for the command line: from a file, an environment variable or key metadata, never from an argument."""

from __future__ import annotations

import argparse
import os
import stat
import sys

from ags1._gcm import Key
from ags1.cli._parser import UsageError
from ags1.errors import FormatError, KeyAccessError
from ags1.keys import KeyMetadata

__all__ = ["KEY_METADATA_SUFFIX", "aad_prefix", "has_key", "key_metadata_for", "keygen", "write_private"]

KEY_METADATA_SUFFIX = ".key-metadata"
_SIZES = (16, 24, 32)
_LARGEST_KEY_FILE = 4096


def has_key(options: argparse.Namespace) -> bool:
    """Whether the options name a key."""
    return bool(options.key_file or options.key_env or options.key_metadata)


def key_metadata_for(options: argparse.Namespace, name: str) -> KeyMetadata:
    """Key, AAD prefix and trusted length for the file called `name`.

    Raises
    ------
    UsageError
        No key was named.
    KeyAccessError
        The file or variable is missing, unreadable, or holds no key.
    """
    length = getattr(options, "length", None)
    if options.key_metadata:
        path = options.key_metadata
        if os.path.isdir(path):
            path = os.path.join(path, os.path.basename(name) + KEY_METADATA_SUFFIX)
        metadata = _decode_metadata(_read(path), path)
        if options.aad_prefix is not None or options.aad_prefix_hex is not None:
            raise UsageError("--key-metadata already has an AAD prefix: leave --aad-prefix out")
        return metadata if length is None else metadata.with_length(length)
    if options.key_file:
        key = _parse_key(_read(options.key_file), options.key_file)
    elif options.key_env:
        text = os.environ.get(options.key_env)
        if text is None:
            raise KeyAccessError(f"the environment variable {_shown(options.key_env)} is not set")
        key = _parse_key(text.encode("utf-8", "surrogateescape"), f"the environment variable {options.key_env}", raw=False)
    else:
        raise UsageError("a key is needed: --key-file FILE, --key-env NAME or --key-metadata FILE (ags1 keygen makes one)")
    return KeyMetadata(key, aad_prefix(options, name), length)


def aad_prefix(options: argparse.Namespace, name: str) -> bytes:
    """The AAD prefix that the options say, for the file called `name`."""
    if options.aad_prefix_hex is not None:
        try:
            return bytes.fromhex(options.aad_prefix_hex)
        except ValueError:
            raise UsageError(f"--aad-prefix-hex {options.aad_prefix_hex!r} is not hexadecimal") from None
    if options.aad_prefix is None:
        return b""
    base = os.path.basename(name).removesuffix(".ags1")
    return os.fsencode(options.aad_prefix.replace("{name}", base))


def keygen(options: argparse.Namespace) -> int:
    """Run ``ags1 keygen``."""
    key = Key.generate(options.bits)
    data = bytes(key)
    if options.format == "hex":
        data = data.hex().encode() + b"\n"
    elif options.format == "base64":
        import base64

        data = base64.b64encode(data) + b"\n"
    if options.keyfile == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return 0
    write_private(options.keyfile, data, replace=options.force)
    print(f"wrote a fresh {key.bits}-bit key to {options.keyfile} (readable by you alone); keep a copy in a safe place")
    return 0


def write_private(path: str, data: bytes, *, replace: bool) -> None:
    """Write a secret to a file that only its owner can read.

    Raises
    ------
    KeyAccessError
        The file exists and `replace` is False.
    OSError
        It cannot be written.
    """
    from ags1._atomic import AtomicFile

    if not replace and os.path.lexists(path):
        raise KeyAccessError(
            f"{path} exists and was not replaced: what its key encrypted would be lost (--force replaces it)"
        )
    output = AtomicFile(path, private=True)
    try:
        os.write(output.descriptor, data)
        output.commit(fsync=True)
    except BaseException:
        output.abort()
        raise


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_LARGEST_KEY_FILE + 1)
    except OSError as error:
        raise KeyAccessError(f"the key file {_shown(path)} cannot be read: {error.strerror}") from None
    if len(data) > _LARGEST_KEY_FILE:
        raise KeyAccessError(f"{path} is no key file: it has more than {_LARGEST_KEY_FILE} bytes")
    if stat.S_ISREG(mode) and mode & (stat.S_IRGRP | stat.S_IROTH):
        print(
            f"ags1: warning: other users can read the key file {path} (mode {stat.S_IMODE(mode):04o}): chmod 600 it",
            file=sys.stderr,
        )
    return data


def _shown(name: str) -> str:
    """A name for a message, unless it is a key that was given in its place."""
    text = os.fsencode(name)
    if any(decoded is not None and len(decoded) in _SIZES for decoded in (_from_hex(text), _from_base64(text))):
        return f"(its name of {len(text)} characters looks like a key itself and is not shown: keep that key in a file)"
    return name


def _parse_key(data: bytes, where: str, *, raw: bool = True) -> Key:
    """A key from raw bytes, hexadecimal or base64. Errors show lengths, never contents."""
    if raw and len(data) in _SIZES:
        if len(data) == 32 and _from_hex(data) is not None:
            print(
                f"ags1: warning: {where} has 32 bytes, all hexadecimal digits: taken as a raw 256-bit key. If it is "
                "the text of a 128-bit key, end it with a newline",
                file=sys.stderr,
            )
        return Key(data)
    text = data.strip()
    for decoded in (_from_hex(text), _from_base64(text)):
        if decoded is not None and len(decoded) in _SIZES:
            return Key(decoded)
    kinds = "16, 24 or 32 raw bytes, or the same as hexadecimal or base64 text" if raw else "16, 24 or 32 bytes as hexadecimal or base64 text"  # fmt: skip
    raise KeyAccessError(f"{where} holds no AES key: {len(data)} bytes, but {kinds} are needed")


def _decode_metadata(data: bytes, path: str) -> KeyMetadata:
    if not data.startswith(b"\x01"):
        text = data.strip()
        data = _from_hex(text) or _from_base64(text) or data
    try:
        return KeyMetadata.decode(data)
    except FormatError as error:
        raise KeyAccessError(f"{path} holds no key metadata: {error}") from None


def _from_hex(text: bytes) -> bytes | None:
    try:
        return bytes.fromhex(text.decode("ascii")) if not text.isspace() and b" " not in text else None
    except ValueError:
        return None


def _from_base64(text: bytes) -> bytes | None:
    import base64

    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None
