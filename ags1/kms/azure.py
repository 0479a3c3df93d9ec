"""Azure Key Vault and Managed HSM, over azure-keyvault-keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ags1.kms._transport import limit_session
from ags1.kms.base import KeyManagementClient, Refusal, bytes_of, checked_url, missing_sdk
from ags1.support.typing import Any

TIMEOUT = 10.0
_KEY_ID = re.compile(r"([0-9A-Za-z-]{1,127})(?:/([0-9A-Za-z]{1,64}))?")
# For a key that was rotated more often, the caller must give the version.
_MOST_VERSIONS = 50


class AzureKms(KeyManagementClient):
    """Wraps with wrapKey and unwrapKey of Azure Key Vault, as Iceberg's ``AzureKeyManagementClient`` does.

    A key id is a key's name, ``name/version``, or the key's whole identifier in this vault. Wrapped bytes do not
    contain the version that wrapped them. Without a version, the newest is tried first and then the older ones, which
    needs the permission to list versions. So a key that was wrapped before a rotation can still be unwrapped.

    Parameters
    ----------
    vault_url : str, optional
        Such as ``https://my-vault.vault.azure.net``; else the property ``azure.keyvault.url``.
    credential : azure.core.credentials.TokenCredential, optional
        By default azure-identity's ``DefaultAzureCredential``.
    algorithm : str, optional
        Else the property ``azure.keyvault.key-wrap-algorithm``, else ``RSA-OAEP-256``.
    timeout : float
        Seconds to wait for a connection, and for a response.
    options : mapping, optional
        More keyword arguments for the SDK's ``KeyClient``, such as ``connection_verify`` or ``proxies``.
    **common
        As :class:`~ags1.kms.KeyManagementClient`.

    Notes
    -----
    To wrap, the SDK may fetch the public key and use it locally, as it does in Java.
    """

    service = "Azure Key Vault"

    def __init__(
        self,
        vault_url: str | None = None,
        *,
        credential: Any = None,
        algorithm: str | None = None,
        timeout: float = TIMEOUT,
        options: Mapping[str, Any] | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self._vault_url = None if vault_url is None else checked_url(vault_url, "vault_url")
        self._credential = credential
        self._algorithm = algorithm
        self._timeout = timeout
        self._options = dict(options or {})

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        name, version = self._parsed(key_id)
        client = self._cryptography(name, version)
        return bytes_of(client.wrap_key(self._wrap_algorithm(), key), "encrypted_key")

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        name, version = self._parsed(key_id)
        self._connection  # noqa: B018  names the extra if the SDK is missing
        from azure.core.exceptions import HttpResponseError

        try:
            return self._unwrap_by(wrapped, name, version)
        except HttpResponseError as error:
            if version is not None or error.status_code != 400:
                raise
            refusal = error
        for older in self._versions(name, refusal):
            try:
                return self._unwrap_by(wrapped, name, older)
            except HttpResponseError as error:
                if error.status_code != 400:
                    raise
        raise Refusal(f"no version of the key unwraps it: {self._describe(refusal)}")

    def _unwrap_by(self, wrapped: bytes, name: str, version: str | None) -> bytes:
        client = self._cryptography(name, version)
        return bytes_of(client.unwrap_key(self._wrap_algorithm(), wrapped), "key")

    def _cryptography(self, name: str, version: str | None) -> Any:
        """Make the SDK's client for one key.

        A new one for each call, because a client always uses the version that was the newest at its first call. Never
        closed, because closing one closes the connections of all.
        """
        return self._connection.get_cryptography_client(name, key_version=version)

    def _versions(self, name: str, refusal: Any) -> Iterator[str]:
        """Versions of a key, newest first, with the one already tried: times have a resolution of one second."""
        from azure.core.exceptions import HttpResponseError

        try:
            found = list(self._connection.list_properties_of_key_versions(name))
        except HttpResponseError as error:
            if error.status_code != 403:
                raise
            raise Refusal(
                f"{self._describe(refusal)}. If the key was rotated, give its version in the key id "
                f"(name/version), or allow this client to list versions"
            ) from None
        usable = [each for each in found if each.enabled is not False and each.created_on is not None]
        usable.sort(key=lambda each: each.created_on, reverse=True)
        yield from (str(each.version) for each in usable[:_MOST_VERSIONS])

    def _wrap_algorithm(self) -> Any:
        from azure.keyvault.keys.crypto import KeyWrapAlgorithm

        name = self._algorithm or self._properties.get("azure.keyvault.key-wrap-algorithm", "RSA-OAEP-256")
        try:
            return KeyWrapAlgorithm(name)
        except ValueError:
            known = ", ".join(each.value for each in KeyWrapAlgorithm)
            raise Refusal(f"there is no algorithm {name[:40]!r}; there are {known}") from None

    def _url(self) -> str:
        if self._vault_url is not None:
            return self._vault_url
        named = self._properties.get("azure.keyvault.url")
        if not named:
            raise Refusal("no vault was given: set vault_url, or the property azure.keyvault.url")
        return checked_url(named, "azure.keyvault.url")

    def _parsed(self, key_id: str) -> tuple[str, str | None]:
        """Name and version. A key id may come from the metadata of a table, so it must not select another vault."""
        if "://" in key_id:
            prefix = f"{self._url()}/keys/"
            if not key_id.lower().startswith(prefix.lower()):
                raise Refusal(f"the key id belongs to another vault than {self._url()}")
            key_id = key_id[len(prefix) :]
        found = _KEY_ID.fullmatch(key_id)
        if found is None:
            raise Refusal("a key id is NAME, NAME/VERSION or https://VAULT/keys/NAME/VERSION")
        return found[1], found[2]

    def _connect(self) -> Any:
        try:
            from azure.core.pipeline.transport import RequestsTransport
            from azure.keyvault.keys import KeyClient
            from requests import Session
        except ImportError as error:
            raise missing_sdk(error, "AzureKms", "azure") from None
        credential = self._credential
        if credential is None:
            try:
                from azure.identity import DefaultAzureCredential
            except ImportError as error:
                raise missing_sdk(error, "AzureKms", "azure") from None
            credential = DefaultAzureCredential(transport=RequestsTransport(session=limit_session(Session())))
        # No retries in the SDK: the base class retries.
        options = {
            "retry_total": 0,
            "connection_timeout": self._timeout,
            "read_timeout": self._timeout,
            **self._options,
        }
        options.setdefault("transport", RequestsTransport(session=limit_session(Session()), **options))
        return KeyClient(self._url(), credential, **options)

    def _is_transient(self, error: Exception) -> bool:
        from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError

        if isinstance(error, HttpResponseError):
            status = error.status_code or 0
            return status in (408, 429) or status >= 500
        if isinstance(error, (ServiceRequestError, ServiceResponseError)):
            return "certificate" not in str(error).lower() and "not permitted" not in str(error)
        return super()._is_transient(error)

    def _refuses_everything(self, error: Exception) -> bool:
        from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError

        return isinstance(error, (ClientAuthenticationError, ServiceRequestError))

    def _describe(self, error: Exception) -> str:
        from azure.core.exceptions import HttpResponseError

        if isinstance(error, HttpResponseError) and error.error is not None:
            return f"{error.error.code}: {error.error.message}"
        return super()._describe(error)
