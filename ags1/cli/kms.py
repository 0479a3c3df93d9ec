"""``ags1 kms``: a local keystore, and wrapping and unwrapping with any key management service."""

from __future__ import annotations

import errno
import functools
import os
import shlex
import sys
from argparse import Namespace

from ags1.cli.command import Positional, command
from ags1.cli.consent import agreed
from ags1.cli.keys import write_private
from ags1.cli.output import say, say_json, warn
from ags1.cli.paths import STANDARD, shown
from ags1.cli.standard import ask_password, refuse_terminal, standard_input, write_out
from ags1.errors import KeyAccessError
from ags1.support.exit_codes import EXIT_USAGE, UsageError
from ags1.support.reports import UNCHECKED
from ags1.support.words import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.kms import KeyManagementClient, LocalKms

# The most that any of the services takes: AWS.
_LARGEST = 4096
_KEPT = "readable by you alone; keep a copy of it and of what opens it"


_HELP = """\
actions:
  init     make a local keystore, or add keys to one that exists
  list     list the key ids of a local keystore
  rotate   give a key of a local keystore a fresh version: that one wraps from
           now on, and the older ones still unwrap what they wrapped
  remove   destroy a key of a local keystore, and with it all data below it;
           DATASETs and Iceberg tables without a catalog, given by their
           directories, are looked at first, and what would be lost is said
  password change the password or key file of a local keystore, or add another
           one that opens it too
  wrap     wrap the bytes of a file, a key for example
  unwrap   unwrap them; the result is a file that only you can read

services:
  local:PATH                             a keystore file; password from
                                         --password-file, AGS1_KMS_PASSWORD,
                                         or the terminal
{services}
  module:package.module.Class            a client of your own
  Secrets never stand in the URL, where every user of the machine could read
  them. The variable AGS1_KMS stands for --kms.

options of a URL, ?NAME=VALUE&NAME=VALUE behind it, in quotes for the shell:
{options}, check; of a service also timeout

examples:
  ags1 keygen keystore.key
  export AGS1_KMS='local:keys.json?key_file=keystore.key'
  ags1 kms init --key-id lake
  ags1 kms init --kms local:keys.json --key-id lake
  ags1 kms remove vault/ --kms local:keys.json --key-id tenant-a
  ags1 kms wrap my.key my.key.wrapped --kms local:keys.json --key-id lake
  ags1 kms unwrap my.key.wrapped my.key --kms 'aws:?region=eu-central-1' \\
      --key-id alias/lake
"""


def _help() -> str:
    from ags1.kms.services import COMMON_OPTIONS, LOCAL_OPTIONS, SERVICES

    options = {"local": LOCAL_OPTIONS, **{name: each.options for name, each in SERVICES.items()}}
    options["any"] = COMMON_OPTIONS
    return _HELP.format(
        services="\n".join(f"  {each.form:<37}  {each.what}" for each in SERVICES.values()),
        options="\n".join(f"  {name:<9} {', '.join(sorted(each))}" for name, each in options.items()),
    )


@command(
    asked=(
        Positional(
            "ACTION",
            "what to do",
            dest="action",
            choices=("init", "list", "rotate", "remove", "password", "wrap", "unwrap"),
        ),
        Positional(
            "[SOURCE TARGET | DATASET...]",
            "what wrap and unwrap read and write (`-` is a standard stream), or what remove looks at",
            dest="files",
            nargs="*",
            default=[],
        ),
        "KMS new-password-file new-keystore-key-file add-secret only-secret",
        "key-id bits old-versions force dry-run yes quiet json",
    ),
    epilog=_help(),
    changed={
        "key-id": {"action": "append", "default": [], "help": "master key; init takes several"},
        "bits": "size of new master keys (256)",
        "force": "let wrap and unwrap replace an existing TARGET",
        "dry-run": "only say what init, rotate or remove would do",
    },
)
def kms(asked: Namespace) -> int:
    action: str = asked.action
    for option, actions in _OF_ACTIONS.items():
        if getattr(asked, option) and action not in actions:
            flag = "--" + option.replace("_", "-")
            raise UsageError(f"{flag} is for `ags1 kms {' and '.join(actions)}` (see `ags1 kms --help`)")
    if asked.files and action not in ("wrap", "unwrap", "remove"):
        raise UsageError(f"`ags1 kms {action}` takes no files (see `ags1 kms --help`)")
    return _ACTIONS[action](asked)


def client_of(given: Namespace, *, new: bool = False) -> KeyManagementClient:
    """The client that --kms names; on a terminal it asks for a local keystore's password, twice if it is new."""
    from ags1.kms import load

    url = given.kms
    if not url:
        raise UsageError(
            "a KMS is needed: --kms URL or the variable AGS1_KMS, such as local:keys.json or aws:?region=eu-central-1"
        )
    secret: dict[str, Any] = {}
    if url.lower().startswith("local:"):
        secret = _secret_of(given, url, new=new)
    elif given.password_file or given.key_file:
        raise UsageError("--password-file and --key-file are for local: keystores")
    try:
        client = load(url, **secret)
    except ValueError as error:
        raise UsageError(f"--kms: {error}") from None
    if not client.checks_keys:
        warn(UNCHECKED)
    return client


