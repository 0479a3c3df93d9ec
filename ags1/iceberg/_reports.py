"""What rewrap, prune and merge say they did: key ids only, never keys."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MergeReport", "PruneReport", "RewrapReport"]


@dataclass(frozen=True)
class RewrapReport:
    """What a change of the master key did, or in a dry run would have done.

    Attributes
    ----------
    rewrapped : tuple of str
        Ids of the key encryption keys that are now wrapped by the new master key, each one verified.
    old_table_key_ids : tuple of str
        The master keys that wrapped them before: what the KMS must keep until no old metadata file is needed.
    new_table_key_id : str
        The master key that wraps them now.
    unopened : tuple of str
        Ids of entries that do not open under their key encryption key, before as after: damaged, or not key metadata.
    untouched : tuple of str
        Ids of entries that are neither a key encryption key nor wrapped by one in the list.
    dry_run : bool
        Every call was made and every check passed, and the result was thrown away.
    """

    rewrapped: tuple[str, ...]
    old_table_key_ids: tuple[str, ...]
    new_table_key_id: str
    unopened: tuple[str, ...] = ()
    untouched: tuple[str, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True)
class PruneReport:
    """What was dropped and what was kept, by id, in the order of the list.

    Attributes
    ----------
    dropped : tuple of str
        Entries that nothing in the metadata uses.
    kept : tuple of str
        All others.
    unjudged : tuple of str
        Those of `kept` that are there only because they have fields or properties that this version does not know.
    missing : tuple of str
        Ids that snapshots name and the list lacks: these snapshots cannot be opened.
    """

    dropped: tuple[str, ...]
    kept: tuple[str, ...]
    unjudged: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class MergeReport:
    """What came from where.

    Attributes
    ----------
    added : tuple of str
        Ids that only the other list had.
    common : tuple of str
        Ids that both had, alike.
    """

    added: tuple[str, ...]
    common: tuple[str, ...]
