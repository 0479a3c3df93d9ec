"""AWS Key Management Service, over boto3."""

from __future__ import annotations

from collections.abc import Mapping

from ags1.kms._transport import limit_botocore
from ags1.kms.base import KeyManagementClient, bytes_of, checked_url, missing_sdk
from ags1.support.typing import Any

TIMEOUT = 10.0
_PASSING = frozenset(
    {
        "DependencyTimeoutException",
        "InternalFailure",
        "InternalServerError",
        "KMSInternalException",
        "KeyUnavailableException",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_UNKNOWN_CALLER = frozenset(
    {
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "OptInRequired",
        "UnrecognizedClientException",
    }
)
_HINTS = {
    "IncorrectKeyException": "it was wrapped with another key",
    "InvalidCiphertextException": "it was wrapped with another key or another encryption context, or it is damaged",
}


class AwsKms(KeyManagementClient):
    """Wraps with Encrypt and Decrypt of AWS KMS, as Iceberg's ``AwsKeyManagementClient`` does.

    Parameters
    ----------
    region, endpoint, profile : str, optional
        The service and the credentials; an argument that is not given comes from the properties, then from the
        environment as boto3 reads it.
    encryption_context : mapping of str to str, optional
        Bound to the wrapped key, and needed again to unwrap it. None by default: Iceberg sends no context, and cannot
        unwrap keys that have one.
    encryption_algorithm, data_key_spec : str, optional
        ``SYMMETRIC_DEFAULT``, and for :meth:`generate_key` ``AES_256``.
    session : boto3.Session, optional
        Used instead of a new session.
    timeout : float
        Seconds to wait for a connection, and for a response.
    **common
        As :class:`~ags1.kms.KeyManagementClient`.

    Notes
    -----
    Properties: ``kms.endpoint``, ``kms.encryption-algorithm-spec``, ``kms.data-key-spec``, ``client.region``,
    ``client.profile-name``, ``client.access-key-id``, ``client.secret-access-key``, ``client.session-token``.
    """

    service = "AWS KMS"

    def __init__(
        self,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        profile: str | None = None,
        encryption_context: Mapping[str, str] | None = None,
        encryption_algorithm: str | None = None,
        data_key_spec: str | None = None,
        session: Any = None,
        timeout: float = TIMEOUT,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self._region = region
        self._endpoint = None if endpoint is None else checked_url(endpoint, "endpoint")
        self._profile = profile
        self._context = dict(encryption_context or {})
        self._algorithm = encryption_algorithm
        self._spec = data_key_spec
        self._session = session
        self._timeout = timeout

    def supports_key_generation(self) -> bool:
        """Yes: GenerateDataKey."""
        return True

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        response = self._connection.encrypt(KeyId=key_id, Plaintext=key, **self._common())
        return bytes_of(response, "CiphertextBlob")

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        response = self._connection.decrypt(KeyId=key_id, CiphertextBlob=wrapped, **self._common())
        return bytes_of(response, "Plaintext")

    def _generate(self, key_id: str) -> tuple[bytes, bytes]:
        spec = self._spec or self._properties.get("kms.data-key-spec", "AES_256")
        context = {"EncryptionContext": self._context} if self._context else {}
        response = self._connection.generate_data_key(KeyId=key_id, KeySpec=spec, **context)
        return bytes_of(response, "Plaintext"), bytes_of(response, "CiphertextBlob")

    def _common(self) -> dict[str, Any]:
        default = self._properties.get("kms.encryption-algorithm-spec", "SYMMETRIC_DEFAULT")
        arguments: dict[str, Any] = {"EncryptionAlgorithm": self._algorithm or default}
        if self._context:
            arguments["EncryptionContext"] = self._context
        return arguments

    def _connect(self) -> Any:
        try:
            import boto3
            from botocore.config import Config
        except ImportError as error:
            raise missing_sdk(error, "AwsKms", "aws") from None
        properties = self._properties
        endpoint = self._endpoint
        if endpoint is None and (named := properties.get("kms.endpoint")):
            endpoint = checked_url(named, "kms.endpoint")
        session = self._session or boto3.Session(
            profile_name=self._profile or properties.get("client.profile-name"),
            region_name=self._region or properties.get("client.region"),
        )
        # No retries in the SDK: the base class retries, in the same way for all services.
        config = Config(
            retries={"total_max_attempts": 1, "mode": "standard"},
            connect_timeout=self._timeout,
            read_timeout=self._timeout,
        )
        client = session.client(
            "kms",
            region_name=self._region or properties.get("client.region"),
            endpoint_url=endpoint,
            aws_access_key_id=properties.get("client.access-key-id"),
            aws_secret_access_key=properties.get("client.secret-access-key"),
            aws_session_token=properties.get("client.session-token"),
            config=config,
        )
        limit_botocore(client)
        return client

    def _is_transient(self, error: Exception) -> bool:
        from botocore.exceptions import ClientError, ConnectionClosedError, HTTPClientError, SSLError
        from botocore.exceptions import ConnectionError as BotoConnectionError

        if isinstance(error, ClientError):
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return _code(error) in _PASSING or status == 429 or status >= 500
        if isinstance(error, SSLError):
            return False
        return isinstance(error, (BotoConnectionError, ConnectionClosedError, HTTPClientError)) or (
            super()._is_transient(error)
        )

    def _refuses_everything(self, error: Exception) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        if isinstance(error, ClientError):
            return _code(error) in _UNKNOWN_CALLER
        # No credentials, no region, no certificate: these do not depend on the key id.
        return isinstance(error, BotoCoreError)

    def _describe(self, error: Exception) -> str:
        from botocore.exceptions import ClientError

        if isinstance(error, ClientError):
            code = _code(error)
            text = str(error.response.get("Error", {}).get("Message") or _HINTS.get(code, ""))
            return f"{code}: {text}" if text else code
        return super()._describe(error)


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", "an error without a code"))
