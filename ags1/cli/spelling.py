"""Arguments of functions in messages, as options of commands.

Messages of the library have an argument in backquotes, as `name` or `name=value`. In Python it is read so; a command
has its option there. Where it has none, the environment is the way, and the argument is left out.
"""

from __future__ import annotations

import re
from functools import cache

from ags1.errors import KeyAccessError
from ags1.support.exit_codes import describe as described

_ARGUMENT = re.compile(r"`([A-Za-z][\w.]*)(?:=([^`]*))?`")
# One of several ways, at the end of a list: commands take settings of a storage from the environment, or --property.
_STORAGE = re.compile(", or (set [a-z ]+ in )?`storage_options`")
# Where a file is re-keyed, the options for reading begin with --old-.
_READING = re.compile("--(?=footer|column|key-for|key-metadata|aad)")
# Arguments and functions that have another name on a command line.
_OTHER_NAMES = {
    "LocalKms.create": "`ags1 kms init`",
    "column_keys": "--column-key",
    "decryption": "--footer-key, --key-for, --kms or --key-metadata",
    "encrypt_table": "`ags1 iceberg encrypt`",
    "expire_snapshots": "`ags1 iceberg expire`",
    "key": "--key-file",
    "key_retriever": "--key-for",
    "load_table": "--catalog",
    "rekey_file": "`ags1 parquet rekey`",
    "rekey_table": "`ags1 iceberg rekey`",
}


def refuses_everything(error: BaseException) -> bool:
    """Whether it is a key management service that refuses whoever asks, or cannot be reached."""
    if not isinstance(error, KeyAccessError):
        return False
    from ags1.kms import ServiceRefusal

    return isinstance(error, ServiceRefusal)


def describe(error: BaseException, *, old: bool = False, properties: bool = False) -> str:
    """One line for a person, with the options of this command: what, where, and no traceback."""
    return in_options(described(error), old=old, properties=properties)


def in_options(text: str, *, old: bool = False, properties: bool = False) -> str:
    """Return a message of the library with options in the place of arguments. What has no option stays.

    `old` is whether the options for reading are old ones, `properties` whether there is --property.
    """
    text = _STORAGE.sub(r", or \1--property" if properties else "", text)

    def spelled(found: re.Match[str]) -> str:
        name, value = found[1], found[2]
        known = options_of_arguments()
        exact = known.get((name, value))
        option = exact or known.get((name, None))
        if option is None:
            return found[0]
        if exact is None and value not in ("", "True"):
            option = f"{option} {value.strip(chr(39))}"
        return _READING.sub("--old-", option) if old else option

    return _ARGUMENT.sub(spelled, text)


@cache
def options_of_arguments() -> dict[tuple[str, str | None], str]:
    """Return the option for each argument, or for one value of it."""
    # With all options of all commands: only for errors.
    from ags1.cli.options import OPTIONS

    found: dict[tuple[str, str | None], str] = {(name, None): option for name, option in _OTHER_NAMES.items()}
    # Of what opens a dataset; what makes one has --key-id.
    found["key_id", "..."] = "--expected-key-id"
    for option in OPTIONS.values():
        action = option.settings.get("action")
        value = (
            "False" if action == "store_false" else repr(option.settings["const"]) if action == "store_const" else None
        )
        found.setdefault((option.dest, value), option.flags[-1])
    return found
