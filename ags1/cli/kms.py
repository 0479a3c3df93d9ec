"""``ags1 kms``: a local keystore, and wrapping and unwrapping with any key management service."""

from __future__ import annotations

import argparse
import errno
import os
import sys

from ags1.cli import say, say_json, warn
from ags1.cli.consent import agreed
from ags1.cli.keys import write_private
from ags1.cli.paths import STANDARD, shown
from ags1.cli.standard import ask_password, refuse_terminal, standard_input, write_out
from ags1.errors import KeyAccessError
from ags1.support.exit_codes import UsageError
from ags1.support.reports import UNCHECKED
from ags1.support.words import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.kms import KeyManagementClient, LocalKms

# The most that any of the services takes: AWS.
_LARGEST = 4096
_KEPT = "readable by you alone; keep a copy of it and of what opens it"
_SEE = "`ags1 dataset classes` counts the files of each pattern"


def kms(options: argparse.Namespace) -> int:
    action = options.action
    for option, actions in _OF_ACTIONS.items():
        if getattr(options, option) and action not in actions:
            flag = "--" + option.replace("_", "-")
            raise UsageError(f"{flag} is for `ags1 kms {' and '.join(actions)}` (see `ags1 kms --help`)")
    if options.files and action not in ("wrap", "unwrap", "remove"):
        raise UsageError(f"`ags1 kms {action}` takes no files (see `ags1 kms --help`)")
    return _ACTIONS[action](options)


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
        client = load(url, **secret)
    except ValueError as error:
        raise UsageError(f"--kms: {error}") from None
    if not client.checks_keys:
        warn(UNCHECKED)
    return client


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
    return {"password": ask_password(url.partition(":")[2].partition("?")[0], new=new)}


def _init(options: argparse.Namespace) -> int:
    from ags1.kms.local import check_key_id

    path = _local_path(options)
    exists = os.path.lexists(path)
    if exists and not options.key_ids:
        said = "it exists and was not replaced: its keys would be lost (--key-id adds a key to it)"
        raise FileExistsError(errno.EEXIST, said, path)
    if len(set(options.key_ids)) != len(options.key_ids):
        raise UsageError("a --key-id is given twice")
    for key_id in options.key_ids:
        check_key_id(key_id)
    with _local(options, new=not exists) as client:
        present = set(client.list_keys()) if exists else set()
        for key_id in options.key_ids:
            if key_id in present:
                said = f"it has a key {key_id!r} already: what that wrapped would be lost"
                raise FileExistsError(errno.EEXIST, said, path)
        if options.dry_run:
            _say_of_init(path, exists, options, "would be")
            return 0
        if exists:
            for key_id in options.key_ids:
                client.add_key(key_id, bits=options.bits)
        else:
            from ags1.core.gcm import Key

            client.make({key_id: Key.generate(options.bits) for key_id in options.key_ids})
        _say_of_init(path, exists, options, "was")
    return 0


def _tell(options: argparse.Namespace, line: str) -> None:
    """Say what was done, unless --quiet is given."""
    if not options.quiet:
        say(line)


def _say_of_init(path: str, exists: bool, options: argparse.Namespace, verb: str) -> None:
    if not exists:
        _tell(options, f"the keystore {path} {verb} made, {_KEPT}")
    for key_id in options.key_ids:
        _tell(options, f"a fresh {options.bits}-bit key {key_id!r} {verb} added to {path}")


def _list(options: argparse.Namespace) -> int:
    _local_path(options)
    with _local(options) as client:
        for key_id, versions in sorted(client.key_versions().items()):
            if options.json:
                say_json({"key_id": key_id, "versions": versions})
            else:
                say(key_id)
    return 0


def _rotate(options: argparse.Namespace) -> int:
    path, key_id = _local_path(options), _one_key_id(options)
    with _local(options) as client:
        count = client.key_versions().get(key_id, 0) + 1
        if options.dry_run:
            client.without(key_id)
            say(f"{key_id!r} in {path} would get version {count}")
            return 0
        count = client.rotate_key(key_id, bits=options.bits)
    _tell(
        options,
        f"{key_id!r} in {path} has version {count}, a fresh {options.bits}-bit key, which wraps from now on; rewrap "
        f"what the older ones wrapped, then `ags1 kms remove --old-versions --key-id {key_id}` destroys those",
    )
    return 0


