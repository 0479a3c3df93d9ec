"""Arguments of functions in messages, as options of commands.

Messages of the library have an argument in backquotes, as `name` or `name=value`. In Python it is read so; a command
has its option there. Where it has none, the environment is the way, and the argument is left out.
"""

from __future__ import annotations

import re
from functools import cache

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
    from ags1.support.command_options import OPTIONS

    found: dict[tuple[str, str | None], str] = {(name, None): option for name, option in _OTHER_NAMES.items()}
    # Of what opens a dataset; what makes one has --key-id.
    found["key_id", "..."] = "--expected-key-id"
    for section in OPTIONS.values():
        for name, given in section.items():
            flag = given.get("flags", (f"--{name}",))[-1]
            value = None
            if given.get("action") == "store_false":
                value = "False"
            elif given.get("action") == "store_const":
                value = repr(given["const"])
            found.setdefault((given.get("dest", flag[2:].replace("-", "_")), value), flag)
    return found
