"""``ags1 kms``: a local keystore, and wrapping and unwrapping with any key management service."""

from __future__ import annotations

import errno
import functools
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable

from ags1.cli.command import Command, Positional, command
from ags1.cli.keys import write_private
from ags1.cli.kms.clients import client_of
from ags1.cli.output import agreed, ask_password, refuse_terminal, say, say_json, standard_input, warn, write_out
from ags1.cli.paths import STANDARD, shown
from ags1.errors import KeyAccessError
from ags1.support.exit_codes import EXIT_USAGE, UsageError
from ags1.support.words import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.kms import KeyManagementClient, LocalKms

# The most that any of the services takes: AWS.
_LARGEST = 4096
_KEPT = "readable by you alone; keep a copy of it and of what opens it"
_BITS = {"bits": "size of new master keys (256)"}


def kms_command(options: str = "KMS", **settings: Any) -> Callable[[Callable[..., int]], Command]:
    """Make a function a command of ``ags1 kms``; its first parameter is what names the service, or the keystore."""
    return command(where=options, **settings)


@kms_command(
    key_ids="key-id",
    bits="bits",
    said="dry-run quiet",
    changed={"key-id": {"action": "append", "default": [], "help": "a key to add (may be repeated)"}, **_BITS},
)
def init(where: Namespace, key_ids: Any, bits: int, said: Namespace) -> int:
    """Nothing that exists is replaced.

    examples:
      ags1 keygen keystore.key
      export AGS1_KMS='local:keys.json?key_file=keystore.key'
      ags1 kms init --key-id lake
      ags1 kms init --kms local:keys.json --key-id lake
    """
    from ags1.core.gcm import Key
    from ags1.kms.local import check_key_id

    path = _local_path(where)
    exists = os.path.lexists(path)
    if exists and not key_ids:
        text = "it exists and was not replaced: its keys would be lost (--key-id adds a key to it)"
        raise FileExistsError(errno.EEXIST, text, path)
    if len(set(key_ids)) != len(key_ids):
        raise UsageError("a --key-id is given twice")
    for key_id in key_ids:
        check_key_id(key_id)
    with _local(where, new=not exists) as client:
        present = set(client.list_keys()) if exists else set()
        for key_id in key_ids:
            if key_id in present:
                text = f"it has a key {key_id!r} already: what that wrapped would be lost"
                raise FileExistsError(errno.EEXIST, text, path)
        if not (said.dry_run or exists):
            client.make({key_id: Key.generate(bits) for key_id in key_ids})
        elif not said.dry_run:
            for key_id in key_ids:
                client.add_key(key_id, bits=bits)
    verb = "would be" if said.dry_run else "was"
    if not exists:
        _tell(said, f"the keystore {path} {verb} made, {_KEPT}")
    for key_id in key_ids:
        _tell(said, f"a fresh {bits}-bit key {key_id!r} {verb} added to {path}")
    return 0


@kms_command(said="quiet json", fields="key_id, versions")
def list_(where: Namespace, said: Namespace) -> int:
    """The whole keystore is authenticated first.

    examples:
      ags1 kms list --kms local:keys.json
    """
    _local_path(where)
    with _local(where) as client:
        for key_id, versions in sorted(client.key_versions().items()):
            if said.json:
                say_json({"key_id": key_id, "versions": versions})
            else:
                say(key_id)
    return 0


@kms_command(key_id="key-id!", bits="bits", said="dry-run quiet", changed=_BITS)
def rotate(where: Namespace, key_id: str, bits: int, said: Namespace) -> int:
    """The fresh version wraps from now on, and the older ones still unwrap what they wrapped.

    examples:
      ags1 kms rotate --kms local:keys.json --key-id lake
    """
    path = _local_path(where)
    with _local(where) as client:
        count = client.key_versions().get(key_id, 0) + 1
        if said.dry_run:
            client.without(key_id)
            say(f"{key_id!r} in {path} would get version {count}")
            return 0
        count = client.rotate_key(key_id, bits=bits)
    following = f"ags1 kms remove --old-versions --key-id {shlex.quote(key_id)}"
    _tell(
        said,
        f"{key_id!r} in {path} has version {count}, a fresh {bits}-bit key, which wraps from now on; rewrap what the "
        f"older ones wrapped, then `{following}` destroys those",
    )
    return 0


