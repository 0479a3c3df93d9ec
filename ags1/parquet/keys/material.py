r"""Key material of the key tools, type PKMT1: JSON with the wrapped keys of a Parquet file. Pure; no I/O, no KMS.

    in the file, internal      {"keyMaterialType": "PKMT1", "internalStorage": true, "wrappedDEK": ..., ...}
    in the file, external      {"keyMaterialType": "PKMT1", "internalStorage": false, "keyReference": "footerKey"}
    beside it, external        {"footerKey": "{\"keyMaterialType\": ...}", "columnKey0": "..."}   JSON in JSON strings

Members are written in the order and spelling of PyArrow, and read by name. Source: KeyMaterial and KeyMetadata of
parquet-java and Arrow C++.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from ags1.core.gcm import Key, open_message, random_bytes, seal_message
from ags1.errors import AuthenticationError, FormatError
from ags1.support.typing import Any

TYPE = "PKMT1"
FOOTER_KEY = "footerKey"
DEFAULT = "DEFAULT"
# AWS allows this length; no other service has longer ids.
_LONGEST_ID = 2048
_NONCE = 12
_TAG = 16


@dataclass(kw_only=True, slots=True, repr=False)
class KeyMaterial:
    """One data key, wrapped by a key encryption key, or by the KMS if there is none. Treat as immutable.

    Only the key material of a footer key names the KMS.
    """

    is_footer_key: bool
    master_key_id: str
    wrapped_dek: str
    kek_id: bytes | None = None
    wrapped_kek: str | None = None
    kms_instance_id: str = DEFAULT
    kms_instance_url: str = DEFAULT

    def __post_init__(self) -> None:
        if (self.kek_id is None) != (self.wrapped_kek is None):
            raise ValueError("give both kek_id and wrapped_kek, or neither")

    @property
    def double_wrapping(self) -> bool:
        """Whether a key encryption key wraps the data key, and the master key wraps that."""
        return self.kek_id is not None

    def encode(self, *, internal: bool) -> bytes:
        """The JSON: for the Parquet file if `internal`, else for the key material file."""
        members: dict[str, object] = {"keyMaterialType": TYPE}
        if internal:
            members["internalStorage"] = True
        members["isFooterKey"] = self.is_footer_key
        if self.is_footer_key:
            members["kmsInstanceID"] = self.kms_instance_id
            members["kmsInstanceURL"] = self.kms_instance_url
        members["masterKeyID"] = self.master_key_id
        members["wrappedDEK"] = self.wrapped_dek
        members["doubleWrapping"] = self.double_wrapping
        if self.kek_id is not None:
            members["keyEncryptionKeyID"] = base64.b64encode(self.kek_id).decode()
            members["wrappedKEK"] = self.wrapped_kek
        return _dump(members)

    @classmethod
    def decode(cls, data: bytes | str) -> KeyMaterial:
        """Read key material, internal or external. FormatError: a member, which the message names, is wrong."""
        return cls._of(_members(data, "key material"))

    @classmethod
    def _of(cls, members: dict[str, Any]) -> KeyMaterial:
        _check_type(members)
        is_footer_key = _get(members, "isFooterKey", bool)
        double = _get(members, "doubleWrapping", bool)
        return cls(
            is_footer_key=is_footer_key,
            master_key_id=_checked_id(_get(members, "masterKeyID", str)),
            wrapped_dek=_get(members, "wrappedDEK", str),
            kek_id=_base64(_get(members, "keyEncryptionKeyID", str), "keyEncryptionKeyID") if double else None,
            wrapped_kek=_get(members, "wrappedKEK", str) if double else None,
            kms_instance_id=_get(members, "kmsInstanceID", str, DEFAULT),
            kms_instance_url=_get(members, "kmsInstanceURL", str, DEFAULT),
        )

    def __repr__(self) -> str:
        return (
            f"<ags1.parquet KeyMaterial of a {'footer' if self.is_footer_key else 'column'} key, master key "
            f"{self.master_key_id!r}, {'double' if self.double_wrapping else 'single'} wrapping>"
        )


def parse_key_metadata(data: bytes) -> KeyMaterial | str:
    """Read the key metadata of a Parquet file: the key material, or its name in the key material file.

    Raises
    ------
    FormatError
        It is not key metadata of the key tools; the message names the wrong member.
    """
    members = _members(data, "key metadata")
    _check_type(members)
    if _get(members, "internalStorage", bool):
        return KeyMaterial._of(members)
    reference: str = _get(members, "keyReference", str)
    return reference


def encode_reference(reference: str) -> bytes:
    """Key metadata that refers to key material in the key material file."""
    return _dump({"keyMaterialType": TYPE, "internalStorage": False, "keyReference": reference})


def column_key_reference(number: int) -> str:
    """The name of the n-th encrypted column's key in the key material file."""
    return f"columnKey{number}"


