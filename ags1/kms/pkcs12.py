"""Reads secret keys from a PKCS12 keystore (RFC 7292), as Java's ``keytool -genseckey`` writes it.

    PFX > AuthenticatedSafe > SafeContents > SafeBag "secret" > PKCS8 shrouded key > the AES key

`cryptography` reads only private keys and certificates from PKCS12, no secret bags; pyjks reads Java's own formats and
not PKCS12. So the structures come from pyasn1 and pyasn1-modules, which have them all and are maintained, and the
ciphers from `cryptography`. This module derives the keys and combines the two.
"""

from __future__ import annotations

import hashlib
import hmac

from ags1.core.gcm import Key
from ags1.kms.base import Refusal, missing_sdk
from ags1.support.typing import Any

_DATA = "1.2.840.113549.1.7.1"
_SECRET_BAG = "1.2.840.113549.1.12.10.1.5"
_SHROUDED_KEY = "1.2.840.113549.1.12.10.1.2"
_FRIENDLY_NAME = "1.2.840.113549.1.9.20"
_PBES2 = "1.2.840.113549.1.5.13"
_PBKDF2 = "1.2.840.113549.1.5.12"
_SHA1_AND_3DES = "1.2.840.113549.1.12.1.3"
_HMACS = {
    "1.2.840.113549.2.7": "sha1",
    "1.2.840.113549.2.9": "sha256",
    "1.2.840.113549.2.10": "sha384",
    "1.2.840.113549.2.11": "sha512",
}
_AES_CBC = {"2.16.840.1.101.3.4.1.2": 16, "2.16.840.1.101.3.4.1.22": 24, "2.16.840.1.101.3.4.1.42": 32}
_DIGESTS = {
    "1.3.14.3.2.26": "sha1",
    "2.16.840.1.101.3.4.2.1": "sha256",
    "2.16.840.1.101.3.4.2.2": "sha384",
    "2.16.840.1.101.3.4.2.3": "sha512",
}
# What Java's keytool writes at most. A higher number is a denial of service, not a protection.
_MOST_ITERATIONS = 5_000_000
_FOR_KEY, _FOR_IV, _FOR_MAC = 1, 2, 3


def secret_keys(data: bytes, password: str | bytes) -> dict[str, Key]:
    """The AES keys of a keystore by id; Java stores ids in lower case.

    Raises
    ------
    Refusal
        The password is wrong, the file is damaged, or it uses an algorithm that is not supported here.
    ImportError
        A package is missing; the message names the extra to install.
    """
    try:
        import cryptography  # noqa: F401
        import pyasn1_modules  # noqa: F401
    except ImportError as error:
        raise missing_sdk(error, "LocalKms (for PKCS12)", "kms") from None
    try:
        text = password if isinstance(password, str) else password.decode()
    except UnicodeDecodeError:
        raise Refusal("the password of a PKCS12 keystore must be UTF-8 text") from None
    try:
        return _keys_of(data, text)
    except Refusal:
        raise
    except Exception:
        # Any other error of a parser means that the bytes are not valid.
        pass
    raise Refusal("it is not a PKCS12 keystore, or it is damaged")


def _keys_of(data: bytes, password: str) -> dict[str, Key]:
    from pyasn1_modules import rfc7292

    pfx = _decode(data, rfc7292.PFX())
    content = bytes(_decode(bytes(pfx["authSafe"]["content"])))
    _check_mac(pfx["macData"], content, password)
    keys: dict[str, Key] = {}
    for part in _decode(content, rfc7292.AuthenticatedSafe()):
        # The other kind of part, which is encrypted as a whole, holds certificates.
        if str(part["contentType"]) != _DATA:
            continue
        for bag in _decode(bytes(_decode(bytes(part["content"]))), rfc7292.SafeContents()):
            if str(bag["bagId"]) == _SECRET_BAG:
                found = _secret(_decode(bytes(bag["bagValue"]), rfc7292.SecretBag()), password)
                if len(found) in (16, 24, 32):
                    keys[_name_of(bag)] = Key(found)
    return keys


def _check_mac(mac_data: Any, content: bytes, password: str) -> None:
    if not mac_data.isValue:
        raise Refusal("it has no MAC, so a change could not be detected: make another one with a password")
    digest = _known(_DIGESTS, mac_data["mac"]["digestAlgorithm"]["algorithm"], "MAC")
    salt, count = bytes(mac_data["macSalt"]), _iterations(mac_data["iterations"])
    key = _derive(digest, _FOR_MAC, password, salt, count, hashlib.new(digest).digest_size)
    if not hmac.compare_digest(hmac.digest(key, content, digest), bytes(mac_data["mac"]["digest"])):
        raise Refusal("the password is wrong, or it is damaged")