@kms_command(
    files=Positional("[DATASET]...", "dataset, or directory of an Iceberg table", nargs="*"),
    key_id="key-id!",
    old_versions="old-versions",
    said="dry-run yes quiet json",
)
def remove(where: Namespace, files: Any, key_id: str, old_versions: bool, said: Namespace) -> int:
    """All data below it is destroyed. DATASETs and tables are looked at first, and what would be lost is said.

    examples:
      ags1 kms remove vault/ --kms local:keys.json --key-id tenant-a
    """
    path = _local_path(where)
    with _local(where) as client:
        with client.without(key_id, old_versions=old_versions) as rest:
            lost = [use for each in files for use in _uses(each, key_id, client, rest)]
        what = f"the {'old versions of' if old_versions else 'key'} {key_id!r} in {path}"
        for use in lost:
            say_json(use) if said.json else say(_said_of(use))
        if files and not lost and not said.json:
            say(f"of {', '.join(files)}, nothing needs {what}")
        if not files:
            warn(
                f"ags1: warning: no dataset or table was named, so nothing was looked at for what needs {what}; which "
                "master key a table is under, `ags1 iceberg inspect` says"
            )
        if said.dry_run:
            return EXIT_USAGE if lost else 0
        if not agreed(said, f"Destroy {what}? Nobody can read any more what only that opens."):
            return 0
        count = client.remove_key(key_id, old_versions=old_versions)
    if not said.json:
        _tell(said, f"{counted(count, 'version')} of {key_id!r} removed from {path}; destroy its copies too")
    return 0


@kms_command(new="new-password-file new-keystore-key-file add-secret only-secret", quiet="quiet")
def password(where: Namespace, new: Namespace, quiet: bool) -> int:
    """The master keys stay the same.

    examples:
      ags1 kms password --kms 'local:keys.json?key_file=old' --new-key-file new.key
    """
    path = _local_path(where)
    if new.new_password_file and new.new_key_file:
        raise UsageError("give one of --new-password-file and --new-key-file")
    if new.only_secret and (new.add_secret or new.new_password_file or new.new_key_file):
        raise UsageError("--only-secret keeps the secret that opens it: give no new one")
    with _local(where) as client:
        client.list_keys()
        if new.only_secret:
            count = counted(client.keep_one_secret(), "other secret")
            text = f"{path}: {count} removed; older copies of it still open with all of them"
        else:
            if new.new_password_file:
                given = {"password_file": new.new_password_file}
            elif new.new_key_file:
                given = {"key_file": new.new_key_file}
            elif sys.stdin is None or not sys.stdin.isatty():
                raise UsageError("a new password is needed: --new-password-file FILE or --new-key-file FILE")
            else:
                given = {"password": ask_password(path, new=True)}
            if new.add_secret:
                text = f"{path} is opened by each of {client.add_secret(**given)} secrets now"
            else:
                text = _said_of_others(path, client.rotate_password(**given) - 1)
    if not quiet:
        say(text)
    return 0


def _said_of_others(path: str, others: int) -> str:
    also, remark = "", ""
    if others:
        also = f", and by {counted(others, 'other secret')} as before"
        remark = "; who has such a copy and the old secret can open the new file too, until `--only-secret`"
    return f"{path} is opened by the new secret from now on{also}; older copies of it still are by the old one{remark}"


def _wrapping(function: Callable[..., int]) -> Command:
    source = Positional("SOURCE", "file with the bytes; `-` is standard input")
    target = Positional("TARGET", "file that only you can read; `-` is standard output")
    return kms_command(source=source, target=target, key_id="key-id!", said="force quiet")(function)


@_wrapping
def wrap(where: Namespace, source: str, target: str, key_id: str, said: Namespace) -> int:
    """What it wraps is a key, for example, of at most 4096 bytes.

    examples:
      ags1 kms wrap my.key my.key.wrapped --kms local:keys.json --key-id lake
    """
    from ags1.kms.asking import wrap_key
    from ags1.support.secrets import Secret

    def wrapped(client: KeyManagementClient, data: bytes) -> bytes:
        made: bytes = wrap_key(client, Secret(data), key_id, f"the key in {shown(source)} with {key_id!r}")
        return made

    return _convert(where, source, target, said, "wrapped", wrapped)


@_wrapping
def unwrap(where: Namespace, source: str, target: str, key_id: str, said: Namespace) -> int:
    r"""The opposite of `ags1 kms wrap`.

    examples:
      ags1 kms unwrap my.key.wrapped my.key --kms 'aws:?region=eu-central-1' \
          --key-id alias/lake
    """
    return _convert(where, source, target, said, "unwrapped", lambda client, data: client.unwrap_key(data, key_id))


def _convert(
    where: Namespace, source: str, target: str, said: Namespace, did: str,
    converted: Callable[[KeyManagementClient, bytes], bytes],
) -> int:  # fmt: skip
    if target == STANDARD:
        refuse_terminal("raw bytes")
    elif os.path.lexists(target) and not said.force:
        raise FileExistsError(errno.EEXIST, "it exists and was not replaced (--force replaces it)", target)
    data = _read(source)
    with client_of(where) as client:
        result = converted(client, data)
    if target == STANDARD:
        write_out(result)
        return 0
    write_private(target, result, replace=said.force)
    _tell(said, f"{did} {shown(source)} to {target} ({len(result)} bytes, readable by you alone)")
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


