"""Classes of keys: which master key the files of a pattern are under.

    pattern "tenant=a/**"   master key alias/a      ->  key encryption key  ->  class key  ->  key metadata of each file
    pattern "**"            master key alias/lake   ->  key encryption key  ->  class key  ->  ...
                                                                            ->  key metadata of the root manifest

Destroying the master key of a class destroys the keys of its files, in all copies: no other master key opens them.
Manifests are under the default class, whose pattern matches everything. They hold paths and lengths, and the keys of
files sealed under their class.

A class may be under further master keys, for a second region or an emergency: the same key encryption keys, wrapped
again. A KMS client opens it by the first one, and an :class:`OpenedBy` by the one that it names, and no other: what
somebody without keys adds is never tried.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ags1.core.gcm import Key, open_message, random_bytes, seal_message
from ags1.dataset.selection import matches
from ags1.errors import AuthenticationError, FormatError, KeyAccessError
from ags1.iceberg import EncryptionKeys
from ags1.keys import KeyMetadata
from ags1.kms import ServiceRefusal, key_cache_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from ags1.dataset.entries import Part

_NONCE = 12
_LABEL = b"ags1 dataset key\0"
_PREFIX_LENGTH = 16
_MAX_KEYS = 64
_MAX_WRAPS = 8


class OpenedBy:
    """A KMS client, and the one of a dataset's master keys that opens it."""

    def __init__(self, kms: Any, key_id: str) -> None:
        self.key_id = key_id
        self.service = getattr(kms, "service", None) or type(kms).__name__
        self._key_cache = key_cache_of(kms)
        self._kms = kms

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kms, name)


