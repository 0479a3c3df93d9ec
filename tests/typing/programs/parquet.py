"""ags1.parquet: a type checker accepts every line but those marked as refused."""

import ags1
from ags1 import Key, parquet
from ags1.kms import MemoryKms

ENCRYPTION = parquet.EncryptionConfig(Key.generate(), column_keys={"ssn": bytes(16)})
DECRYPTION = parquet.DecryptionConfig(bytes(16), aad_prefix=b"name")
KMS = MemoryKms({"lake": bytes(16)})


def configurations() -> None:
    parquet.EncryptionConfig("key")  # refused
    parquet.DecryptionConfig(bytes(16), aad_prefix="name")  # refused


def encrypt_file() -> None:
    parquet.encrypt_file("a", "b", ENCRYPTION)
    parquet.encrypt_file("a", "b", DECRYPTION)  # refused


def decrypt_file() -> None:
    parquet.decrypt_file("a", "b", DECRYPTION, drop_bloom_filters=True)
    parquet.decrypt_file("a", "b", bytes(16))  # refused


def rekey_file() -> None:
    parquet.rekey_file("a", "b", DECRYPTION, ENCRYPTION, plaintext_columns=["name"])
    parquet.rekey_file("a", "b", ENCRYPTION, DECRYPTION)  # refused


def encrypt_tree() -> None:
    report: parquet.ParquetTreeReport = parquet.encrypt_tree("a", "b", ENCRYPTION, shared_keys=True)
    parquet.encrypt_tree(report, "b", ENCRYPTION)  # refused


def decrypt_tree() -> None:
    report: parquet.ParquetTreeReport = parquet.decrypt_tree("a", "b", DECRYPTION)
    parquet.decrypt_tree("a", "b", report)  # refused


def rekey_tree() -> None:
    report: parquet.ParquetTreeReport = parquet.rekey_tree("a", "b", DECRYPTION, ENCRYPTION)
    parquet.rekey_tree("a", report, DECRYPTION, ENCRYPTION)  # refused


def verify_tree() -> None:
    report: ags1.VerifyReport = parquet.verify_tree("a", DECRYPTION)
    parquet.verify_tree("a", report)  # refused


def verify_file() -> None:
    report: ags1.VerifyReport = parquet.verify_file("a", DECRYPTION)
    parquet.verify_file("a", report)  # refused


def inspect() -> None:
    found: parquet.Inspection = parquet.inspect("a")
    parquet.inspect("a", found)  # refused


def open_() -> None:
    view: parquet.ParquetView = parquet.open("a", DECRYPTION)
    parquet.open("a", view)  # refused


def read_table() -> None:
    parquet.read_table("a", DECRYPTION, columns=["id"])
    parquet.read_table("a", "key")  # refused


def dataset() -> None:
    parquet.dataset(["a", "b"], DECRYPTION)
    parquet.dataset(["a", "b"], DECRYPTION, columns=5)  # refused


def write_table() -> None:
    parquet.write_table(None, "a", ENCRYPTION, row_group_size=1000)
    parquet.write_table(None, "a", DECRYPTION)  # refused


def rotate_file() -> None:
    parquet.rotate_file("a", "b", KMS, master_key_ids={"old": "new"})
    parquet.rotate_file("a", "b", KMS, master_key_ids=["new"])  # refused


def rotate_master_keys() -> None:
    report: parquet.RotationReport = parquet.rotate_master_keys(KMS, "folder")
    parquet.rotate_master_keys(KMS, report)  # refused


def rewrap_key_metadata() -> None:
    metadata: bytes = parquet.rewrap_key_metadata(b"{}", KMS, "new")
    parquet.rewrap_key_metadata(metadata, KMS, 5)  # refused