def _remove(options: argparse.Namespace) -> int:
    path, key_id = _local_path(options), _one_key_id(options)
    with _local(options) as client:
        with client.without(key_id, old_versions=options.old_versions) as rest:
            lost = [use for where in options.files for use in _uses(where, key_id, client, rest)]
        what = f"the {'old versions of' if options.old_versions else 'key'} {key_id!r} in {path}"
        for use in lost:
            say_json(use) if options.json else say(_said_of(use))
        if options.files and not lost and not options.json:
            say(f"of {', '.join(options.files)}, nothing needs {what}")
        for dataset in options.files:
            uses = [use for use in lost if use.get("dataset") == dataset]
            if uses and not any(use["files"] != 0 for use in uses):
                warn(f"ags1: warning: {dataset}: no file is under {what}, so this shreds none: {_SEE}")
        if not options.files:
            warn(
                f"ags1: warning: no dataset or table was named, so nothing was looked at for what needs {what}; which "
                "master key a table is under, `ags1 iceberg inspect` says"
            )
        if options.dry_run:
            return 0
        if not agreed(options, f"Destroy {what}? Nobody can read any more what only that opens."):
            return 0
        count = client.remove_key(key_id, old_versions=options.old_versions)
    if not options.json:
        _tell(options, f"{counted(count, 'version')} of {key_id!r} removed from {path}; destroy its copies too")
    return 0


def _uses(where: str, key_id: str, client: LocalKms, rest: KeyManagementClient) -> list[dict[str, Any]]:
    """The versions of a dataset, and patterns in them, that can't be read without the key that is to be removed."""
    from ags1 import dataset
    from ags1.dataset.classes import ClassKeys

    if (table := _metadata_files(where)) is not None:
        return _uses_of_table(where, table, key_id, rest)
    found = []
    with dataset.open(where, client) as opened:
        for version in opened.versions():
            keys = ClassKeys(version.classes, rest, where)
            for each in version.classes:
                if each.key_id != key_id:
                    continue
                try:
                    keys.key(each.id)
                except KeyAccessError:
                    use = {"dataset": where, "version": version.version, "pattern": each.pattern, "key_id": key_id}
                    found.append({**use, "files": _files_of(where, version, each, client)})
    return found


