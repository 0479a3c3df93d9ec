"""The smallest honest stand-ins for the two services that have no emulator: the SDKs talk to them over loopback.

They are not the services: they know the few calls that a KMS client makes, keep keys in memory, check no permissions
beyond a token's presence, and their ciphertexts have formats of their own. What they prove is that the real SDK is
called with the right arguments, and that every fault which it turns an answer into is understood.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import os
import re
import ssl
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.kms.loopback import Answer, LoopbackServer, Request


def as_json(status: int, content: Any, **headers: str) -> Answer:
    """An answer in JSON."""
    return Answer(status, json.dumps(content).encode(), {"Content-Type": "application/json", **headers})


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC, as RFC 3720, B.4 has test vectors of it."""
    crc = 0xFFFFFFFF
    for octet in data:
        crc ^= octet
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF


def checked(name: str, data: bytes) -> dict[str, str]:
    """A field of bytes and its checksum, as Google's JSON has them."""
    return {name: base64.b64encode(data).decode(), f"{name}Crc32c": str(crc32c(data))}


class StandInGcp(LoopbackServer):
    """Stands in for Google Cloud KMS over REST: encrypt and decrypt of symmetric keys with versions.

    It is not Google's service: no IAM, no locations, any token will do. Its CRC32C is computed bit by bit.
    """

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, list[bytes]] = {}

    def make_key(self, name: str) -> None:
        self.keys[name] = [os.urandom(32)]

    def rotate(self, name: str) -> None:
        """Add a version, which encrypts from now on."""
        self.keys[name].append(os.urandom(32))

    @staticmethod
    def error(status: int, reason: str, message: str) -> Answer:
        """An error as Google words it."""
        return as_json(status, {"error": {"code": status, "message": message, "status": reason}})

    def answer(self, request: Request) -> Answer:
        found = re.fullmatch(r"/v1/(projects/.+):(encrypt|decrypt)\?.*", request.path)
        if found is None:
            return self.error(404, "NOT_FOUND", "there is no such method")
        versions = self.keys.get(found[1])
        if versions is None:
            return self.error(404, "NOT_FOUND", f"CryptoKey {found[1]} not found.")
        asked = json.loads(request.body)
        sent = "plaintext" if found[2] == "encrypt" else "ciphertext"
        if str(crc32c(base64.b64decode(asked[sent]))) != asked[f"{sent}Crc32c"]:
            return self.error(400, "INVALID_ARGUMENT", "The checksum in the request does not match the data.")
        if found[2] == "encrypt":
            nonce = os.urandom(12)
            sealed = AESGCM(versions[-1]).encrypt(nonce, base64.b64decode(asked["plaintext"]), None)
            ciphertext = bytes([len(versions)]) + nonce + sealed
            name = f"{found[1]}/cryptoKeyVersions/{len(versions)}"
            return as_json(200, {"name": name, **checked("ciphertext", ciphertext), "verifiedPlaintextCrc32c": True})
        ciphertext = base64.b64decode(asked["ciphertext"])
        try:
            plain = AESGCM(versions[ciphertext[0] - 1]).decrypt(ciphertext[1:13], ciphertext[13:], None)
        except (InvalidTag, IndexError, ValueError):
            return self.error(400, "INVALID_ARGUMENT", "Decryption failed: the ciphertext is invalid.")
        return as_json(200, checked("plaintext", plain))


