"""The file format of a local keystore: master keys by id, protected by passwords and key files, any of which opens it.

    {"format": "ags1-keystore", "version": 1,
     "protection": {"kind": "password", "kdf": "scrypt", "n": ..., "r": ..., "p": ..., "salt": ...}
                or {"kind": "key-file"}
                or, in version 2, {"kind": "several", "secrets": [ENTRY, ...]},
     "check": ..., "keys": {ID: [WRAPPED, ...], ...}, "seal": ..., "sha256": ...}

    secret   = scrypt(password) or the key in the key file; of "several" a random key, which each ENTRY has wrapped:
               an ENTRY is one of the other protections, with its own "check" and this "secret"
    check    = HMAC-SHA256(secret, "check"), 16 bytes: tells a wrong password from a damaged file
    WRAPPED  = nonce, AES-256-GCM of the key under HMAC-SHA256(secret, "wrap"), tag; the AAD is format, version and ID.
               An id has one, and those that a rotation replaced: the newest is first
    seal     = HMAC-SHA256(HMAC-SHA256(secret, "seal"), all above): no entry can be dropped, swapped or renamed
    sha256   = of all above: tells chance damage without the password

Bytes are base64; "all above" is the object as sorted JSON without spaces. The replacement of the whole file by an older
version cannot be detected.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import unicodedata
from collections.abc import Mapping, Sequence

from ags1.core.gcm import Key, open_message, random_bytes, seal_message
from ags1.kms.base import Refusal
from ags1.support.arguments import spelled
from ags1.support.typing import Any

LARGEST = 16 << 20
"""The greatest length of a keystore in bytes; a larger file is not a keystore."""

_FORMAT = "ags1-keystore"
_VERSION = 1
_VERSION_OF_SEVERAL = 2
_MOST_SECRETS = 8
_NONCE = 12
_SALT = 16
_CHECK = 16
# Each guess costs 128 MiB and a few tenths of a second.
SCRYPT_N = 1 << 17
_SCRYPT_R = 8
_SCRYPT_P = 1
# Limits for the parameters in a file: safe enough, without using all of the memory or minutes. Memory is 128 n r bytes,
# work is n r p: at most four times the default's, 512 MiB and about two seconds.
_LEAST_N, _MOST_N, _MOST_R, _MOST_P = 1 << 10, 1 << 20, 16, 8
_MOST_WORK = 1 << 22
_LONGEST_ID = 1024


class Protection:
    """What opens the file: a password and the derivation of a key from it, a key file, or any of several.

    Parameters
    ----------
    header : dict
        The member "protection" of the file.
    secret : Key
        Derived from the password, read from the key file, or the one that several have wrapped.
    opened_by : int
        Which of several this was opened by.
    """

    __slots__ = ("_opened_by", "_secret", "header")

    def __init__(self, header: dict[str, Any], secret: Key, opened_by: int = 0) -> None:
        self.header = header
        self._secret = secret
        self._opened_by = opened_by

    @classmethod
    def by_password(cls, password: str | bytes) -> Protection:
        """Protect a new file with a password."""
        header = {
            "kind": "password",
            "kdf": "scrypt",
            "n": SCRYPT_N,
            "r": _SCRYPT_R,
            "p": _SCRYPT_P,
            "salt": _encode(random_bytes(_SALT)),
        }
        return cls(header, _derive(header, password))

    @classmethod
    def by_key(cls, key: Key) -> Protection:
        """Protect a new file with a key that is kept elsewhere."""
        return cls({"kind": "key-file"}, key)

    @classmethod
    def of(cls, data: bytes, *, password: str | bytes | None = None, key: Key | None = None) -> Protection:
        """Open the protection of an existing file with the password or key of its user.

        Raises
        ------
        Refusal
            The file needs the other kind of secret, none was given, or the file is damaged or has excessive scrypt
            parameters.
        """
        header = _read(data)["protection"]
        if header["kind"] == "several":
            return cls._of_several(header, password, key)
        if header["kind"] == "password":
            if password is None:
                raise Refusal(
                    f"it is protected by a password: give {spelled('password_file')}, or the variable AGS1_KMS_PASSWORD"
                    + (", not a key file" if key is not None else "")
                )
            return cls(header, _derive(header, password))
        if key is None:
            raise Refusal(f"it is protected by a key file: give it as {spelled('key_file')}")
        return cls(header, key)

    @classmethod
    def _of_several(cls, header: dict[str, Any], password: str | bytes | None, key: Key | None) -> Protection:
        kind = "key-file" if key is not None else "password"
        if key is None and password is None:
            raise Refusal(
                f"it is protected by several secrets: give {spelled('password_file')} or {spelled('key_file')}"
            )
        for number, entry in enumerate(header["secrets"]):
            if entry["kind"] != kind:
                continue
            own = cls(entry, key if key is not None else _derive(entry, password or b""))
            if hmac.compare_digest(_decode(entry["check"]), own.part("check")[:_CHECK]):
                return cls(header, _unwrap(_decode(entry["secret"]), "", Key(own.part("protect"))), number)
        raise Refusal(f"the {'key file' if key is not None else 'password'} is wrong")

    @property
    def count(self) -> int:
        """How many secrets open the file, each by itself."""
        return len(self.header["secrets"]) if self.header["kind"] == "several" else 1

    def adding(self, other: Protection) -> Protection:
        """Return it with another secret that opens the file by itself. Refusal: there are too many."""
        if self.count == _MOST_SECRETS:
            raise Refusal(f"it has {_MOST_SECRETS} secrets already, and cannot have more")
        if self.header["kind"] == "several":
            secrets, secret = list(self.header["secrets"]), self._secret
        else:
            secret = Key(random_bytes(32))
            secrets = [self._entry(secret)]
        header = {"kind": "several", "secrets": [*secrets, other._entry(secret)]}
        if not _is_affordable(header["secrets"]):
            raise Refusal("its passwords together would cost too much to try: add a key file")
        return Protection(header, secret, self._opened_by)

    def replacing(self, other: Protection) -> Protection:
        """The same with another secret in place of the one that opened it."""
        if self.header["kind"] != "several":
            return other
        secrets = list(self.header["secrets"])
        secrets[self._opened_by] = other._entry(self._secret)
        return Protection({"kind": "several", "secrets": secrets}, self._secret, self._opened_by)

    def _entry(self, secret: Key) -> dict[str, Any]:
        wrapped = _wrap(secret, "", Key(self.part("protect")))
        return {**self.header, "check": _encode(self.part("check")[:_CHECK]), "secret": _encode(wrapped)}

    def part(self, purpose: str) -> bytes:
        """A key for one purpose."""
        return hmac.digest(bytes(self._secret), purpose.encode(), "sha256")


def serialize(keys: Mapping[str, Sequence[Key]], protection: Protection) -> bytes:
    """The contents of a keystore file."""
    wrapping = Key(protection.part("wrap"))
    content: dict[str, Any] = {
        "format": _FORMAT,
        "version": _VERSION_OF_SEVERAL if protection.count > 1 else _VERSION,
        "protection": protection.header,
        "check": _encode(protection.part("check")[:_CHECK]),
        "keys": {
            key_id: [_encode(_wrap(key, key_id, wrapping)) for key in versions]
            for key_id, versions in sorted(keys.items())
        },
    }
    content["seal"] = _encode(hmac.digest(protection.part("seal"), _canonical(content), "sha256"))
    content["sha256"] = hashlib.sha256(_canonical(content)).hexdigest()
    return json.dumps(content, indent=1).encode() + b"\n"


def parse(data: bytes, protection: Protection) -> dict[str, tuple[Key, ...]]:
    """The keys in a keystore file, the newest version of each first; the file is authenticated as a whole.

    Refusal: wrong secret, or damaged file.
    """
    content = _read(data)
    if not hmac.compare_digest(_decode(content["check"]), protection.part("check")[:_CHECK]):
        wrong = "password" if protection.header["kind"] == "password" else "key file"
        raise Refusal(f"the {wrong} is wrong")
    seal = _decode(content.pop("seal"))
    if not hmac.compare_digest(seal, hmac.digest(protection.part("seal"), _canonical(content), "sha256")):
        raise Refusal("it was changed without its password: do not use it, restore it from your backup")
    wrapping = Key(protection.part("wrap"))
    return {
        key_id: tuple(_unwrap(_decode(wrapped), key_id, wrapping) for wrapped in versions)
        for key_id, versions in content["keys"].items()
    }


def check_key_id(key_id: str) -> None:
    """Raise TypeError or ValueError for ids that cannot be typed or that would break a list."""
    if not isinstance(key_id, str):
        raise TypeError(f"a key id must be a str, not {type(key_id).__name__}")
    if not 0 < len(key_id) <= _LONGEST_ID:
        raise ValueError(f"a key id has 1 to {_LONGEST_ID} characters, not {len(key_id)}")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in key_id):
        raise ValueError("a key id must not have control characters or line ends")


def _read(data: bytes) -> dict[str, Any]:
    """The file as an object with the right members, without its "sha256", which was checked."""
    if len(data) > LARGEST:
        raise Refusal(f"it is not a keystore: it has more than {LARGEST} bytes")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        raise Refusal("it is not a keystore, or it is damaged: it is not JSON") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise Refusal(f"it is not a keystore: its format is not {_FORMAT}")
    version = content.get("version")
    if version not in (_VERSION, _VERSION_OF_SEVERAL) or isinstance(version, bool):
        raise Refusal(f"its version is unknown: {str(version)[:20]}; a newer ags1 may read it")
    checksum = content.pop("sha256", None)
    if checksum != hashlib.sha256(_canonical(content)).hexdigest() or not _is_sound(content):
        raise Refusal("it is damaged: restore it from your backup")
    return content


def _is_sound(content: dict[str, Any]) -> bool:
    """Whether every member exists and has the right type; an attacker can write a correct checksum."""
    protection, keys = content.get("protection"), content.get("keys")
    if not isinstance(protection, dict) or not isinstance(keys, dict):
        return False
    if not all(isinstance(versions, list) and versions for versions in keys.values()):
        return False
    texts = [content.get("check"), content.get("seal"), *(each for versions in keys.values() for each in versions)]
    secrets: Any = [protection]
    if protection.get("kind") == "several":
        secrets = protection.get("secrets")
        if not isinstance(secrets, list) or not 2 <= len(secrets) <= _MOST_SECRETS:
            return False
        if not all(isinstance(each, dict) for each in secrets):
            return False
        texts += [each.get(name) for each in secrets for name in ("check", "secret")]
    if (content["version"] == _VERSION_OF_SEVERAL) != (len(secrets) > 1):
        return False
    texts += [each.get("salt") for each in secrets if each.get("kind") == "password"]
    if not all(each.get("kind") == "key-file" or _is_password(each) for each in secrets) or not _is_affordable(secrets):
        return False
    try:
        return all(isinstance(text, str) and _decode(text) is not None for text in texts)
    except ValueError:
        return False


def _is_password(entry: dict[str, Any]) -> bool:
    """Whether this is the header of a password with scrypt, within the limits."""
    numbers: list[Any] = [entry.get(name) for name in "nrp"]
    if entry.get("kind") != "password" or entry.get("kdf") != "scrypt":
        return False
    if not all(type(number) is int for number in numbers):
        return False
    n, r, p = numbers
    if not (_LEAST_N <= n <= _MOST_N and n & (n - 1) == 0 and 1 <= r <= _MOST_R and 1 <= p <= _MOST_P):
        return False
    # Scrypt's own rule.
    return bool(n < 1 << 16 * r)


def _is_affordable(entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a password costs little enough, which is tried with each of these."""
    work = sum(each["n"] * each["r"] * each["p"] for each in entries if each.get("kind") == "password")
    return bool(work <= _MOST_WORK)