@dataclass(frozen=True)
class KeyWrap:
    """The key encryption keys of a class, wrapped by a further master key, in Iceberg's form."""

    key_id: str
    encryption_keys: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class KeyClass:
    """Files of one pattern, under one master key. It holds wrapped keys only.

    Entries of manifests name its `id`. A class without a `pattern` takes no new files. `encryption_keys` has Iceberg's
    form: the key encryption key, and the keys that it wraps; `class_key` is the entry of the class key.
    """

    id: str
    pattern: str | None
    key_id: str
    encryption_keys: tuple[dict[str, Any], ...] = ()
    class_key: str = ""
    wraps: tuple[KeyWrap, ...] = ()

    @property
    def key_ids(self) -> tuple[str, ...]:
        """All its master keys, of which each opens it; the first one is `key_id`."""
        return (self.key_id, *(each.key_id for each in self.wraps))

    @classmethod
    def create(cls, pattern: str, key_id: str, kms: Any) -> KeyClass:
        """Make a class with a new key."""
        made = cls(random_bytes(4).hex(), pattern, key_id)
        made, entry = made.wrapping(KeyMetadata(Key.generate(), random_bytes(_PREFIX_LENGTH)), kms)
        return replace(made, class_key=entry)

    def wrapping(self, metadata: KeyMetadata, kms: Any) -> tuple[KeyClass, str]:
        """The class with one more wrapped key, and the entry of that key."""
        by = self._opener(kms)
        keys = self._keys(by)
        entry = keys.add_manifest_list_key(metadata, kms, by)
        # Behind the entries as the first master key has them.
        added = keys.to_list()[len(self.encryption_keys) :]
        return replace(self, encryption_keys=(*self.encryption_keys, *added)), entry

    def unwrap(self, entry: str, kms: Any) -> KeyMetadata:
        """Unwrap a key."""
        by = self._opener(kms)
        return self._keys(by).unwrap(entry, kms, table_key_id=by)

    def only(self, *entries: str) -> KeyClass:
        """The class with its class key and these wrapped keys only."""
        by_id = {each["key-id"]: each for each in self.encryption_keys}
        wanted: set[str] = set()
        for entry in (self.class_key, *entries):
            above: str | None = entry
            while above is not None and above in by_id and above not in wanted:
                wanted.add(above)
                above = by_id[above].get("encrypted-by-id")
        wraps = tuple(
            replace(wrap, encryption_keys=tuple(each for each in wrap.encryption_keys if each["key-id"] in wanted))
            for wrap in self.wraps
        )
        return replace(self, encryption_keys=tuple(by_id[each] for each in by_id if each in wanted), wraps=wraps)

    def rewrapped(self, kms: Any, new_key_id: str, new_kms: Any) -> KeyClass:
        """The same keys under another master key in the place of the first one."""
        keys = self._keys(self._opener(kms)).rewrap(kms, new_key_id, new_kms)
        return replace(self.without(new_key_id), key_id=new_key_id, encryption_keys=tuple(keys.to_list()))

    def also_under(self, kms: Any, new_key_id: str, new_kms: Any) -> KeyClass:
        """The class under one more master key. ValueError: it has that, or as many as it can have."""
        if new_key_id in self.key_ids:
            raise ValueError(f"the class {self.pattern or self.id!r} is under the master key {new_key_id!r} already")
        if len(self.wraps) >= _MAX_WRAPS:
            raise ValueError(f"the class {self.pattern or self.id!r} has {_MAX_WRAPS} further master keys: remove one")
        made = self._keys(self._opener(kms)).rewrap(kms, new_key_id, new_kms).to_list()
        wrap = KeyWrap(new_key_id, tuple(each for each in made if each.get("encrypted-by-id") == new_key_id))
        return replace(self, wraps=(*self.wraps, wrap))

    def without(self, key_id: str) -> KeyClass:
        """The class without a further master key."""
        return replace(self, wraps=tuple(each for each in self.wraps if each.key_id != key_id))

    def _opener(self, kms: Any) -> str:
        """The master key that opens the class with this client."""
        if not isinstance(kms, OpenedBy):
            return self.key_id
        if kms.key_id in self.key_ids:
            return kms.key_id
        if self.pattern == "**":
            raise KeyAccessError(f"it is under {_named(self.key_ids)}, and not under {kms.key_id!r}")
        return self.key_id

    def _keys(self, by: str) -> EncryptionKeys:
        """The keys as one of the master keys opens them."""
        wrap = next((each for each in self.wraps if each.key_id == by), KeyWrap(by, ()))
        wrapped = {each["key-id"]: each for each in wrap.encryption_keys}
        # What is no text as an id is refused below.
        entries = [dict(wrapped.get(str(each.get("key-id")), each)) for each in self.encryption_keys]
        document = {"format-version": 3, "encryption-keys": entries}
        # A new key encryption key would be under one master key alone, so the one that there is stays in use.
        return EncryptionKeys.from_table_metadata(document, clock=(lambda: _made(entries)) if self.wraps else None)

    def to_json(self) -> dict[str, Any]:
        """The form in a version file."""
        return {
            "id": self.id,
            "pattern": self.pattern,
            "key-id": self.key_id,
            "class-key": self.class_key,
            "encryption-keys": list(self.encryption_keys),
            **({"wraps": [_wrap_to_json(each) for each in self.wraps]} if self.wraps else {}),
        }

    @classmethod
    def from_json(cls, fields: Any, name: str) -> KeyClass:
        """Read that form; `name` is the document's, for errors."""
        kinds = {"id": str, "key-id": str, "class-key": str, "encryption-keys": list}
        if not isinstance(fields, dict) or not all(isinstance(fields.get(each), kinds[each]) for each in kinds):
            raise FormatError(f"{name}: a class of keys is damaged")
        pattern, entries = fields.get("pattern"), fields["encryption-keys"]
        if len(entries) > _MAX_KEYS:
            raise FormatError(f"{name}: a class of keys has {len(entries):,} keys, more than {_MAX_KEYS}")
        if not (pattern is None or isinstance(pattern, str)) or not all(isinstance(each, dict) for each in entries):
            raise FormatError(f"{name}: a class of keys is damaged")
        wraps = fields.get("wraps", [])
        if not isinstance(wraps, list) or len(wraps) > _MAX_WRAPS or not all(map(_is_wrap, wraps)):
            raise FormatError(f"{name}: the further master keys of a class of keys are damaged, or too many")
        made = tuple(KeyWrap(each["key-id"], tuple(each["encryption-keys"])) for each in wraps)
        found = cls(fields["id"], pattern, fields["key-id"], tuple(entries), fields["class-key"], made)
        if len({*found.key_ids}) != len(found.key_ids):
            raise FormatError(f"{name}: a class of keys has one master key twice")
        return found