def parse_store(data: bytes) -> dict[str, KeyMaterial]:
    """Read a key material file: key material by the names that the Parquet file uses.

    Raises
    ------
    FormatError
        It is not a key material file; the message names the wrong key and member.
    """
    found = {}
    for reference, text in parse_entries(data).items():
        try:
            found[reference] = KeyMaterial.decode(text)
        except FormatError as error:
            raise FormatError(f"{_shown(reference)} of the key material file: {error}") from None
    return found


def parse_entries(data: bytes) -> dict[str, str]:
    """Read a key material file: the text of each entry by its name. FormatError: it is not such a file."""
    found = _members(data, "the key material file")
    for reference, text in found.items():
        if not isinstance(text, str):
            raise FormatError(
                f"the key material file has {_shown(reference)} as {_kind(text)}; it must be a string with JSON in it"
            )
    return found


def encode_store(materials: dict[str, KeyMaterial]) -> bytes:
    """A key material file."""
    return encode_entries({name: material.encode(internal=False).decode() for name, material in materials.items()})


def encode_entries(entries: dict[str, str]) -> bytes:
    """A key material file, from the texts of its entries."""
    return _dump(entries)


# -- wrapping without a KMS ------------------------------------------------------------------------------------


def wrap_locally(key: bytes | Key, wrapping_key: Key, aad: bytes) -> str:
    """Wrap a key as the key tools do: base64 of nonce, ciphertext and tag, with no length before them."""
    nonce = random_bytes(_NONCE)
    return base64.b64encode(nonce + seal_message(key, wrapping_key, nonce, aad)).decode()


def unwrap_locally(wrapped: str, wrapping_key: Key, aad: bytes) -> Key:
    """Unwrap the result of :func:`wrap_locally`."""
    data = _base64(wrapped, "wrappedDEK")
    if len(data) - _NONCE - _TAG not in (16, 24, 32):
        raise FormatError(f"wrappedDEK has {len(data)} bytes; a wrapped AES key has 44, 52 or 60")
    key = open_message(data[_NONCE:], wrapping_key, data[:_NONCE], aad)
    if key is None:
        raise AuthenticationError("wrappedDEK failed authentication: it was wrapped with another key, or is damaged")
    return Key(key)


# -- JSON ------------------------------------------------------------------------------------------------------


def _dump(members: dict[str, Any]) -> bytes:
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()


def _members(data: bytes | str, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data if isinstance(data, str) else data.decode(), object_pairs_hook=_distinct)
        for text in (*found, *found.values()) if isinstance(found, dict) else ():
            if isinstance(text, str):
                # JSON can contain lone surrogates, which cannot be encoded.
                text.encode()
    except FormatError as error:
        raise FormatError(f"{what} {error}") from None
    except (ValueError, RecursionError):
        # The text is not shown, because it may contain a key.
        raise FormatError(f"{what} of {len(data)} bytes is not JSON of the key tools (PKMT1)") from None
    if not isinstance(found, dict):
        raise FormatError(f"{what} must be a JSON object of the key tools (PKMT1), not {_kind(found)}")
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        # Readers would differ in which one they use.
        raise FormatError("has a member twice")
    return found


def _check_type(members: dict[str, Any]) -> None:
    kind = _get(members, "keyMaterialType", str)
    if kind != TYPE:
        raise FormatError(f"keyMaterialType is {_shown(kind)}; only {TYPE} is supported")


_REQUIRED = object()


def _get(members: dict[str, Any], name: str, kind: type, default: object = _REQUIRED) -> Any:
    found = members.get(name, default)
    if found is _REQUIRED:
        raise FormatError(f"the key material has no {name}")
    if not isinstance(found, kind):
        raise FormatError(f"{name} of the key material must be {_KINDS[kind]}, not {_kind(found)}")
    if found == "" and default is _REQUIRED:
        raise FormatError(f"{name} of the key material is empty")
    return found


_KINDS = {
    bool: "true or false",
    str: "a string",
    dict: "an object",
    list: "a list",
    int: "a number",
    float: "a number",
    type(None): "null",
}


def _kind(value: object) -> str:
    return _KINDS[type(value)]


def _checked_id(key_id: str) -> str:
    if len(key_id) > _LONGEST_ID:
        raise FormatError(f"masterKeyID of the key material has {len(key_id)} characters, which is too long")
    return key_id


def _base64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise FormatError(f"{name} of the key material is not base64") from None


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 64 else f"{text[:64]!r}..."
