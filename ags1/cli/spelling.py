"""What the arguments of functions are called on a command line: messages ask for it as they are made.

Where a command has no option, the environment is the way, and a message leaves the argument out.
"""

from __future__ import annotations

from functools import cache

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
# Where a file is re-keyed, the options for reading.
_OLD = {
    "aad_prefix": "--old-aad-prefix",
    "column_keys": "--old-column-key",
    "decryption": "--old-footer-key, --old-key-for, --kms or --old-key-metadata",
    "footer_key": "--old-footer-key",
    "key_metadata": "--old-key-metadata",
    "key_retriever": "--old-key-for",
}


def option_of(
    name: str, value: object, *, old: bool = False, properties: bool = False, makes: bool = False
) -> str | None:
    """Return the option for an argument, or for one value of it; None if there is none.

    `old` is whether the options for reading are old ones, `properties` whether there is --property, `makes` whether the
    command may make a dataset.
    """
    if makes and (name, value) == ("key_id", "NEW"):
        return "--key-id NEW"
    if name == "storage_options":
        return "--property" if properties else ""
    known = options_of_arguments()
    if value is not ... and (name, value) in known:
        return known[name, value]
    option = (_OLD.get(name) if old else None) or known.get((name, ...))
    return option if option is None or value in (..., True) else f"{option} {value}"


@cache
def options_of_arguments() -> dict[tuple[str, object], str]:
    """Return the option for each argument, or for one value of it."""
    # With all options of all commands: only for errors.
    from ags1.cli.options import OPTIONS

    found: dict[tuple[str, object], str] = {(name, ...): option for name, option in _OTHER_NAMES.items()}
    # Of what opens a dataset; what makes one has --key-id.
    found["key_id", "NEW"] = "--expected-key-id NEW"
    for option in OPTIONS.values():
        action = option.settings.get("action")
        value = {"store_false": False, "store_const": option.settings.get("const")}.get(str(action), ...)
        found.setdefault((option.dest, value), option.flags[-1])
    return found
