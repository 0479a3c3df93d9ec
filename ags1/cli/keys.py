"""Keys for the command line: from a file, an environment variable or key metadata, never from an argument."""

from __future__ import annotations

import argparse
import errno
import os
import shlex
import stat

from ags1.cli import say, warn
from ags1.cli.paths import shown
from ags1.cli.standard import refuse_terminal, write_out
from ags1.core.gcm import Key
from ags1.errors import KeyAccessError
from ags1.keys import KeyMetadata, decode_metadata
from ags1.streams.metadata_files import KEY_METADATA_SUFFIX, SUFFIX, metadata_beside, text_of_prefix
from ags1.support.exit_codes import UsageError
from ags1.support.key_files import (
    SECRET_EXISTS,
    key_of_variable,
    local_path,
    looks_like_key,
    parse_key,
    read_key_file,
    split_reference,
    write_secret,
)

_LENGTHS = (
    "give the --key-metadata that `ags1 encrypt --key-metadata-out` wrote, the --length that `ags1 encrypt` said of this "
    "file, or --any-length to accept any length"
)
_ANY_LENGTH = "note: no trusted length was given, so blocks missing at the end of a file would go unnoticed"


class Keys:
    """The keys that the options name, if any are `named`. A key file is read once for all files: it may be a pipe."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.named = bool(options.key_file or options.key_env or options.key_metadata)
        if options.key_metadata:
            options.key_metadata = local_path(options.key_metadata)
        self._key: Key | None = None
        self._metadata: KeyMetadata | None = None
        self._warned = False
        self._any_length = False
        if options.key_metadata and options.aad_prefix is not None:
            raise UsageError("--key-metadata already has an AAD prefix: leave --aad-prefix out")

    def metadata_for(self, path: str, name: str) -> KeyMetadata:
        """Key, AAD prefix and trusted length for the encrypted file at `path`, called `name` below what was given.

        UsageError: a file that is read has no trusted length, and --any-length is not given.
        """
        options = self._options
        if options.key_metadata:
            metadata = self._from_metadata(options.key_metadata, path, name)
        else:
            if self._key is None:
                self._key = self._load(path)
            metadata = KeyMetadata(self._key, aad_prefix(options, name))
        if getattr(options, "length", None) is not None:
            metadata = metadata.with_length(options.length)
        if metadata.file_length is None and hasattr(options, "any_length"):
            if not options.any_length:
                what = "its key metadata has no length" if options.key_metadata else "no trusted length was given"
                raise UsageError(f"{shown(path)}: {what}, so blocks missing at its end would go unnoticed: {_LENGTHS}")
            self._any_length = True
        return metadata

    def note_any_length(self) -> bool:
        """Return whether a file was read without a trusted length, and say it to a person."""
        if self._any_length and not self._options.quiet and not getattr(self._options, "json", False):
            warn(_ANY_LENGTH)
        return self._any_length

    def _load(self, path: str) -> Key:
        options = self._options
        kind, name = split_reference(options.key_file) if options.key_file else ("env", options.key_env)
        if name and kind == "file":
            _refuse_key_as_name(name, "--key-file", "the name of a file")
            makes = hasattr(options, "key_metadata_out")
            hint = f"`ags1 keygen {shlex.quote(name)}` makes one" if makes else ""
            return Key(parse_key(self._read(name, hint=hint), name, note=_note))
        if name:
            if name not in os.environ:
                option = "--key-file env:NAME" if options.key_file else "--key-env"
                _refuse_key_as_name(name, option, "the name of a variable")
            return Key(key_of_variable(name))
        beside = path + KEY_METADATA_SUFFIX
        if os.path.exists(local_path(path) + KEY_METADATA_SUFFIX):
            raise UsageError(f"a key is needed: beside {path} stands {beside}, for --key-metadata {beside}")
        raise UsageError("a key is needed: --key-metadata PATH, --key-file FILE or --key-env NAME")

    def _from_metadata(self, where: str, path: str, name: str) -> KeyMetadata:
        if os.path.isdir(where):
            if not name:
                raise UsageError(f"standard input has no name to look for in {where}: give one file as --key-metadata")
            return self._decoded(metadata_beside(where, path, name))
        if self._metadata is None:
            _refuse_key_as_name(where, "--key-metadata", "the name of a file")
            self._metadata = self._decoded(where)
        return self._metadata

    def _decoded(self, path: str) -> KeyMetadata:
        hint = "give what --key-metadata-out named: a file, or a directory of them"
        return decode_metadata(self._read(path, "key metadata", hint), path)

    def _read(self, path: str, kind: str = "key file", hint: str = "") -> bytes:
        """The bytes of a file; if it is missing, `hint` says what to do."""
        try:
            data, mode = read_key_file(path, kind)
        except KeyAccessError as error:
            if hint and isinstance(error.__cause__, FileNotFoundError):
                raise KeyAccessError(f"{error}: {hint}") from error
            raise
        self._warned = self._warned or _warned_of_readers(path, mode)
        return data


def _warned_of_readers(path: str, mode: int) -> bool:
    """Warn of a key file that others can read; return whether it is one."""
    if not stat.S_ISREG(mode) or not mode & (stat.S_IRGRP | stat.S_IROTH):
        return False
    warn(f"ags1: warning: other users can read the key file {path} (mode {stat.S_IMODE(mode):04o}): chmod 600 it")
    return True


def _note(text: str) -> None:
    warn(f"ags1: warning: {text}")


def read_metadata(path: str) -> KeyMetadata | None:
    """The key metadata in a file, None if the file is missing or holds none."""
    try:
        return decode_metadata(read_key_file(path)[0], path)
    except KeyAccessError:
        return None


def _refuse_key_as_name(text: str, option: str, wanted: str) -> None:
    """Say what is wrong when the key itself was given, without repeating it."""
    if looks_like_key(text):
        raise UsageError(
            f"{option} needs {wanted}, but was given what looks like a key: other users can see the arguments, so do "
            "not use this key"
        )


def aad_prefix(options: argparse.Namespace, name: str) -> bytes:
    """The AAD prefix that the options say, for the encrypted file of this name."""
    text = options.aad_prefix
    if text is None or isinstance(text, bytes):
        return text or b""
    if not name and ("{name}" in text or "{path}" in text):
        raise UsageError(
            "a standard stream, or a path that ends with a slash, has no name for {name} or {path} in --aad-prefix: "
            "correct the path, or leave these out"
        )
    return os.fsencode(text_of_prefix(text, name.removesuffix(SUFFIX)))


def warn_of_same_prefix(options: argparse.Namespace, count: int) -> None:
    """Warn a person that many files are bound to one identity."""
    if not options.quiet and not options.json:
        warn(
            f"ags1: warning: {count:,} files get the same AAD prefix, so one can take another's place unnoticed: "
            "{path} in --aad-prefix gives each its own"
        )


def keygen(options: argparse.Namespace) -> int:
    if options.keyfile == "-" and options.format == "raw":
        refuse_terminal("a raw key", "use --format hex, or redirect the output")
    key = Key.generate(options.bits)
    data = bytes(key)
    if options.format == "hex":
        data = data.hex().encode() + b"\n"
    elif options.format == "base64":
        import base64

        data = base64.b64encode(data) + b"\n"
    if options.keyfile == "-":
        write_out(data)
        return 0
    write_private(options.keyfile, data, replace=options.force)
    say(f"wrote a fresh {key.bits}-bit key to {options.keyfile} (readable by you alone); keep a copy in a safe place")
    return 0


def write_private(path: str, data: bytes, *, replace: bool) -> None:
    """Write a secret to a file that only its owner can read. FileExistsError: it exists, and is not to be replaced."""
    from ags1.storage import AtomicFile

    exists = FileExistsError(errno.EEXIST, f"{SECRET_EXISTS} (--force replaces it)", path)
    if not replace and os.path.lexists(path):
        # AtomicFile would follow a dangling link.
        raise exists
    with AtomicFile(path, mode=0o600) as output:
        output.write(data)
        try:
            (output.commit if replace else output.commit_new)(durable=True)
        except FileExistsError:
            raise exists from None
        except OSError as error:
            if replace or error.errno != errno.ENOTSUP:
                raise
            write_secret(path, data)
