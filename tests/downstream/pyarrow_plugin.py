"""A plugin of pytest: PyArrow's tests of Parquet encryption with our KMS client in place of their in-memory one."""

from __future__ import annotations

from typing import Any

from pyarrow.tests.parquet import encryption

from ags1.kms import MemoryKms


def our_client(config: Any) -> Any:
    """Return a client with the master keys that the configuration of a test has."""
    return MemoryKms({name: key.encode() for name, key in config.custom_kms_conf.items() if key}).as_pyarrow()


# Before their module of tests takes the name.
encryption.InMemoryKmsClient = our_client
