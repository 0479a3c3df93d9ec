"""Import the modules named in argv in that order, then use each: every OpenSSL in the process has to work.

argv: the directory with a certificate (cert.pem, key.pem), then the modules' names.
"""

import importlib
import sys
from pathlib import Path


def use_ags1(_: Path) -> None:
    import ags1

    key = ags1.Key.generate()
    data = bytes(range(256)) * 1000
    stream = ags1.encrypt(data, key, aad_prefix=b"prefix", block_length=4096)
    assert ags1.decrypt(stream, key, aad_prefix=b"prefix", length=len(stream)) == data
    try:
        ags1.decrypt(stream[:-1] + bytes([stream[-1] ^ 1]), key, aad_prefix=b"prefix")
    except ags1.AuthenticationError:
        pass
    else:
        raise AssertionError("a damaged stream was accepted")


def use_ssl(directory: Path) -> None:
    """Do a TLS handshake in memory and send a line through it."""
    import ssl

    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    client_context = ssl.create_default_context(cafile=str(directory / "cert.pem"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname="localhost")
    pending = [client, server]
    for _ in range(10):
        for side in list(pending):
            try:
                side.do_handshake()
                pending.remove(side)
            except ssl.SSLWantReadError:
                pass
    assert not pending
    client.write(b"over TLS")
    assert server.read() == b"over TLS"


def use_cryptography(_: Path) -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher = AESGCM(bytes(32))
    assert cipher.decrypt(bytes(12), cipher.encrypt(bytes(12), b"data", b"aad"), b"aad") == b"data"


def use_pyarrow(directory: Path) -> None:
    """Write and read Parquet with modular encryption: the part of pyarrow that has an OpenSSL inside."""
    import base64
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq
    import pyarrow.parquet.encryption as pe

    class Client(pe.KmsClient):
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return base64.b64encode(key_bytes)

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return base64.b64decode(wrapped_key)

    table = pa.table({"a": list(range(1000))})
    factory, connection = pe.CryptoFactory(lambda configuration: Client()), pe.KmsConnectionConfig()
    encrypt = factory.file_encryption_properties(
        connection, pe.EncryptionConfiguration(footer_key="k", column_keys={"k": ["a"]})
    )
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, encryption_properties=encrypt) as writer:
        writer.write_table(table)
    decrypt = factory.file_decryption_properties(connection)
    source = io.BytesIO(sink.getvalue())
    assert pq.ParquetFile(source, decryption_properties=decrypt).read().equals(table)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        importlib.import_module(name)
    for name in sys.argv[2:]:
        globals()[f"use_{name}"](Path(sys.argv[1]))
    print("ok")
