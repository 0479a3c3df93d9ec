"""The configurations for encrypting and for reading Parquet files.

    EncryptionConfig  --for_file()-->  FileEncryption   one file's keys, AAD, columns
    DecryptionConfig  --for_file()-->  FileDecryption   keys by column and key metadata, and the AAD prefix

A configuration is made once and used for many files. ``for_file`` makes the parts that are different for each file: the
unique part of its AAD, and new data keys under a KMS. Source: the Parquet Modular Encryption specification, and the
properties classes of parquet-java and Arrow C++, whose rules these follow where the specification is silent.
"""

from __future__ import annotations

from ags1.parquet.keys._encryption_config import ColumnKey, EncryptionConfig, FileEncryption
from ags1.parquet.keys.decryption_config import DecryptionConfig, FileDecryption

__all__ = ["ColumnKey", "DecryptionConfig", "EncryptionConfig", "FileDecryption", "FileEncryption"]
