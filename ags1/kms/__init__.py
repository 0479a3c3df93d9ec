"""Key management services behind one small protocol: Iceberg's KeyManagementClient, in Python.

>>> from ags1 import kms
>>> client = kms.MemoryKms({"lake": bytes(32)})
>>> wrapped = client.wrap_key(b"sixteen byte key", "lake")
>>> client.unwrap_key(wrapped, "lake")
b'sixteen byte key'

Every client has the methods of Iceberg's interface. ``as_pyarrow()`` is the same service for PyArrow's Parquet
encryption, :class:`PyIcebergKms` for PyIceberg's tables. Calls, algorithms and context are those of
Iceberg Java, so that each side unwraps the other's keys.

Importing this package imports no service's SDK: each client does that when it is first used, and names the extra to
install if it is missing.
"""

from __future__ import annotations

from ags1.support.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.kms.aws import AwsKms
    from ags1.kms.azure import AzureKms
    from ags1.kms.base import GeneratedKey, KeyManagementClient, ServiceRefusal
    from ags1.kms.cache import CACHE_SECONDS, KeyCache, key_cache_of, name_of_key
    from ags1.kms.gcp import GcpKms
    from ags1.kms.local import LocalKms
    from ags1.kms.memory import MemoryKms
    from ags1.kms.pyiceberg import PyIcebergKms
    from ags1.kms.services import load
    from ags1.kms.vault import VaultKms

__all__ = [
    "CACHE_SECONDS",
    "AwsKms",
    "AzureKms",
    "GcpKms",
    "GeneratedKey",
    "KeyCache",
    "KeyManagementClient",
    "LocalKms",
    "MemoryKms",
    "PyIcebergKms",
    "ServiceRefusal",
    "VaultKms",
    "key_cache_of",
    "load",
    "name_of_key",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "base": ("GeneratedKey", "KeyManagementClient", "ServiceRefusal"),
        "cache": ("CACHE_SECONDS", "KeyCache", "key_cache_of", "name_of_key"),
        "services": ("load",),
        "pyiceberg": ("PyIcebergKms",),
        "aws": ("AwsKms",),
        "azure": ("AzureKms",),
        "gcp": ("GcpKms",),
        "local": ("LocalKms",),
        "memory": ("MemoryKms",),
        "vault": ("VaultKms",),
    },
)
