"""Another master key for a dataset: only wrapped keys are written anew, those of unfinished runs too."""

from __future__ import annotations

import errno
from dataclasses import replace

import ags1.dataset._journal as _journal
import ags1.dataset._recovery as _recovery
from ags1.dataset._control import CONTROL, METADATA
from ags1.dataset._keys import KeyRing
from ags1.dataset._runs import record_name
from ags1.dataset._store import LocalStore, RemoteStore, open_manifest
from ags1.dataset._update import find_metadata, names_of, settle, sweep, unfinished_runs
from ags1.dataset.reports import RewrapReport
from ags1.errors import KeyAccessError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["rewrap"]


def rewrap(store: LocalStore | RemoteStore, kms: Any, new_key_id: str, new_kms: Any, dry_run: bool) -> RewrapReport:
    """Wrap all key encryption keys anew: those of unfinished runs first, because the metadata says that it is over."""
    with store.lock():
        metadata = find_metadata(store)
        if metadata is None:
            raise FileNotFoundError(errno.ENOENT, "there is no ags1 dataset here any more", store.root)
        if not dry_run:
            metadata = settle(store, metadata) or metadata
        count = 0
        identity = _recovery.live_journal(store.root, metadata) if isinstance(store, LocalStore) else None
        if identity is not None:
            fields = _journal.read_fields(store.root, identity)
            ring = KeyRing(fields["encryption-keys"], fields["table-key-id"], f"the journal {identity}")
            if not _is_under(ring, fields["key-id"], new_key_id, new_kms):
                ring = ring.rewrapped(kms, new_key_id, new_kms)
                count += 1
                if not dry_run:
                    _journal.rewrite_keys(store.root, identity, fields, ring)
        kept = {f"staged-{identity}"} if identity is not None else set()
        for run in unfinished_runs(store):
            kept |= names_of(store, run)
            if not _is_under(run.key_ring(), run.key_id, new_key_id, new_kms):
                changed_run = run.rewrapped(run.key_ring().rewrapped(kms, new_key_id, new_kms))
                count += 1
                if not dry_run:
                    store.write_control(record_name(run.run), changed_run.encode())
        name = store.join(CONTROL, METADATA)
        keys = KeyRing(metadata.encryption_keys, metadata.table_key_id, name)
        # Whether it is authentic, before it is written anew.
        open_manifest(store, metadata, keys, kms).close()
        renewed = keys.rewrapped(kms, new_key_id, new_kms)
        count += sum(1 for entry in renewed.to_list() if entry.get("encrypted-by-id") == new_key_id)
        renewed.unwrap(metadata.manifest_key_id, new_kms if new_kms is not None else kms)
        if not dry_run:
            changed = replace(
                metadata,
                table_key_id=new_key_id,
                encryption_keys=renewed.to_list(),
                updated_ms=_recovery.now_ms(),
            )
            store.write_control(METADATA, changed.encode())
            sweep(store, changed, kept)
        return RewrapReport(metadata.table_key_id, new_key_id, count, dry_run)


def _is_under(ring: KeyRing, key_id: str, new_key_id: str, new_kms: Any) -> bool:
    """Whether an interrupted rewrap was here already. Two services may have a key of one name: so ask the new one."""
    if ring.table_key_id != new_key_id or new_kms is None:
        return False
    try:
        ring.unwrap(key_id, new_kms)
    except KeyAccessError:
        return False
    return True