def _wrap_to_json(wrap: KeyWrap) -> dict[str, Any]:
    return {"key-id": wrap.key_id, "encryption-keys": list(wrap.encryption_keys)}


def _is_wrap(fields: Any) -> bool:
    entries = fields.get("encryption-keys") if isinstance(fields, dict) else None
    return (
        isinstance(entries, list)
        and len(entries) <= _MAX_KEYS
        and isinstance(fields.get("key-id"), str)
        and all(isinstance(each, dict) and isinstance(each.get("key-id"), str) for each in entries)
    )


def _made(entries: Sequence[Mapping[str, Any]]) -> float:
    """When the newest key encryption key was made, in seconds since 1970."""
    times = [str((each.get("properties") or {}).get("KEY_TIMESTAMP", "")) for each in entries]
    return max((int(each) for each in times if each.isascii() and each.isdigit()), default=0) / 1000


def _named(key_ids: Sequence[str]) -> str:
    """Master keys in a message."""
    return f"the master key{'s' if len(key_ids) > 1 else ''} {' and '.join(map(repr, key_ids))}"


def class_of(classes: Sequence[KeyClass], path: str) -> KeyClass:
    """The class that a new file at `path` belongs to: the first whose pattern matches. ValueError: none does."""
    for each in classes:
        if each.pattern is not None and (each.pattern == "**" or matches(path, each.pattern)):
            return each
    raise ValueError(f"no pattern of keys matches {path}: add the pattern '**' with a master key for all other files")


def patterns_of(key_id: str | None, keys: Mapping[str, str] | None) -> dict[str, str] | str | None:
    """Combine the arguments `keys` and `key_id` into patterns with master keys; without patterns, the master key alone.

    None: neither is given, so an existing dataset keeps its own. ValueError: there is no master key for files that no
    pattern names, or two.
    """
    if keys is None and key_id != "":
        return key_id
    found = dict(keys or {})
    if key_id:
        if found.get("**", key_id) != key_id:
            raise ValueError(f"key_id is {key_id!r}, and keys has {found['**']!r} for '**': give one of them")
        found["**"] = key_id
    if "**" not in found:
        raise ValueError(
            "a master key is needed for files that no pattern names: `key_id=ID`, or the pattern '**' in `keys`"
        )
    return found


def merge_classes(
    classes: Sequence[KeyClass], keys: Mapping[str, str] | str | None, kms: Any, name: str
) -> tuple[KeyClass, ...]:
    """The classes of a dataset after a run that was given `keys`, patterns with their master keys.

    A class whose pattern and master key are unchanged keeps its key; the others take no new files. With None, or a
    master key alone, the classes of a dataset stay as they are: a run that does not repeat the patterns must not
    encrypt the files of a tenant under the common key.

    ValueError: there is no pattern ``**``, one matches no path, or the default class is under another master key.
    """
    if keys is None:
        return tuple(classes)
    alone = isinstance(keys, str)
    keys = {"**": keys} if isinstance(keys, str) else keys
    if "**" not in keys:
        raise ValueError("keys must have the pattern '**': the master key of all other files, and of the manifests")
    default = next((each for each in classes if each.pattern == "**"), None)
    if default is not None and default.key_id != keys["**"]:
        raise ValueError(
            f"the dataset {name} is under the master key {default.key_id!r}, not {keys['**']!r}: name that, or rewrap "
            "the dataset"
        )
    if default is not None and alone:
        return tuple(classes)
    if not all(isinstance(each, str) and each for pair in keys.items() for each in pair):  # type: ignore[redundant-expr]
        raise TypeError("keys must be patterns with the names of master keys, all of them text")
    for pattern in keys:
        if any(part in ("", ".", "..") for part in pattern.split("/")):
            raise ValueError(
                f"the pattern {pattern!r} matches no path: write it as tenant=a/**, relative, for a directory"
            )
    # Several classes without a pattern may be under one master key: each of them has files.
    before = {(each.pattern, each.key_id): each for each in classes if each.pattern is not None}
    ended = [each for each in classes if each.pattern is None]
    # The default matches everything, so it is compared last.
    wanted = [pair for pair in keys.items() if pair[0] != "**"] + [("**", keys["**"])]
    now = [before.pop(pair) if pair in before else KeyClass.create(*pair, kms) for pair in wanted]
    return (*now, *(replace(each, pattern=None) for each in before.values()), *ended)


