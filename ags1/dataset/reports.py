"""Reports of the operations on a dataset. They contain no key."""

from __future__ import annotations

from dataclasses import dataclass, field

from ags1.support.reports import Report
from ags1.support.words import LINK


@dataclass
class RunReport(Report):
    """The result of encrypting, adding or decrypting files.

    Attributes
    ----------
    version : int
        Version of the dataset afterwards.
    changed : bool
        Whether there is a new version.
    done : int
        Files that were encrypted or decrypted.
    done_bytes : int
        Bytes of plaintext in them.
    unchanged : int
        Files that did not change since the last version.
    resumed : int
        Files that an interrupted run had encrypted.
    repaired : int
        Those of `done` whose object in the dataset was missing or had another length.
    others : int
        Files of the dataset that the source does not have; they stay.
    excluded : int
        Files of the dataset that `include` and `exclude` leave out, whether the source has them or not; they stay.
    removed : int
        Files that were removed from the new version.
    skipped : list of (str, str)
        Paths that were skipped, with the reason: links, pipes, sockets, devices.
    notes : list of (str, str)
        Paths with remarks, such as an interrupted run whose keys are no longer available.
    errors : list of (str, Exception)
        Files that failed, with ``on_error="collect"``.
    paths : list of str
        In a dry run, the files that would be encrypted or decrypted.
    """

    version: int = 0
    changed: bool = False
    done: int = 0
    done_bytes: int = 0
    unchanged: int = 0
    resumed: int = 0
    repaired: int = 0
    others: int = 0
    excluded: int = 0
    removed: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    errors: list[tuple[str, Exception]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no file failed."""
        return not self.errors

    @property
    def links(self) -> list[str]:
        """Those of the skipped paths that are links: what they lead to was not encrypted."""
        return [path for path, reason in self.skipped if reason == LINK]


@dataclass(frozen=True)
class DatasetRewrapReport(Report):
    """The result of a change of a master key.

    Attributes
    ----------
    version : int
        Version of the dataset afterwards.
    old_key_id, new_key_id : str
        Names of the master keys.
    older_versions : int
        Versions that still have the key of the dataset wrapped under the old master key. `expire` removes them.
    unfinished_runs : int
        Interrupted runs whose keys are under the old master key. Without that key they cannot be resumed.
    dry_run : bool
        Whether nothing was written. Every call to the KMS was made and succeeded.
    """

    version: int
    old_key_id: str
    new_key_id: str
    older_versions: int
    unfinished_runs: int
    dry_run: bool


@dataclass
class ExpireReport(Report):
    """The result of `expire`: what it removed or would remove.

    Attributes
    ----------
    version : int
        Version of the dataset afterwards.
    versions, kept : list of int
        Versions that were removed, and those that stay; the last of these is the one that `expire` makes.
    objects, object_bytes : int
        Objects that no version names, and their bytes.
    young_objects : int
        Objects that no version names and that stay, because they are younger than `grace`.
    dry_run : bool
        Whether nothing was removed.
    """

    version: int
    versions: list[int]
    kept: list[int]
    objects: int
    object_bytes: int
    young_objects: int
    dry_run: bool

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not (self.versions or self.objects)
