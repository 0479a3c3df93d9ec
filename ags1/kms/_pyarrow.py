"""A pyarrow KmsClient over any client of this package."""

from __future__ import annotations

import base64
import binascii

from ags1.errors import KeyAccessError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def pyarrow_client(client: Any) -> Any:
    """Make the pyarrow client of a client. The class is defined inside because its base class needs PyArrow."""
    try:
        from pyarrow.parquet.encryption import KmsClient
    except ImportError as error:
        raise ImportError("as_pyarrow() needs PyArrow: pip install 'ags1[arrow]'", name=error.name) from None

    class PyArrowKmsClient(KmsClient):  # type: ignore[misc]
        """Wrapped keys are base64 text, as in parquet-java's key tools."""

        def __init__(self) -> None:
            super().__init__()
            self._client = client
            self._key_cache = client._key_cache
            self.checks_keys = client.checks_keys

        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return base64.b64encode(self._client.wrap_key(key_bytes, master_key_identifier))

        def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
            try:
                wrapped = base64.b64decode(wrapped_key, validate=True)
            except (binascii.Error, ValueError):
                raise KeyAccessError(
                    f"{self._client.service} could not unwrap a key with {master_key_identifier!r}: the key material "
                    "of the Parquet file is not base64"
                ) from None
            unwrapped: bytes = self._client.unwrap_key(wrapped, master_key_identifier)
            return unwrapped

    return PyArrowKmsClient()
