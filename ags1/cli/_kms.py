"""``ags1 kms``: a local keystore, and wrapping and unwrapping with any key management service."""

from __future__ import annotations

import argparse
import os
import sys

from ags1._command_line import UsageError
from ags1.cli import say, say_json
from ags1.cli._keys import write_private
from ags1.cli._paths import STANDARD, shown
from ags1.cli._standard import refuse_terminal, standard_input, write_out
from ags1.errors import KeyAccessError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.kms import KeyManagementClient, LocalKms

# The most that any of the services takes: AWS.
_LARGEST = 4096


def kms(options: argparse.Namespace) -> int:
    action = options.action
    if action in ("wrap", "unwrap"):
        return _convert(options)
    if options.files:
        raise UsageError(f"`ags1 kms {action}` takes no files (see `ags1 kms --help`)")
    return _init(options) if action == "init" else _list(options)


def client_of(options: argparse.Namespace, *, new: bool = False) -> KeyManagementClient:
    """The client that --kms names; on a terminal it asks for a local keystore's password, twice if it is new."""
    from ags1.kms import load

    url = options.kms
    if not url:
        raise UsageError(
            "a KMS is needed: --kms URL or the variable AGS1_KMS, such as local:keys.json or aws:?region=eu-central-1"
        )
    secret: dict[str, Any] = {}
    if url.lower().startswith("local:"):
        secret = _secret_of(options, url, new=new)
    elif options.password_file or options.key_file:
        raise UsageError("--password-file and --key-file are for local: keystores")
    try:
        return load(url, **secret)
    except ValueError as error:
        raise UsageError(f"--kms: {error}") from None


def new_client_of(options: argparse.Namespace) -> KeyManagementClient:
    """The client that --new-kms names, else --kms.

    --password-file and --key-file are those of --kms: another local keystore has its own in its URL.
    """
    if options.new_kms is None:
        return client_of(options)
    both_local = all(str(url).lower().startswith("local:") for url in (options.kms, options.new_kms))
    secret = {} if both_local else {"password_file": None, "key_file": None}
    return client_of(argparse.Namespace(**{**vars(options), **secret, "kms": options.new_kms}))


def _secret_of(options: argparse.Namespace, url: str, *, new: bool) -> dict[str, Any]:
    if options.password_file and options.key_file:
        raise UsageError("give one of --password-file and --key-file")
    if options.password_file:
        return {"password_file": options.password_file}
    if options.key_file:
        return {"key_file": options.key_file}
    named = "password_file=" in url or "key_file=" in url
    if named or os.environ.get("AGS1_KMS_PASSWORD") or os.environ.get("KEYSTORE_PASSWORD"):
        return {}
    if sys.stdin is None or not sys.stdin.isatty():
        return {}
    import getpass

    name = url.partition(":")[2].partition("?")[0]
    try:
        password = getpass.getpass(f"{'New password' if new else 'Password'} of {name}: ")
        again = getpass.getpass("The same again: ") if new else password
    except EOFError:
        raise UsageError("no password was given") from None
    if password != again:
        raise UsageError("these were two different passwords: nothing was made")
    if not password:
        raise UsageError("an empty password protects nothing: nothing was done")
    return {"password": password}


def _init(options: argparse.Namespace) -> int:
    path = _local_path(options)
    exists = os.path.lexists(path)
    if exists and not options.key_ids:
        raise KeyAccessError(f"{path} exists and was not replaced: its keys would be lost (--key-id adds a key to it)")
    if len(set(options.key_ids)) != len(options.key_ids):
        raise UsageError("a --key-id is given twice")
    with _local(options, new=not exists) as client:
        present = set(client.list_keys()) if exists else set()
        for key_id in options.key_ids:
            if key_id in present:
                raise KeyAccessError(f"{path} has a key {key_id!r} already: what it wrapped would be lost")
        if options.dry_run:
            _say_of_init(path, exists, options, "would be")
            return 0
        if exists:
            for key_id in options.key_ids:
                client.add_key(key_id, bits=options.bits)
        else:
            from ags1._gcm import Key

            client.make({key_id: Key.generate(options.bits) for key_id in options.key_ids})
        _say_of_init(path, exists, options, "was")
    return 0


def _say_of_init(path: str, exists: bool, options: argparse.Namespace, verb: str) -> None:
    if not exists:
        say(f"the keystore {path} {verb} made, readable by you alone; keep a copy of it and of what opens it")
    for key_id in options.key_ids:
        say(f"a fresh {options.bits}-bit key {key_id!r} {verb} added to {path}")


def _list(options: argparse.Namespace) -> int:
    _local_path(options)
    with _local(options) as client:
        for key_id in client.list_keys():
            if options.json:
                say_json({"key_id": key_id})
            else:
                say(key_id)
    return 0


def _local_path(options: argparse.Namespace) -> str:
    url = options.kms or ""
    if not url.lower().startswith("local:"):
        raise UsageError(
            f"`ags1 kms {options.action}` is for local keystores (--kms local:PATH, or the variable AGS1_KMS); a "
            "service's keys are made and listed with its own tools"
        )
    return os.path.expanduser(url.partition(":")[2].partition("?")[0])


def _local(options: argparse.Namespace, *, new: bool = False) -> LocalKms:
    from ags1.kms import LocalKms

    client = client_of(options, new=new)
    assert isinstance(client, LocalKms)
    return client


def _convert(options: argparse.Namespace) -> int:
    """Wrap or unwrap the bytes of a file."""
    if len(options.files) != 2:
        raise UsageError(f"`ags1 kms {options.action}` takes two files: SOURCE TARGET (see `ags1 kms --help`)")
    if len(options.key_ids) != 1:
        raise UsageError(f"`ags1 kms {options.action}` takes one --key-id")
    source, target = options.files
    if target == STANDARD:
        refuse_terminal("raw bytes")
    if target != STANDARD and os.path.lexists(target) and not options.force:
        raise KeyAccessError(f"{target} exists and was not replaced (--force replaces it)")
    data = _read(source)
    with client_of(options) as client:
        convert = client.wrap_key if options.action == "wrap" else client.unwrap_key
        result = convert(data, options.key_ids[0])
    if target == STANDARD:
        write_out(result)
        return 0
    write_private(target, result, replace=options.force)
    say(f"{options.action}ped {shown(source)} to {target} ({len(result)} bytes, readable by you alone)")
    return 0


def _read(path: str) -> bytes:
    if path == STANDARD:
        data: bytes = standard_input().read(_LARGEST + 1)
    else:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    if not 0 < len(data) <= _LARGEST:
        held = "nothing" if not data else f"more than {_LARGEST} bytes"
        raise KeyAccessError(f"{shown(path)} holds {held}: keys are wrapped, not files (`ags1 encrypt` is for those)")
    return data