def _metadata_files(where: str) -> list[str] | None:
    """The metadata files in the directory of an Iceberg table; None if it is none."""
    from ags1.iceberg.metadata.metadata_names import is_metadata_file
    from ags1.storage import Location, list_names

    try:
        names = list_names(Location(where).join("metadata"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return sorted(each for each in names if is_metadata_file(each)) or None


def _uses_of_table(where: str, names: list[str], key_id: str, rest: KeyManagementClient) -> list[dict[str, Any]]:
    """The metadata files of a table that have snapshots which can't be read without the key that is to be removed."""
    from ags1.iceberg import EncryptionKeys
    from ags1.iceberg.catalogs.file import MAX_DOCUMENT, newest_metadata
    from ags1.iceberg.metadata.metadata_document import metadata_document
    from ags1.storage import Location, read_whole

    found = []
    newest = newest_metadata(where).rpartition("/")[2]
    for name in sorted(names, key=lambda each: each != newest):
        path = Location(where).join(f"metadata/{name}")
        document = metadata_document(path.text, bytes(read_whole(path, MAX_DOCUMENT)))
        keys, lost = EncryptionKeys(document.entries()), set[str]()
        for entry in keys:
            if entry.encrypted_by_id == key_id and entry.key_id not in lost:
                try:
                    rest.unwrap_key(entry.encrypted_key_metadata, key_id)
                except KeyAccessError:
                    lost |= {entry.key_id, *(each.key_id for each in keys.below(entry.key_id))}
        count = sum(each.get("key-id") in lost for each in document.fields.get("snapshots") or ())
        if lost:
            use = {"table": where, "metadata_file": name, "is_newest": name == newest, "key_id": key_id}
            found.append({**use, "snapshots": count})
    return found


def _files_of(where: str, version: Any, key_class: Any, client: LocalKms) -> int | None:
    """How many files of a version a class opens; those of the default class open the manifests. None: unknown."""
    from ags1 import dataset

    try:
        with dataset.open(where, client, version=version.version) as opened:
            return len(opened.files) if key_class.pattern == "**" else opened.class_counts()[key_class.id]
    except KeyAccessError:
        # The manifests are under a key that this keystore does not have any more.
        return None


def _said_of(use: dict[str, Any]) -> str:
    if "table" in use:
        age = "its newest" if use["is_newest"] else "an older"
        count = counted(use["snapshots"], "snapshot")
        return f"{use['table']}, {use['metadata_file']}, {age} metadata file: {count} can't be read without it"
    count = "files" if use["files"] is None else counted(use["files"], "file")
    files = f"{count} of {'a pattern that was replaced' if use['pattern'] is None else repr(use['pattern'])}"
    if use["pattern"] == "**":
        # The manifests are under this one.
        files = "all files" if use["files"] is None else f"all files ({use['files']:,})"
    return f"{use['dataset']}, version {use['version']}: {files} can't be read without it"


def _password(options: argparse.Namespace) -> int:
    path = _local_path(options)
    if options.new_password_file and options.new_key_file:
        raise UsageError("give one of --new-password-file and --new-key-file")
    if options.only_secret and (options.add_secret or options.new_password_file or options.new_key_file):
        raise UsageError("--only-secret keeps the secret that opens it: give no new one")
    with _local(options) as client:
        client.list_keys()
        if options.only_secret:
            removed = client.keep_one_secret()
            _tell(
                options,
                f"{path}: {counted(removed, 'other secret')} removed; older copies of it still open with all of them",
            )
            return 0
        if options.new_password_file:
            given = {"password_file": options.new_password_file}
        elif options.new_key_file:
            given = {"key_file": options.new_key_file}
        elif sys.stdin is None or not sys.stdin.isatty():
            raise UsageError("a new password is needed: --new-password-file FILE or --new-key-file FILE")
        else:
            given = {"password": ask_password(path, new=True)}
        if options.add_secret:
            _tell(options, f"{path} is opened by each of {client.add_secret(**given)} secrets now")
            return 0
        client.rotate_password(**given)
    _tell(options, f"{path} is opened by the new secret from now on; older copies of it still are by the old one")
    return 0


def _one_key_id(options: argparse.Namespace) -> str:
    if len(options.key_ids) != 1:
        raise UsageError(f"`ags1 kms {options.action}` takes one --key-id")
    return str(options.key_ids[0])


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
    from ags1.kms.asking import wrap_key
    from ags1.support.secrets import Secret

    if len(options.files) != 2:
        raise UsageError(f"`ags1 kms {options.action}` takes two files: SOURCE TARGET (see `ags1 kms --help`)")
    key_id = _one_key_id(options)
    source, target = options.files
    if target == STANDARD:
        refuse_terminal("raw bytes")
    if target != STANDARD and os.path.lexists(target) and not options.force:
        raise FileExistsError(errno.EEXIST, "it exists and was not replaced (--force replaces it)", target)
    data = _read(source)
    with client_of(options) as client:
        if options.action == "wrap":
            result = wrap_key(client, Secret(data), key_id, f"the key in {shown(source)} with {key_id!r}")
        else:
            result = client.unwrap_key(data, key_id)
    if target == STANDARD:
        write_out(result)
        return 0
    write_private(target, result, replace=options.force)
    _tell(options, f"{options.action}ped {shown(source)} to {target} ({len(result)} bytes, readable by you alone)")
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


_ACTIONS = {
    "init": _init,
    "list": _list,
    "rotate": _rotate,
    "remove": _remove,
    "password": _password,
    "wrap": _convert,
    "unwrap": _convert,
}
# What other actions refuse, so that nothing that was said is silently left out.
_OF_ACTIONS = {
    "new_password_file": ("password",),
    "new_key_file": ("password",),
    "add_secret": ("password",),
    "only_secret": ("password",),
    "old_versions": ("remove",),
    "yes": ("remove",),
}
