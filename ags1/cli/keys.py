"""Keys for the command line: from a file, an environment variable or key metadata, never from an argument."""

from __future__ import annotations

import errno
import os
import shlex
import stat
from argparse import Namespace

from ags1.cli.command import Positional, command
from ags1.cli.output import refuse_terminal, say, warn, write_out
from ags1.cli.paths import shown
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

KEY_HELP = """\
keys:
  A key is never taken from the command line, where every user of the machine
  could read it. A key file holds 16, 24 or 32 raw bytes (what `ags1 keygen`
  writes), or the same as hexadecimal or base64 text; an environment variable
  holds text. Key metadata is Iceberg's StandardKeyMetadata: key, AAD prefix
  and trusted length of one file.
"""
LENGTH_HELP = f"""\
{KEY_HELP}
lengths:
  Only a trusted length shows that blocks are missing at the end of a file.
  Key metadata has it; with a key alone, give the --length that `ags1 encrypt`
  said. A file without one is refused, unless --any-length accepts any.
"""
_LENGTHS = (
    "give the --key-metadata that `ags1 encrypt --key-metadata-out` wrote, the --length that `ags1 encrypt` said of "
    "this file, or --any-length to accept any length"
)
_ANY_LENGTH = "note: no trusted length was given, so blocks missing at the end of a file would go unnoticed"


class Keys:
    """The keys that the options name, if any are `named`. A key file is read once for all files: it may be a pipe.

    `length` are the options of what reads AGS1 files: their trusted length, or that any will do.
    """

    def __init__(self, given: Namespace, length: Namespace | None = None) -> None:
        self._given = given
        self._length = length
        self.named = bool(given.key_file or given.key_env or given.key_metadata)
        if given.key_metadata:
            given.key_metadata = local_path(given.key_metadata)
        self._key: Key | None = None
        self._metadata: KeyMetadata | None = None
        self._warned = False
        self._any_length = False
        if given.key_metadata and given.aad_prefix is not None:
            raise UsageError("--key-metadata already has an AAD prefix: leave --aad-prefix out")

    def metadata_for(self, path: str, name: str) -> KeyMetadata:
        """Key, AAD prefix and trusted length for the encrypted file at `path`, called `name` below what was given.

        UsageError: a file that is read has no trusted length, and --any-length is not given.
        """
        given, length = self._given, self._length
        if given.key_metadata:
            metadata = self._from_metadata(given.key_metadata, path, name)
        else:
            if self._key is None:
                self._key = self._load(path)
            metadata = KeyMetadata(self._key, aad_prefix(given.aad_prefix, name))
        if length is None:
            return metadata
        if length.length is not None:
            metadata = metadata.with_length(length.length)
        if metadata.file_length is None:
            if not length.any_length:
                what = "its key metadata has no length" if given.key_metadata else "no trusted length was given"
                raise UsageError(f"{shown(path)}: {what}, so blocks missing at its end would go unnoticed: {_LENGTHS}")
            self._any_length = True
        return metadata

    def note_any_length(self, said: Namespace) -> bool:
        """Return whether a file was read without a trusted length, and say it to a person."""
        if self._any_length and not said.quiet and not getattr(said, "json", False):
            warn(_ANY_LENGTH)
        return self._any_length

    def _load(self, path: str) -> Key:
        given = self._given
        kind, name = split_reference(given.key_file) if given.key_file else ("env", given.key_env)
        if name and kind == "file":
            refuse_key_as_name(name, "--key-file", "the name of a file")
            hint = f"`ags1 keygen {shlex.quote(name)}` makes one" if self._length is None else ""
            return Key(parse_key(self._read(name, hint=hint), name, note=note))
        if name:
            if name not in os.environ:
                option = "--key-file env:NAME" if given.key_file else "--key-env"
                refuse_key_as_name(name, option, "the name of a variable")
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
            refuse_key_as_name(where, "--key-metadata", "the name of a file")
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
        self._warned = self._warned or warned_of_readers(path, mode)
        return data


def warned_of_readers(path: str, mode: int) -> bool:
    """Warn of a key file that others can read; return whether it is one."""
    if not stat.S_ISREG(mode) or not mode & (stat.S_IRGRP | stat.S_IROTH):
        return False
    warn(f"ags1: warning: other users can read the key file {path} (mode {stat.S_IMODE(mode):04o}): chmod 600 it")
    return True


def note(text: str) -> None:
    warn(f"ags1: warning: {text}")


def read_metadata(path: str) -> KeyMetadata | None:
    """The key metadata in a file, None if the file is missing or holds none."""
    try:
        return decode_metadata(read_key_file(path)[0], path)
    except KeyAccessError:
        return None


def refuse_key_as_name(text: str, option: str, wanted: str) -> None:
    """Say what is wrong when the key itself was given, without repeating it."""
    if looks_like_key(text):
        raise UsageError(
            f"{option} needs {wanted}, but was given what looks like a key: other users can see the arguments, so do "
            "not use this key"
        )


def aad_prefix(text: str | bytes | None, name: str) -> bytes:
    """The AAD prefix that --aad-prefix says, for the encrypted file of this name."""
    if text is None or isinstance(text, bytes):
        return text or b""
    if not name and ("{name}" in text or "{path}" in text):
        raise UsageError(
            "a standard stream, or a path that ends with a slash, has no name for {name} or {path} in --aad-prefix: "
            "correct the path, or leave these out"
        )
    return os.fsencode(text_of_prefix(text, name.removesuffix(SUFFIX)))


def warn_of_same_prefix(said: Namespace, count: int) -> None:
    """Warn a person that many files are bound to one identity."""
    if not said.quiet and not said.json:
        warn(
            f"ags1: warning: {count:,} files get the same AAD prefix, so one can take another's place unnoticed: "
            "{path} in --aad-prefix gives each its own"
        )


@command(
    keyfile=Positional("KEYFILE", "file to write; `-` is standard output"),
    bits="bits",
    form="format",
    force="force",
    changed={
        "format": {"choices": ("raw", "hex", "base64"), "default": "raw", "help": "how to write it (raw)"},
        "force": "replace an existing file: what its key encrypted is lost",
    },
)
def keygen(keyfile: str, bits: int, form: str, force: bool) -> int:
    """Whoever has the key can read everything that it encrypts; whoever loses it, nothing.

    examples:
      ags1 keygen my.key
    """
    if keyfile == "-" and form == "raw":
        refuse_terminal("a raw key", "use --format hex, or redirect the output")
    key = Key.generate(bits)
    data = bytes(key)
    if form == "hex":
        data = data.hex().encode() + b"\n"
    elif form == "base64":
        import base64

        data = base64.b64encode(data) + b"\n"
    if keyfile == "-":
        write_out(data)
        return 0
    write_private(keyfile, data, replace=force)
    say(f"wrote a fresh {key.bits}-bit key to {keyfile} (readable by you alone); keep a copy in a safe place")
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
