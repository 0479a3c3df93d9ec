"""PyIceberg's KeyManagementClient over any client of this package."""

from __future__ import annotations

from collections.abc import Mapping

from ags1.kms.asking import checks_keys
from ags1.kms.base import KeyManagementClient
from ags1.kms.services import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    _Interface = object
    from ags1.kms.base import GeneratedKey
else:
    try:
        from pyiceberg.encryption.kms import GeneratedKey
        from pyiceberg.encryption.kms import KeyManagementClient as _Interface
    except ImportError:  # PyIceberg up to 0.12 has no such interface
        from ags1.kms.base import GeneratedKey

        _Interface = object

_KMS = "ags1.kms"


class PyIcebergKms(_Interface):
    """A client of this package as PyIceberg's ``KeyManagementClient``.

    It waits for the release of PyIceberg that has this interface: 0.12 has none. Where that can be imported, this
    class derives from it.

    Parameters
    ----------
    properties : mapping of str to str
        Those of the catalog. ``ags1.kms`` is a URL for :func:`load`, such as ``aws:`` or ``vault:https://HOST:8200``.
        No other property is read, so that what a catalog's server sends names no other service.
    client : KeyManagementClient, optional
        A client, instead of ``ags1.kms``: ``kms_client=PyIcebergKms(client=client)``.

    Raises
    ------
    ValueError
        Neither says which service to ask.

    Notes
    -----
    Safe to share between threads, as the client is. One that was made of properties can be pickled.

    Examples
    --------
    >>> load_catalog("lake", **{"py-kms-impl": "ags1.kms.PyIcebergKms", "ags1.kms": "aws:?region=eu-central-1"})
    """

    def __init__(self, properties: Mapping[str, str] = {}, *, client: KeyManagementClient | None = None) -> None:
        self.properties = dict(properties)
        self._is_given = client is not None
        if client is None:
            if not (url := self.properties.get(_KMS)):
                raise ValueError(f"the catalog needs the property {_KMS}: the URL of a key service, such as 'aws:'")
            client = load(url)
        self._client = client
        self.checks_keys = checks_keys(client)

    def __repr__(self) -> str:
        return f"ags1.kms.PyIcebergKms({self._client!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._is_given:
            raise TypeError(f"a PyIcebergKms with a client of its own cannot be pickled: name {_KMS} in the properties")
        # The others may be credentials of the catalog.
        return PyIcebergKms, ({_KMS: self.properties[_KMS]},)

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        """Wrap a key with a master key; as :meth:`KeyManagementClient.wrap_key`."""
        return self._client.wrap_key(key, wrapping_key_id)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        """Unwrap a key, from the cache if it has it; as :meth:`KeyManagementClient.unwrap_key`."""
        return self._client.unwrap_key(wrapped_key, wrapping_key_id)

    def supports_key_generation(self) -> bool:
        """Whether the service makes keys; as :meth:`KeyManagementClient.supports_key_generation`."""
        return self._client.supports_key_generation()

    def generate_key(self, wrapping_key_id: str) -> GeneratedKey:
        """Have the service make and wrap a key; as :meth:`KeyManagementClient.generate_key`."""
        made = self._client.generate_key(wrapping_key_id)
        return GeneratedKey(made.key, made.wrapped_key)
