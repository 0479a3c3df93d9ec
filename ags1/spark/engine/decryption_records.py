"""Records of the files that a decryption has written: a later run into the same target skips them.

    .ags1-decrypt-0b0e1f6e/4f1c2a9be07d9c41/done-*.sealed   files of a version that are durable
    .ags1-decrypt-0b0e1f6e/file-*                           incomplete files

Tasks record while they work, and the driver the big files that several tasks have filled.

Others may be able to write to the target. So records are sealed below the key of the dataset, for the version
that is decrypted, and say of each local file what :func:`ags1.storage.identity_of` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from ags1.core.gcm import random_bytes
from ags1.dataset.keys import DatasetKeys
from ags1.storage import Location, identity_of, list_files, remove, remove_directories
from ags1.work.records import OpenedRun, RunName, RunRecords, RunSeal, found_runs, remove_run

_KIND, _DONE = "decryption of a dataset", "done-"
_FILE = re.compile("file-[0-9a-f]+")


class DecryptionRecords:
    """The records in a target, of one version of a dataset. Several processes may write at once."""

    def __init__(self, target: Location, seal: RunSeal) -> None:
        self._target = target.as_root()
        self._directory = self._target.join(f".ags1-decrypt-{seal.name.owner[:8]}")
        self._seal = seal
        # Copies of a dataset that diverged have versions of the same number, but with other digests.
        self._version = seal.name.run[:16]
        self._records = RunRecords(self._directory.join(self._version), seal, durable=True)

    @classmethod
    def of(cls, target: Location, keys: DatasetKeys, owner: str, digest: str) -> DecryptionRecords:
        """The records of a version of the dataset `owner`. KeyAccessError: the KMS refused."""
        return cls(target, RunSeal(keys.key(), RunName(_KIND, owner, digest)))

    def read(self) -> dict[str, tuple[int, str]]:
        """Bytes and identity of each path that interrupted runs have recorded; an unreadable record is ignored."""
        found: dict[str, tuple[int, str]] = {}
        for run in found_runs(self._directory):
            if run.run == self._version:
                found.update(OpenedRun(run, self._seal, {}, {}).items(_DONE, _recorded, lambda name, error: None))
        return found

    def name_of_file(self) -> str:
        """A new name among the records, relative to the target, for an incomplete file."""
        return f"{self._directory.name}/file-{random_bytes(8).hex()}"

    def begin(self) -> None:
        """Make the directory of the records."""
        self._records.make_directory()

    def write(self, done: Iterable[tuple[str, int]]) -> None:
        """Record files, by path and bytes, that are durable."""
        if record := list(self._identified(done)):
            self._records.add(_DONE, record)

    def _identified(self, done: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int, str]]:
        for path, length in done:
            # In a store, that would be a request for each file.
            if not self._target.is_local:
                yield path, length, ""
                continue
            with suppress(FileNotFoundError, NotADirectoryError):
                yield path, length, identity_of(self._target.join(path))

    def remove(self) -> None:
        """Remove all records, those of other versions too, and incomplete files of killed runs."""
        for run in found_runs(self._directory):
            remove_run(run.directory)
        with suppress(FileNotFoundError):
            remove([each.location for each in list_files(self._directory) if _FILE.fullmatch(each.name)])
        self.close()

    def close(self) -> None:
        """Remove the directories, if no record is in them."""
        remove_directories([self._records.directory, self._directory])


def _recorded(fields: Any) -> tuple[str, tuple[int, str]]:
    path, length, identity = fields
    return path, (length, identity)