def _tell(said: Namespace, line: str) -> None:
    """Say what was done, unless --quiet is given."""
    if not said.quiet:
        say(line)


def _local_path(where: Namespace) -> str:
    url = where.kms or ""
    if not url.lower().startswith("local:"):
        raise UsageError(
            "this is for local keystores (--kms local:PATH, or the variable AGS1_KMS); a service's keys are made and "
            "listed with its own tools"
        )
    return os.path.expanduser(url.partition(":")[2].partition("?")[0])


def _local(where: Namespace, *, new: bool = False) -> LocalKms:
    from ags1.kms import LocalKms

    client = client_of(where, new=new)
    assert isinstance(client, LocalKms)
    return client


# -- what needs a key ----------------------------------------------------------------------------------------------


def _uses(where: str, key_id: str, client: LocalKms, rest: KeyManagementClient) -> list[dict[str, Any]]:
    """The versions of a dataset that can't be read without the key that is to be removed."""
    from ags1 import dataset
    from ags1.dataset.versions import damaged, kept_versions
    from ags1.storage import Location

    if (table := _metadata_files(where)) is not None:
        return _uses_of_table(where, table, key_id, rest)
    found: list[dict[str, Any]] = []
    with dataset.open(where, client):
        # Also those that no later version names: they can be read as well.
        for each in kept_versions(Location(where)):
            if each.error is not None:
                raise damaged(Location(where), each.number, each.error)
            if each.version is not None and each.version.key_id == key_id:
                try:
                    each.version.key.unwrap(rest)
                except KeyAccessError:
                    use = {"dataset": where, "version": each.number, "key_id": key_id}
                    found.insert(0, {**use, "files": each.version.file_count})
    return found


def _metadata_files(where: str) -> list[str] | None:
    """The metadata files in the directory of an Iceberg table; None if it is none."""
    from ags1.iceberg.metadata.metadata_document import is_metadata_file
    from ags1.storage import Location, list_names

    try:
        names = list_names(Location(where).join("metadata"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return sorted(each for each in names if is_metadata_file(each)) or None


def _uses_of_table(where: str, names: list[str], key_id: str, rest: KeyManagementClient) -> list[dict[str, Any]]:
    """The metadata files of a table that have snapshots which can't be read without the key that is to be removed.

    As of an audit, expired snapshots do not count: their manifest lists are gone.
    """
    from ags1.iceberg import EncryptionKeys
    from ags1.iceberg.catalogs.file import MAX_DOCUMENT, newest_files
    from ags1.iceberg.metadata.locations import location_of
    from ags1.iceberg.metadata.metadata_document import metadata_document
    from ags1.storage import Location, read_whole, status

    @functools.cache
    def is_there(path: str) -> bool:
        try:
            status(location_of(path, {}))
        except FileNotFoundError:
            return False
        except (OSError, ValueError):
            # Another store, or no permission: nothing says that it is gone.
            return True
        return True

    found = []
    newest = {each.rpartition("/")[2] for each in newest_files(where)}
    for name in sorted(names, key=lambda each: each not in newest):
        path = Location(where).join(f"metadata/{name}")
        document = metadata_document(path.text, bytes(read_whole(path, MAX_DOCUMENT)))
        keys, lost = EncryptionKeys(document.entries()), set[str]()
        for entry in keys:
            if entry.encrypted_by_id == key_id and entry.key_id not in lost:
                try:
                    rest.unwrap_key(entry.encrypted_key_metadata, key_id)
                except KeyAccessError:
                    lost |= {entry.key_id, *(each.key_id for each in keys.below(entry.key_id))}
        snapshots = [each for each in document.fields.get("snapshots") or () if each.get("key-id") in lost]
        count = sum(is_there(each.get("manifest-list", "")) for each in snapshots)
        if count or (lost and name in newest):
            use = {"table": where, "metadata_file": name, "is_newest": name in newest, "key_id": key_id}
            found.append({**use, "snapshots": count})
    return found


def _said_of(use: dict[str, Any]) -> str:
    if "table" in use:
        age = "its newest" if use["is_newest"] else "an older"
        count = counted(use["snapshots"], "snapshot")
        return f"{use['table']}, {use['metadata_file']}, {age} metadata file: {count} can't be read without it"
    return f"{use['dataset']}, version {use['version']}: {counted(use['files'], 'file')} can't be read without it"