def new_client_of(given: Namespace, url: str | None) -> KeyManagementClient:
    """The client for the `url` of --new-kms; without one, that of --kms.

    --password-file and --key-file are those of --kms: another local keystore has its own in its URL.
    """
    if url is None:
        return client_of(given)
    both_local = all(str(each).lower().startswith("local:") for each in (given.kms, url))
    secret = {} if both_local else {"password_file": None, "key_file": None}
    return client_of(Namespace(**{**vars(given), **secret, "kms": url}))


def _secret_of(given: Namespace, url: str, *, new: bool) -> dict[str, Any]:
    if given.password_file and given.key_file:
        raise UsageError("give one of --password-file and --key-file")
    if given.password_file:
        return {"password_file": given.password_file}
    if given.key_file:
        return {"key_file": given.key_file}
    named = "password_file=" in url or "key_file=" in url
    if named or os.environ.get("AGS1_KMS_PASSWORD") or os.environ.get("KEYSTORE_PASSWORD"):
        return {}
    if sys.stdin is None or not sys.stdin.isatty():
        return {}
    return {"password": ask_password(url.partition(":")[2].partition("?")[0], new=new)}


def _init(asked: Namespace) -> int:
    from ags1.kms.local import check_key_id

    path = _local_path(asked)
    exists = os.path.lexists(path)
    if exists and not asked.key_id:
        said = "it exists and was not replaced: its keys would be lost (--key-id adds a key to it)"
        raise FileExistsError(errno.EEXIST, said, path)
    if len(set(asked.key_id)) != len(asked.key_id):
        raise UsageError("a --key-id is given twice")
    for key_id in asked.key_id:
        check_key_id(key_id)
    with _local(asked, new=not exists) as client:
        present = set(client.list_keys()) if exists else set()
        for key_id in asked.key_id:
            if key_id in present:
                said = f"it has a key {key_id!r} already: what that wrapped would be lost"
                raise FileExistsError(errno.EEXIST, said, path)
        if asked.dry_run:
            _say_of_init(path, exists, asked, "would be")
            return 0
        if exists:
            for key_id in asked.key_id:
                client.add_key(key_id, bits=asked.bits)
        else:
            from ags1.core.gcm import Key

            client.make({key_id: Key.generate(asked.bits) for key_id in asked.key_id})
        _say_of_init(path, exists, asked, "was")
    return 0


def _tell(asked: Namespace, line: str) -> None:
    """Say what was done, unless --quiet is given."""
    if not asked.quiet:
        say(line)


def _say_of_init(path: str, exists: bool, asked: Namespace, verb: str) -> None:
    if not exists:
        _tell(asked, f"the keystore {path} {verb} made, {_KEPT}")
    for key_id in asked.key_id:
        _tell(asked, f"a fresh {asked.bits}-bit key {key_id!r} {verb} added to {path}")


def _list(asked: Namespace) -> int:
    _local_path(asked)
    with _local(asked) as client:
        for key_id, versions in sorted(client.key_versions().items()):
            if asked.json:
                say_json({"key_id": key_id, "versions": versions})
            else:
                say(key_id)
    return 0


def _rotate(asked: Namespace) -> int:
    path, key_id = _local_path(asked), _one_key_id(asked)
    with _local(asked) as client:
        count = client.key_versions().get(key_id, 0) + 1
        if asked.dry_run:
            client.without(key_id)
            say(f"{key_id!r} in {path} would get version {count}")
            return 0
        count = client.rotate_key(key_id, bits=asked.bits)
    command = f"ags1 kms remove --old-versions --key-id {shlex.quote(key_id)}"
    _tell(
        asked,
        f"{key_id!r} in {path} has version {count}, a fresh {asked.bits}-bit key, which wraps from now on; rewrap "
        f"what the older ones wrapped, then `{command}` destroys those",
    )
    return 0


def _remove(asked: Namespace) -> int:
    path, key_id = _local_path(asked), _one_key_id(asked)
    with _local(asked) as client:
        with client.without(key_id, old_versions=asked.old_versions) as rest:
            lost = [use for where in asked.files for use in _uses(where, key_id, client, rest)]
        what = f"the {'old versions of' if asked.old_versions else 'key'} {key_id!r} in {path}"
        for use in lost:
            say_json(use) if asked.json else say(_said_of(use))
        if asked.files and not lost and not asked.json:
            say(f"of {', '.join(asked.files)}, nothing needs {what}")
        if not asked.files:
            warn(
                f"ags1: warning: no dataset or table was named, so nothing was looked at for what needs {what}; which "
                "master key a table is under, `ags1 iceberg inspect` says"
            )
        if asked.dry_run:
            return EXIT_USAGE if lost else 0
        if not agreed(asked, f"Destroy {what}? Nobody can read any more what only that opens."):
            return 0
        count = client.remove_key(key_id, old_versions=asked.old_versions)
    if not asked.json:
        _tell(asked, f"{counted(count, 'version')} of {key_id!r} removed from {path}; destroy its copies too")
    return 0