def _derive(header: dict[str, Any], password: str | bytes) -> Key:
    octets = password
    if isinstance(octets, str):
        octets = unicodedata.normalize("NFC", octets).encode("utf-8", "surrogateescape")
    n, r, p = header["n"], header["r"], header["p"]
    # OpenSSL needs slightly more than the 128 * n * r bytes of the algorithm.
    memory = 128 * r * (n + p + 4) + (1 << 20)
    return Key(hashlib.scrypt(octets, salt=_decode(header["salt"]), n=n, r=r, p=p, maxmem=memory, dklen=32))


def _wrap(key: Key, key_id: str, wrapping: Key) -> bytes:
    nonce = random_bytes(_NONCE)
    return nonce + seal_message(key, wrapping, nonce, _aad(key_id))


def _unwrap(wrapped: bytes, key_id: str, wrapping: Key) -> Key:
    key = open_message(wrapped[_NONCE:], wrapping, wrapped[:_NONCE], _aad(key_id)) if len(wrapped) > _NONCE else None
    if key is None or len(key) not in (16, 24, 32):
        raise Refusal("it is damaged: one of its keys cannot be opened")
    return Key(key)


def _aad(key_id: str) -> bytes:
    return f"{_FORMAT} {_VERSION} {key_id}".encode()


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