class StandInAzure(LoopbackServer):
    """Stands in for Azure Key Vault over TLS: RSA keys with versions, wrapkey, unwrapkey, the challenge for a token.

    It is not Azure's service: any bearer token will do, there are no access policies but the two flags below, and
    its certificate is its own.

    Attributes
    ----------
    may_get, may_list
        Whether keys may be fetched, and their versions listed.
    """

    def __init__(self, directory: Path) -> None:
        self.certificate = directory / "authority.pem"
        super().__init__(_certified(self.certificate))
        self.keys: dict[str, dict[str, rsa.RSAPrivateKey]] = {}
        self.may_get = True
        self.may_list = True

    def make_key(self, name: str) -> str:
        """Add a version of a key, the newest from now on; returns the version."""
        versions = self.keys.setdefault(name, {})
        version = f"{len(versions) + 1:032x}"
        versions[version] = rsa.generate_private_key(65537, 2048)
        return version

    @staticmethod
    def error(status: int, code: str, message: str) -> Answer:
        """An error as Azure words it."""
        return as_json(status, {"error": {"code": code, "message": message}})

    def operations(self) -> list[str]:
        """Last parts of the paths that were asked with a token."""
        paths = [each.path.partition("?")[0] for each in self.requests if "Authorization" in each.headers]
        return [path.rpartition("/")[2] if path.endswith("key") else "get" for path in paths]

    def answer(self, request: Request) -> Answer:
        if not request.headers.get("Authorization", "").startswith("Bearer "):
            challenge = 'Bearer authorization="https://login.example/tenant", resource="https://vault.azure.net"'
            return as_json(401, {}, **{"WWW-Authenticate": challenge})
        path = request.path.partition("?")[0].strip("/").split("/")
        name = path[1] if len(path) > 1 else ""
        versions = self.keys.get(name)
        if versions is None:
            return self.error(404, "KeyNotFound", f"A key with (name/id) {name} was not found in this key vault.")
        if path[2:] == ["versions"]:
            if not self.may_list:
                return self.error(403, "Forbidden", "The user does not have keys list permission.")
            return as_json(200, {"value": [self._properties(name, each) for each in versions], "nextLink": None})
        operation = path[-1] if path[-1] in ("wrapkey", "unwrapkey") else None
        rest = [each for each in path[2:] if each and each != operation]
        version = rest[0] if rest else max(versions)
        if version not in versions:
            return self.error(404, "KeyNotFound", "There is no such version.")
        if operation is None:
            if not self.may_get:
                return self.error(403, "Forbidden", "The user does not have keys get permission.")
            return as_json(200, self._bundle(name, version))
        return self._operate(operation, versions[version], name, version, json.loads(request.body))

    def _operate(self, operation: str, key: rsa.RSAPrivateKey, name: str, version: str, asked: Any) -> Answer:
        if asked["alg"] != "RSA-OAEP-256":
            return self.error(400, "BadParameter", "The algorithm is not supported.")
        scheme = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)
        data = base64.urlsafe_b64decode(asked["value"] + "==")
        try:
            done = key.public_key().encrypt(data, scheme) if operation == "wrapkey" else key.decrypt(data, scheme)
        except ValueError:
            return self.error(400, "BadParameter", "The parameter is incorrect.")
        value = base64.urlsafe_b64encode(done).decode().rstrip("=")
        return as_json(200, {"kid": self._id(name, version), "value": value})

    def _id(self, name: str, version: str) -> str:
        return f"{self.url}/keys/{name}/{version}"

    def _properties(self, name: str, version: str) -> dict[str, Any]:
        return {
            "kid": self._id(name, version),
            "attributes": {"enabled": True, "created": 1_700_000_000 + int(version, 16)},
        }

    def _bundle(self, name: str, version: str) -> dict[str, Any]:
        numbers = self.keys[name][version].public_key().public_numbers()
        key = {"kid": self._id(name, version), "kty": "RSA", "key_ops": ["wrapKey", "unwrapKey"]}
        for field, number in (("n", numbers.n), ("e", numbers.e)):
            octets = number.to_bytes((number.bit_length() + 7) // 8, "big")
            key[field] = base64.urlsafe_b64encode(octets).decode().rstrip("=")
        return {"key": key, "attributes": self._properties(name, version)["attributes"]}


def _certified(target: Path) -> ssl.SSLContext:
    """A server's TLS with a fresh certificate for 127.0.0.1, which is written to the target."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), False)
        .sign(key, hashes.SHA256())
    )
    target.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = target.with_name("private.pem")
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(target, private)
    return context
