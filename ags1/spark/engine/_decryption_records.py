"""Records of the files that a decryption has written: a later run into the same target skips them.

Tasks record while they work, and the driver the big files that several tasks have filled. A record is written when its
files are durable.

Others may be able to write to the target. So records are sealed below the key of the dataset, for the version
that is decrypted, and say of each local file what :func:`ags1.storage.identity_of` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from ags1.core.gcm import random_bytes
from ags1.dataset.keys import DatasetKeys
from ags1.errors import AuthenticationError, FormatError
from ags1.kms.run_records import RunName, RunSeal
from ags1.storage import (
    Location,
    identity_of,
    list_files,
    make_parent,
    open_output,
    read_whole,
    remove,
    remove_directories,
)

_MAX_RECORD = 256 << 20
_KIND = "decryption of a dataset"
_ENDING = ".sealed"
# Records, and incomplete files of killed runs.
_RECORD = re.compile(r"[\w-]+\.sealed|file-[0-9a-f]+", re.ASCII)


class DecryptionRecords:
    """The records in a target, of one version of a dataset. Several processes may write at once."""

    def __init__(self, target: Location, seal: RunSeal) -> None:
        self._target = target.as_root()
        self._location = self._target.join(f".ags1-decrypt-{seal.name.owner[:8]}")
        self._seal = seal
        # Copies of a dataset that diverged have versions of the same number, but with other digests.
        self._version = seal.name.run[:16]

    @classmethod
    def of(cls, target: Location, keys: DatasetKeys, owner: str, digest: str) -> DecryptionRecords:
        """The records of a version of the dataset `owner`. KeyAccessError: the KMS refused."""
        return cls(target, RunSeal(keys.key(), RunName(_KIND, owner, digest)))

    def read(self) -> dict[str, tuple[int, str]]:
        """Bytes and identity of each path that interrupted runs have recorded; an unreadable record is ignored."""
        found: dict[str, tuple[int, str]] = {}
        for each in self._listed():
            name = each.name.removesuffix(_ENDING)
            if not name.startswith(f"{self._version}-"):
                continue
            with suppress(ValueError, TypeError, FormatError, AuthenticationError):
                record = json.loads(self._seal.open(bytes(memoryview(read_whole(each, _MAX_RECORD))), name))
                found.update({path: (length, identity) for path, length, identity in record})
        return found

    def name_of_file(self) -> str:
        """A new name among the records, relative to the target, for an incomplete file."""
        return f"{self._location.name}/file-{random_bytes(8).hex()}"

    def begin(self) -> None:
        """Make the directory of the records. A task that is late does not make it again."""
        make_parent(self._location.join("record"))

    def write(self, done: Iterable[tuple[str, int]]) -> None:
        """Record files, by path and bytes, that are durable."""
        record = list(self._identified(done))
        if not record:
            return
        name = f"{self._version}-{random_bytes(6).hex()}"
        with open_output(self._location.join(f"{name}{_ENDING}")) as output:
            output.write(self._seal.seal(json.dumps(record).encode("ascii"), name))
            output.commit(durable=True)

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
        remove(self._listed())
        self.close()

    def close(self) -> None:
        """Remove the directory, if no record is in it."""
        remove_directories([self._location])

    def _listed(self) -> list[Location]:
        try:
            return [each.location for each in list_files(self._location) if _RECORD.fullmatch(each.name)]
        except FileNotFoundError:
            return []