def _uses(where: str, key_id: str, client: LocalKms, rest: KeyManagementClient) -> list[dict[str, Any]]:
    """The versions of a dataset that can't be read without the key that is to be removed."""
    from ags1 import dataset

    if (table := _metadata_files(where)) is not None:
        return _uses_of_table(where, table, key_id, rest)
    found = []
    with dataset.open(where, client) as opened:
        for version in opened.versions():
            if version.key_id == key_id:
                try:
                    version.key.unwrap(rest)
                except KeyAccessError:
                    use = {"dataset": where, "version": version.version, "key_id": key_id}
                    found.append({**use, "files": version.file_count})
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
    from ags1.iceberg.catalogs.file import MAX_DOCUMENT, newest_metadata
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
        snapshots = [each for each in document.fields.get("snapshots") or () if each.get("key-id") in lost]
        count = sum(is_there(each.get("manifest-list", "")) for each in snapshots)
        if count or (lost and name == newest):
            use = {"table": where, "metadata_file": name, "is_newest": name == newest, "key_id": key_id}
            found.append({**use, "snapshots": count})
    return found


def _said_of(use: dict[str, Any]) -> str:
    if "table" in use:
        age = "its newest" if use["is_newest"] else "an older"
        count = counted(use["snapshots"], "snapshot")
        return f"{use['table']}, {use['metadata_file']}, {age} metadata file: {count} can't be read without it"
    return f"{use['dataset']}, version {use['version']}: {counted(use['files'], 'file')} can't be read without it"


def _password(asked: Namespace) -> int:
    path = _local_path(asked)
    if asked.new_password_file and asked.new_key_file:
        raise UsageError("give one of --new-password-file and --new-key-file")
    if asked.only_secret and (asked.add_secret or asked.new_password_file or asked.new_key_file):
        raise UsageError("--only-secret keeps the secret that opens it: give no new one")
    with _local(asked) as client:
        client.list_keys()
        if asked.only_secret:
            removed = client.keep_one_secret()
            _tell(
                asked,
                f"{path}: {counted(removed, 'other secret')} removed; older copies of it still open with all of them",
            )
            return 0
        if asked.new_password_file:
            given = {"password_file": asked.new_password_file}
        elif asked.new_key_file:
            given = {"key_file": asked.new_key_file}
        elif sys.stdin is None or not sys.stdin.isatty():
            raise UsageError("a new password is needed: --new-password-file FILE or --new-key-file FILE")
        else:
            given = {"password": ask_password(path, new=True)}
        if asked.add_secret:
            _tell(asked, f"{path} is opened by each of {client.add_secret(**given)} secrets now")
            return 0
        others = client.rotate_password(**given) - 1
    also, remark = "", ""
    if others:
        also = f", and by {counted(others, 'other secret')} as before"
        remark = "; who has such a copy and the old secret can open the new file too, until `--only-secret`"
    said = f"{path} is opened by the new secret from now on{also}; older copies of it still are by the old one"
    _tell(asked, said + remark)
    return 0


def _one_key_id(asked: Namespace) -> str:
    if len(asked.key_id) != 1:
        raise UsageError(f"`ags1 kms {asked.action}` takes one --key-id")
    return str(asked.key_id[0])


def _local_path(asked: Namespace) -> str:
    url = asked.kms or ""
    if not url.lower().startswith("local:"):
        raise UsageError(
            f"`ags1 kms {asked.action}` is for local keystores (--kms local:PATH, or the variable AGS1_KMS); a "
            "service's keys are made and listed with its own tools"
        )
    return os.path.expanduser(url.partition(":")[2].partition("?")[0])


def _local(asked: Namespace, *, new: bool = False) -> LocalKms:
    from ags1.kms import LocalKms

    client = client_of(asked, new=new)
    assert isinstance(client, LocalKms)
    return client


def _convert(asked: Namespace) -> int:
    """Wrap or unwrap the bytes of a file."""
    from ags1.kms.asking import wrap_key
    from ags1.support.secrets import Secret

    if len(asked.files) != 2:
        raise UsageError(f"`ags1 kms {asked.action}` takes two files: SOURCE TARGET (see `ags1 kms --help`)")
    key_id = _one_key_id(asked)
    source, target = asked.files
    if target == STANDARD:
        refuse_terminal("raw bytes")
    if target != STANDARD and os.path.lexists(target) and not asked.force:
        raise FileExistsError(errno.EEXIST, "it exists and was not replaced (--force replaces it)", target)
    data = _read(source)
    with client_of(asked) as client:
        if asked.action == "wrap":
            result = wrap_key(client, Secret(data), key_id, f"the key in {shown(source)} with {key_id!r}")
        else:
            result = client.unwrap_key(data, key_id)
    if target == STANDARD:
        write_out(result)
        return 0
    write_private(target, result, replace=asked.force)
    _tell(asked, f"{asked.action}ped {shown(source)} to {target} ({len(result)} bytes, readable by you alone)")
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
