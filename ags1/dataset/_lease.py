"""Keeps other writers of a dataset behind an object store out, where there is no lock that ends with its process.

    _ags1/lease.json    {"token": ..., "host": ..., "pid": ..., "expires-ms": ...}

The holder renews it; one that is not renewed has expired and may be taken. Where the store can (S3 since 2024), it is
created only if it is not there. Between two that take an expired lease in the same moment it cannot decide for certain.
That costs no file: both go on with the same unfinished run, under the same keys, and before its commit each makes sure
that the dataset has not changed and that the lease is still its own.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time

from ags1._gcm import random_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

__all__ = ["LEASE", "Lease"]

LEASE = "lease.json"
_LASTS = 90.0
_RENEWED_AFTER = 20.0


class Lease:
    """Held from ``with`` to its end, and renewed by a thread.

    Parameters
    ----------
    file_system : fsspec file system
        Where the dataset is.
    path : str
        Of the lease.
    root : str
        What to call the dataset in errors.

    Raises
    ------
    BlockingIOError
        Another one holds it; names its process and host.
    """

    def __init__(self, file_system: Any, path: str, root: str) -> None:
        self._file_system = file_system
        self._path = path
        self._root = root
        self._token = random_bytes(8).hex()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._take()

    def _take(self) -> None:
        try:
            self._file_system.pipe_file(self._path, self._text(), mode="create")
        except (FileExistsError, TypeError, ValueError, NotImplementedError):
            # Either it is there, or this file system knows no such mode.
            self._refuse_if_held()
            self._file_system.pipe_file(self._path, self._text())
        if not self.is_held():
            raise self._held_by(self._read())
        self._thread = threading.Thread(target=self._renew, name="ags1-lease", daemon=True)
        self._thread.start()

    def _text(self) -> bytes:
        fields = {
            "token": self._token,
            "host": os.uname().nodename,
            "pid": os.getpid(),
            "expires-ms": int((time.time() + _LASTS) * 1000),
        }
        return json.dumps(fields).encode()

    def _read(self) -> dict[str, Any]:
        try:
            fields = json.loads(self._file_system.cat_file(self._path))
        except (FileNotFoundError, ValueError):
            return {}
        return fields if isinstance(fields, dict) else {}

    def _refuse_if_held(self) -> None:
        fields = self._read()
        expires = fields.get("expires-ms")
        if isinstance(expires, int) and expires > time.time() * 1000 and fields.get("token") != self._token:
            raise self._held_by(fields)

    def _held_by(self, fields: dict[str, Any]) -> BlockingIOError:
        holder = f"process {fields.get('pid')} on host {str(fields.get('host'))[:255]}"
        left = max(0, int(fields.get("expires-ms", 0)) // 1000 - int(time.time()))
        text = (
            f"{holder} is changing this dataset now: wait until it has ended, then try again "
            f"(if it was killed, its lease expires in {left} s)"
        )
        return BlockingIOError(errno.EAGAIN, text, self._root)

    def is_held(self) -> bool:
        """Whether it is still this one's."""
        return self._read().get("token") == self._token

    def _renew(self) -> None:
        while not self._over.wait(_RENEWED_AFTER):
            try:
                if self.is_held():
                    self._file_system.pipe_file(self._path, self._text())
            except Exception:
                # The store does not answer: the work itself says so, and the next renewal may succeed.
                continue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        try:
            if self.is_held():
                self._file_system.rm_file(self._path)
        except (OSError, NotImplementedError):
            # It expires by itself.
            return
