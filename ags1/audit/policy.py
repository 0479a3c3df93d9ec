"""A policy, from a TOML file: what may be plaintext, what must be encrypted, and with which master keys.

[plaintext]
allowed = ["public/**", "*.md"]     any other plaintext is a violation
max_share = 0.05                    of all bytes, allowed ones included

[encrypted]
required = ["customers/**"]

[[columns]]
files = "people/**"
encrypted = ["ssn", "address.*"]

[keys]
allowed = ["alias/lake"]
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from ags1.audit.classification import BY_DESIGN, EMPTY, ENCRYPTED, PARTLY, UNREADABLE, AuditedFile
from ags1.dataset.selection import matches
from ags1.storage import Location, read_whole

_MAX_BYTES = 1 << 20
_TABLES: dict[str, dict[str, type]] = {
    "plaintext": {"allowed": list, "max_share": float},
    "encrypted": {"required": list},
    "columns": {"files": list, "encrypted": list},
    "keys": {"allowed": list},
}


@dataclass(frozen=True)
class ColumnRule:
    """Columns of some files that must be encrypted.

    Attributes
    ----------
    files : tuple of str
        Patterns of names of files.
    columns : tuple of str
        Patterns of columns, with dots. Their case does not count: to Spark, ``SSN`` is ``ssn``.
    """

    files: tuple[str, ...]
    columns: tuple[str, ...]

    def covers(self, name: str) -> bool:
        """Whether the rule applies to this file."""
        return _any(name, self.files)


@dataclass(frozen=True)
class Policy:
    """What must be protected. An attribute that is None requires nothing.

    A pattern without ``/`` is compared with each component of a name, one with ``/`` with the whole name, where ``*``
    stands for any characters, ``/`` too.

    Attributes
    ----------
    plaintext_allowed : tuple of str, or None
        Patterns of files that may be plaintext; no others may.
    max_plaintext_share : float or None
        The largest share of all bytes that may be plaintext or of unknown format, 0 to 1; allowed files count too.
    encrypted_required : tuple of str
        Patterns of files that must be encrypted, even if `plaintext_allowed` matches them.
    columns : tuple of ColumnRule
    keys_allowed : tuple of str, or None
        Master keys that may be used; no others may.
    name : str
        Name in reports.
    digest : str or None
        SHA-256 of the file that it was read from.
    """

    plaintext_allowed: tuple[str, ...] | None = None
    max_plaintext_share: float | None = None
    encrypted_required: tuple[str, ...] = ()
    columns: tuple[ColumnRule, ...] = ()
    keys_allowed: tuple[str, ...] | None = None
    name: str = "policy"
    digest: str | None = None

    @classmethod
    def read(cls, file: Any, storage_options: Mapping[str, Any] | None = None) -> Policy:
        """Read a TOML file.

        Parameters
        ----------
        file : path or URL

        Raises
        ------
        ValueError
            Not TOML, or it has an unknown name or an invalid value.
        ImportError
            Python 3.10 without tomli.
        OSError
            It cannot be read.
        """
        location = Location(file, storage_options)
        data = bytes(memoryview(read_whole(location, _MAX_BYTES)))
        try:
            fields = _loads(data.decode())
        except ValueError as error:
            raise ValueError(f"{location}: is not TOML: {error}") from None
        return replace(cls.of(fields, location.text), digest=hashlib.sha256(data).hexdigest())

    @classmethod
    def of(cls, fields: Mapping[str, Any], name: str = "policy") -> Policy:
        """Make a policy of the content of a TOML file.

        Raises
        ------
        ValueError
            An unknown name or an invalid value.
        """
        for table, content in fields.items():
            if table not in _TABLES:
                raise ValueError(f"{name}: there is no [{table}] in a policy; there are {', '.join(_TABLES)}")
            for each in content if table == "columns" and isinstance(content, list) else [content]:
                _check(table, each, name)
        rules = fields.get("columns", [])
        rules = [rules] if isinstance(rules, Mapping) else rules
        for rule in rules:
            if not {"files", "encrypted"} <= rule.keys():
                raise ValueError(f"{name}: a [[columns]] needs files and encrypted, patterns of files and of columns")
        plaintext, encrypted, keys = (fields.get(each, {}) for each in ("plaintext", "encrypted", "keys"))
        return cls(
            _patterns(plaintext["allowed"]) if "allowed" in plaintext else None,
            plaintext.get("max_share"),
            _patterns(encrypted.get("required", ())),
            tuple(ColumnRule(_patterns(each["files"]), _patterns(each["encrypted"])) for each in rules),
            _patterns(keys["allowed"]) if "allowed" in keys else None,
            name,
        )

    def violations(self, file: AuditedFile) -> Iterable[tuple[str, str]]:
        """The violations of a file: codes and messages."""
        if file.protection in (BY_DESIGN, EMPTY, UNREADABLE):
            return
        name = file.name
        rules = [rule for rule in self.columns if rule.covers(name)]
        protected = file.protection == ENCRYPTED or (file.protection == PARTLY and bool(rules))
        if not protected:
            what = f"is {file.protection}" if file.protection != "unknown" else "is of an unknown format"
            if _any(name, self.encrypted_required):
                yield "must-be-encrypted", f"{name}: {what}, but must be encrypted"
            elif self.plaintext_allowed is not None and not _any(name, self.plaintext_allowed):
                yield "plaintext-not-allowed", f"{name}: {what}, and no pattern of plaintext.allowed matches it"
        for rule in rules:
            yield from _column_violations(rule, file)
        yield from self.key_violations(name, file.keys)

    def key_violations(self, name: str, keys: Iterable[str]) -> Iterable[tuple[str, str]]:
        """Master keys of a file or a group that must not be used."""
        if self.keys_allowed is not None:
            for key in keys:
                if key not in self.keys_allowed:
                    yield "key-not-allowed", f"{name}: is under the master key {key!r}, which is not in keys.allowed"


def _loads(text: str) -> dict[str, Any]:
    import importlib

    # In the standard library from Python 3.11 on.
    for name in ("tomllib", "tomli"):
        try:
            found: dict[str, Any] = importlib.import_module(name).loads(text)
        except ImportError:
            continue
        return found
    raise ImportError("a policy file needs Python 3.11, or tomli: pip install 'ags1[cli]'")


def _column_violations(rule: ColumnRule, file: AuditedFile) -> Iterable[tuple[str, str]]:
    wanted = " or ".join(rule.columns)
    if file.format == "AGS1":
        return
    if file.format != "Parquet":
        yield "column-not-encrypted", f"{file.name}: is {file.protection}, and column {wanted} must be encrypted"
        return
    patterns = [each.casefold() for each in rule.columns]
    for column in file.plaintext_columns:
        name = column.casefold()
        if any(fnmatchcase(name, pattern) or name.startswith(f"{pattern}.") for pattern in patterns):
            yield "column-not-encrypted", f"{file.name}: column {column!r} must be encrypted, but is not"
    if not file.columns_known:
        yield (
            "column-not-checked",
            f"{file.name}: whether column {wanted} is encrypted is not known without its footer's key: give `kms`",
        )


def _any(name: str, patterns: Iterable[str]) -> bool:
    return any(matches(name, pattern) for pattern in patterns)


def _patterns(given: Any) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check(table: str, content: Any, policy: str) -> None:
    if not isinstance(content, Mapping):
        raise ValueError(f"{policy}: {table} is a table: write [{table}]")
    for name, value in content.items():
        kind = _TABLES[table].get(name)
        if kind is None:
            known = ", ".join(_TABLES[table])
            raise ValueError(f"{policy}: [{table}] has no {name}; it has {known}")
        if kind is float:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
                raise ValueError(f"{policy}: {table}.{name} is a share, 0 to 1, not {value!r}")
        elif not isinstance(value, str) and not (isinstance(value, list) and all(isinstance(e, str) for e in value)):
            raise ValueError(f"{policy}: {table}.{name} is a list of texts")