def _secret(bag: Any, password: str) -> bytes:
    from pyasn1_modules import rfc5208

    if str(bag["secretTypeId"]) != _SHROUDED_KEY:
        raise Refusal("it holds a secret that Java's keytool did not write")
    shrouded = _decode(bytes(_decode(bytes(bag["secretValue"]))), rfc5208.EncryptedPrivateKeyInfo())
    algorithm = shrouded["encryptionAlgorithm"]
    parameters, name = bytes(algorithm["parameters"]), str(algorithm["algorithm"])
    cipher = _pbes2(parameters, password) if name == _PBES2 else _pbes1(name, parameters, password)
    decryptor = cipher.decryptor()
    padded = decryptor.update(bytes(shrouded["encryptedData"])) + decryptor.finalize()
    plain = padded[: -padded[-1]]
    if not 1 <= padded[-1] <= 16 or padded[len(plain) :] != padded[-1:] * padded[-1]:
        # The MAC was correct, so the file is not damaged.
        raise Refusal("the password of one of its keys differs from that of the keystore")
    return bytes(_decode(plain, rfc5208.PrivateKeyInfo())["privateKey"])


def _pbes2(parameters: bytes, password: str) -> Any:
    """The encryption of JDK 16 and newer: AES-CBC with PBKDF2."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from pyasn1_modules import rfc8018

    scheme = _decode(parameters, rfc8018.PBES2_params())
    derivation = scheme["keyDerivationFunc"]
    if str(derivation["algorithm"]) != _PBKDF2:
        raise _unknown("key derivation", derivation["algorithm"])
    how = _decode(bytes(derivation["parameters"]), rfc8018.PBKDF2_params())
    digest = _known(_HMACS, how["prf"]["algorithm"], "key derivation")
    length = _known(_AES_CBC, scheme["encryptionScheme"]["algorithm"], "cipher")
    iv = bytes(_decode(bytes(scheme["encryptionScheme"]["parameters"])))
    salt, count = bytes(how["salt"]["specified"]), _iterations(how["iterationCount"])
    key = hashlib.pbkdf2_hmac(digest, password.encode(), salt, count, length)
    return Cipher(algorithms.AES(key), modes.CBC(iv))


def _pbes1(name: str, parameters: bytes, password: str) -> Any:
    """The encryption of JDKs up to 15: triple DES with PKCS12's own key derivation."""
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
    from cryptography.hazmat.primitives.ciphers import Cipher, modes
    from pyasn1_modules import rfc7292

    if name != _SHA1_AND_3DES:
        raise _unknown("cipher", name)
    how = _decode(parameters, rfc7292.Pkcs_12PbeParams())
    salt, count = bytes(how["salt"]), _iterations(how["iterations"])
    key = _derive("sha1", _FOR_KEY, password, salt, count, 24)
    return Cipher(TripleDES(key), modes.CBC(_derive("sha1", _FOR_IV, password, salt, count, 8)))


def _derive(digest: str, purpose: int, password: str, salt: bytes, count: int, length: int) -> bytes:
    """Bytes from a password by the derivation of RFC 7292, appendix B."""
    block = hashlib.new(digest).block_size

    def filled(data: bytes) -> bytes:
        size = -(-len(data) // block) * block
        return (data * (size // len(data) + 1))[:size] if data else b""

    text = password.encode("utf-16-be") + b"\0\0"
    state = filled(salt) + filled(text)
    out = b""
    while len(out) < length:
        mixed = hashlib.new(digest, bytes([purpose]) * block + state).digest()
        for _ in range(count - 1):
            mixed = hashlib.new(digest, mixed).digest()
        out += mixed
        step = int.from_bytes(filled(mixed)[:block], "big") + 1
        blocks = (state[start : start + block] for start in range(0, len(state), block))
        state = b"".join(
            ((int.from_bytes(each, "big") + step) % (1 << 8 * block)).to_bytes(block, "big") for each in blocks
        )
    return out[:length]


def _decode(data: bytes, specification: Any = None) -> Any:
    from pyasn1.codec.ber import decoder

    value, rest = decoder.decode(data, asn1Spec=specification)
    if rest:
        raise ValueError("bytes behind the end")
    return value


def _name_of(bag: Any) -> str:
    for attribute in bag["bagAttributes"]:
        if str(attribute["attrType"]) == _FRIENDLY_NAME:
            return str(_decode(bytes(attribute["attrValues"][0]))).lower()
    raise Refusal("one of its keys has no name")


def _iterations(number: Any) -> int:
    if not 1 <= int(number) <= _MOST_ITERATIONS:
        raise Refusal(f"it needs {str(int(number))[:20]} rounds of hashing; at most {_MOST_ITERATIONS} are allowed")
    return int(number)


def _known(table: dict[str, Any], identifier: Any, what: str) -> Any:
    if str(identifier) not in table:
        raise _unknown(what, identifier)
    return table[str(identifier)]


def _unknown(what: str, identifier: Any) -> Refusal:
    return Refusal(f"its {what} ({identifier}) is not supported: import it into a new keystore with Java's keytool")
