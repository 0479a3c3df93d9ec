"""Google Cloud Key Management Service, over google-cloud-kms."""

from __future__ import annotations

import re

from ags1.kms._transport import limit_session
from ags1.kms.base import KeyManagementClient, Refusal, bytes_of, checked_url, missing_sdk
from ags1.support.typing import Any

TIMEOUT = 10.0
_KEY_NAME = re.compile(r"projects/[^/?#]+/locations/[^/?#]+/keyRings/[^/?#]+/cryptoKeys/[^/?#]+")
_TOKEN_PROPERTIES = ("gcs.oauth2.token", "gcp.oauth2.token")


class GcpKms(KeyManagementClient):
    """Wraps with encrypt and decrypt of Google Cloud KMS, as Iceberg's ``GcpKeyManagementClient`` does.

    A key id is the resource name: ``projects/P/locations/L/keyRings/R/cryptoKeys/K``. No additional authenticated data
    is sent, because Iceberg sends none. The checksums of Google's guide to data integrity are sent and checked.

    Parameters
    ----------
    endpoint : str, optional
        An address to use instead of Google's.
    credentials : google.auth.credentials.Credentials, optional
        By default the property ``gcs.oauth2.token``, else the application default credentials.
    timeout : float
        Seconds to wait for a response.
    **common
        As :class:`~ags1.kms.KeyManagementClient`.
    """

    service = "Google Cloud KMS"

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        credentials: Any = None,
        timeout: float = TIMEOUT,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self._endpoint = None if endpoint is None else checked_url(endpoint, "endpoint")
        self._credentials = credentials
        self._timeout = timeout

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        request = {"name": _named(key_id), "plaintext": key, "plaintext_crc32c": _crc32c(key)}
        response = self._connection.encrypt(request=request, retry=None, timeout=self._timeout)
        wrapped = bytes_of(response, "ciphertext")
        _check(response.verified_plaintext_crc32c and response.ciphertext_crc32c == _crc32c(wrapped))
        return wrapped

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        request = {"name": _named(key_id), "ciphertext": wrapped, "ciphertext_crc32c": _crc32c(wrapped)}
        response = self._connection.decrypt(request=request, retry=None, timeout=self._timeout)
        key = bytes_of(response, "plaintext")
        _check(response.plaintext_crc32c == _crc32c(key))
        return key

    def _connect(self) -> Any:
        try:
            from google.cloud.kms_v1 import KeyManagementServiceClient
            from google.oauth2.credentials import Credentials
        except ImportError as error:
            raise missing_sdk(error, "GcpKms", "gcp") from None
        credentials = self._credentials
        if credentials is None:
            token = next((self._properties[name] for name in _TOKEN_PROPERTIES if self._properties.get(name)), None)
            credentials = None if token is None else Credentials(token=token)
        options = {} if self._endpoint is None else {"api_endpoint": self._endpoint}
        # Unlike gRPC, REST works in processes that fork, as PySpark's do.
        client = KeyManagementServiceClient(credentials=credentials, transport="rest", client_options=options or None)
        session = limit_session(client.transport._session)  # type: ignore[attr-defined]
        if session._auth_request_session is not None:
            limit_session(session._auth_request_session)
        return client

    def _hang_up(self, connection: Any) -> None:
        connection.transport.close()

    def _is_transient(self, error: Exception) -> bool:
        import requests
        from google.api_core import exceptions
        from google.auth.exceptions import TransportError

        passing = (
            exceptions.TooManyRequests,
            exceptions.ServerError,
            exceptions.RetryError,
            requests.ConnectionError,
            requests.Timeout,
            TransportError,
        )
        if isinstance(error, requests.exceptions.SSLError):
            return False
        return isinstance(error, passing) or super()._is_transient(error)

    def _refuses_everything(self, error: Exception) -> bool:
        from google.api_core.exceptions import Unauthenticated
        from google.auth.exceptions import GoogleAuthError

        return isinstance(error, (Unauthenticated, GoogleAuthError))

    def _describe(self, error: Exception) -> str:
        from google.api_core.exceptions import GoogleAPICallError

        if isinstance(error, GoogleAPICallError):
            return f"{type(error).__name__}: {error.message}"
        return super()._describe(error)


def _check(fits: bool) -> None:
    if not fits:
        # The same request is tried again, as Google's guide to data integrity has it.
        raise ConnectionError("the checksum (CRC32C) says that the request or the answer was damaged on its way")


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for octet in data:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _named(key_id: str) -> str:
    if _KEY_NAME.fullmatch(key_id) is None:
        raise Refusal("a key id is projects/P/locations/L/keyRings/R/cryptoKeys/K")
    return key_id
