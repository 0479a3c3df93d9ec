"""Arrow buffers, tables, and IPC streams and files, encrypted as AGS1.

    array          encrypt_array        one AGS1 stream for each value, one native call for all; nulls stay null
    columns        encrypt_columns      likewise, and the metadata of the schema keeps the original types
    buffers        encrypt_buffers      one AGS1 stream for each buffer, one native call for all
    table          encrypt_table        one AGS1 stream that holds an Arrow IPC stream
    IPC file       write_ipc_file       an AGS1 file of an Arrow IPC file: read_batch decrypts only its blocks

Buffers are encrypted without serialisation or a copy, directly from the memory of Arrow, and decrypted into 64-byte
aligned memory that Arrow then uses without a copy. Needs pyarrow: ``pip install 'ags1[arrow]'``.
"""

from __future__ import annotations

from ags1.arrow.buffers import decrypt_buffers, encrypt_buffers
from ags1.arrow.ipc import (
    IpcFile,
    decrypt_table,
    encrypt_table,
    open_ipc_file,
    open_ipc_stream,
    write_ipc_file,
    write_ipc_stream,
)
from ags1.arrow.values import decrypt_array, decrypt_columns, encrypt_array, encrypt_columns

__all__ = [
    "IpcFile",
    "decrypt_array",
    "decrypt_buffers",
    "decrypt_columns",
    "decrypt_table",
    "encrypt_array",
    "encrypt_buffers",
    "encrypt_columns",
    "encrypt_table",
    "open_ipc_file",
    "open_ipc_stream",
    "write_ipc_file",
    "write_ipc_stream",
]