class ClassKeys:
    """Seals and opens the keys of files, with one key to unwrap for each class. Safe to use from several threads."""

    def __init__(self, classes: Sequence[KeyClass], kms: Any, name: str) -> None:
        self._classes = {each.id: each for each in classes}
        self._kms = kms
        self._name = name
        self._keys: dict[str, Key] = {}
        self._refused: dict[str, KeyAccessError] = {}

    def key(self, class_id: str) -> Key:
        """The class key. KeyAccessError: the KMS refused; it is not called again for this class."""
        found = self._keys.get(class_id)
        if found is None:
            if class_id in self._refused:
                raise self._refused[class_id]
            each = self._classes.get(class_id)
            if each is None:
                raise FormatError(
                    f"{self._name}: a manifest names the class of keys {class_id!r}, which does not exist"
                )
            try:
                found = each.unwrap(each.class_key, self._kms).encryption_key
            except KeyAccessError as error:
                what = "all files" if each.pattern == "**" else f"the files of the pattern {each.pattern!r}"
                if each.pattern is None:
                    what = f"the files of the class {each.id}, which takes no new ones,"
                by = self._kms.key_id if isinstance(self._kms, OpenedBy) else each.key_id
                others = [other for other in each.key_ids if other != by]
                said = f"; give `key_id=...` to open it by {_named(others)}" if others else ""
                said += ". To encrypt into it, rewrap it under that first" if others else ""
                again = type(error)(f"{what} are under the master key {each.key_id!r}: {error}{said}")
                if not isinstance(error, ServiceRefusal):
                    self._refused[class_id] = again
                raise again from error
            self._keys[class_id] = found
        return found

    def seal(self, class_id: str, object_name: str, metadata: bytes) -> bytes:
        """Seal the encoded key metadata of an object under its class. KeyAccessError: the KMS refused the class key."""
        nonce = random_bytes(_NONCE)
        return nonce + seal_message(metadata, self.key(class_id), nonce, _bound(class_id, object_name))

    def open(self, class_id: str, part: Part) -> KeyMetadata:
        """The key metadata of an object. AuthenticationError: it is damaged, or belongs to another object."""
        sealed = part.sealed_key
        plain = open_message(sealed[_NONCE:], self.key(class_id), sealed[:_NONCE], _bound(class_id, part.name))
        if plain is None:
            raise AuthenticationError(f"{self._name}: the sealed key of {part.name} is damaged, or of another object")
        metadata = KeyMetadata.decode(plain)
        if metadata.file_length != part.file_length:
            raise FormatError(f"{self._name}: the key of {part.name} is for another length than the manifest says")
        return metadata

    def tag(self, class_id: str, data: bytes) -> str:
        """An authentication tag over a document, with a key derived from the class key."""
        key = hmac.digest(bytes(self.key(class_id)), _LABEL + b"version", hashlib.sha256)
        return hmac.digest(key, data, hashlib.sha256).hex()

    def __repr__(self) -> str:
        return f"<ags1.dataset.ClassKeys of {self._name}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("the keys of a dataset cannot be pickled or copied: open the dataset there")


def _bound(class_id: str, object_name: str) -> bytes:
    return _LABEL + class_id.encode() + b"\0" + object_name.encode()
