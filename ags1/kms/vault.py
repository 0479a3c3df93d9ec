"""HashiCorp Vault's and OpenBao's transit engine, over hvac."""

from __future__ import annotations

import base64
import binascii
import os
import re
from contextlib import suppress

from ags1.kms._transport import limit_session
from ags1.kms.base import KeyManagementClient, Refusal, Unusable, checked_url, missing_sdk
from ags1.support.typing import Any

TIMEOUT = 10.0
_KEY_NAME = re.compile(r"\w(?:[\w.-]*\w)?", re.ASCII)
_MOUNT = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)*", re.ASCII)
_CIPHERTEXT = re.compile(rb"[\x21-\x7e]+")
# Before version 1.3, Vault says it with the status of a fault that passes.
_WRONG_KEY = "message authentication failed"


class VaultKms(KeyManagementClient):
    """Wraps with the transit secrets engine of Vault or OpenBao. Iceberg has no client for it.

    A key id is the name of a transit key. Wrapped bytes are the text ``vault:vN:...``, which contains the version, so a
    key can be rotated at any time.

    Parameters
    ----------
    url : str, optional
        Address of the server; else ``VAULT_ADDR`` or ``BAO_ADDR``.
    mount : str
        Where the engine is mounted: ``transit``.
    namespace : str, optional
        Else ``VAULT_NAMESPACE`` or ``BAO_NAMESPACE``.
    token : str, optional
        Else `token_file`, ``VAULT_TOKEN`` or ``BAO_TOKEN``, or ``~/.vault-token``, which ``vault login`` writes.
    token_file : path, optional
        Read for every connection.
    verify : bool or str
        Whether to check the server's certificate, or the file with the authorities to check it against; else
        ``VAULT_CACERT`` or ``BAO_CACERT``.
    data_key_bits : int
        Size of the keys of :meth:`generate_key`: 128 or 256.
    timeout : float
        Seconds to wait for a response.
    **common
        As :class:`~ags1.kms.KeyManagementClient`.

    Notes
    -----
    Properties: ``vault.address``, ``vault.mount``, ``vault.namespace``; there is no property for a token.
    """

    service = "Vault"

    def __init__(
        self,
        url: str | None = None,
        *,
        mount: str | None = None,
        namespace: str | None = None,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        verify: bool | str = True,
        data_key_bits: int = 256,
        timeout: float = TIMEOUT,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        if data_key_bits not in (128, 256):
            raise ValueError(f"data_key_bits must be 128 or 256, not {data_key_bits}")
        if mount is not None and _MOUNT.fullmatch(mount) is None:
            raise ValueError(f"mount must be a path such as 'transit', not {mount!r}")
        self._address = None if url is None else checked_url(url, "url")
        self._mount = mount
        self._namespace = namespace
        self._token = token
        self._token_file = token_file
        self._verify = verify
        self._bits = data_key_bits
        self._timeout = timeout
        self._known: set[str] = set()

    def supports_key_generation(self) -> bool:
        """Yes: transit's datakey."""
        return True

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        self._refuse_unknown(key_id)
        text = base64.b64encode(key).decode()
        response = self._transit().encrypt_data(_name(key_id), plaintext=text, mount_point=self._mount_point())
        return _wrapped(response)

    def _refuse_unknown(self, key_id: str) -> None:
        """Ask for a data key once: to encrypt with a key that is not there makes it, if the token may make keys."""
        if key_id not in self._known:
            self._transit()
            from hvac.exceptions import Forbidden

            with suppress(Forbidden):
                self._generate(key_id)
            self._known.add(key_id)

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        if _CIPHERTEXT.fullmatch(wrapped) is None:
            raise Refusal("it was not wrapped by Vault, whose wrapped keys are text such as vault:v1:...")
        response = self._transit().decrypt_data(
            _name(key_id), ciphertext=wrapped.decode(), mount_point=self._mount_point()
        )
        return _decoded(_field(response, "plaintext"))

    def _generate(self, key_id: str) -> tuple[bytes, bytes]:
        response = self._transit().generate_data_key(
            _name(key_id), key_type="plaintext", bits=self._bits, mount_point=self._mount_point()
        )
        return _decoded(_field(response, "plaintext")), _wrapped(response)

    def _transit(self) -> Any:
        return self._connection.secrets.transit

    def _mount_point(self) -> str:
        mount = self._mount or self._properties.get("vault.mount", "transit")
        if _MOUNT.fullmatch(mount) is None:
            raise Refusal(f"vault.mount must be a path such as 'transit', not {mount!r}")
        return mount

    def _connect(self) -> Any:
        try:
            import hvac
            from requests import Session
        except ImportError as error:
            raise missing_sdk(error, "VaultKms", "vault") from None
        address = self._address
        if address is None:
            named = self._properties.get("vault.address") or _variable("ADDR")
            if not named:
                raise Unusable("no server was given: pass its URL, or set VAULT_ADDR")
            address = checked_url(named, "the address of the server")
        verify = _variable("CACERT") or True if self._verify is True else self._verify
        session = limit_session(Session())
        session.verify = verify
        return hvac.Client(
            url=address,
            session=session,
            verify=verify,
            token=self._found_token(),
            namespace=self._namespace or self._properties.get("vault.namespace") or _variable("NAMESPACE"),
            timeout=self._timeout,
        )

    def _found_token(self) -> str:
        if self._token is not None:
            return self._token
        files = [os.fspath(self._token_file)] if self._token_file is not None else []
        if not files:
            token = _variable("TOKEN")
            if token:
                return token
            files.append(os.path.expanduser("~/.vault-token"))
        try:
            with open(files[0], encoding="utf-8") as file:
                return file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._token_file is not None:
                reason = getattr(error, "strerror", None) or "it is not text"
                raise Unusable(f"the token file {files[0]} cannot be read: {reason}") from None
            raise Unusable("there is no token: set VAULT_TOKEN or BAO_TOKEN, or give a token_file") from None

    def _hang_up(self, connection: Any) -> None:
        connection.adapter.close()

    def _is_transient(self, error: Exception) -> bool:
        import requests
        from hvac import exceptions

        passing = (
            exceptions.RateLimitExceeded,
            exceptions.InternalServerError,
            exceptions.BadGateway,
            exceptions.VaultDown,
            requests.ConnectionError,
            requests.Timeout,
        )
        if isinstance(error, requests.exceptions.SSLError) or _WRONG_KEY in str(error):
            return False
        return isinstance(error, passing) or super()._is_transient(error)

    def _refuses_everything(self, error: Exception) -> bool:
        import requests
        from hvac import exceptions

        return isinstance(error, (exceptions.Unauthorized, exceptions.VaultDown, requests.RequestException))

    def _describe(self, error: Exception) -> str:
        from hvac.exceptions import VaultError

        if isinstance(error, VaultError):
            # The exception's own text contains the whole URL.
            text = str(error.args[0]) if error.args and error.args[0] else "no reason was given"
            return f"{type(error).__name__}: {text}"
        return super()._describe(error)


def _variable(name: str) -> str | None:
    return os.environ.get(f"VAULT_{name}") or os.environ.get(f"BAO_{name}")


def _name(key_id: str) -> str:
    """The name of the key. It becomes part of a path, so no other characters are allowed."""
    if _KEY_NAME.fullmatch(key_id) is None:
        raise Refusal("a key id must be the name of a transit key: letters, digits, and -_. inside")
    return key_id


def _field(response: Any, name: str) -> str:
    data = response.get("data") if isinstance(response, dict) else None
    value = data.get(name) if isinstance(data, dict) else None
    if not isinstance(value, str) or not value:
        raise Refusal(f"the service returned no {name}")
    return value


def _wrapped(response: Any) -> bytes:
    """A wrapped key, which :meth:`VaultKms._unwrap` takes again."""
    wrapped = _field(response, "ciphertext").encode()
    if _CIPHERTEXT.fullmatch(wrapped) is None:
        raise Refusal("the service returned a wrapped key that is no text such as vault:v1:...")
    return wrapped


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Refusal("the service returned a key that is not base64") from None
