"""What a writer finds when it begins, and how it sets that right. The caller holds the lock.

A kill leaves one of these, each of which reads as a whole dataset:

    before metadata.json was replaced   the old version; a journal, staged files, perhaps files that nobody names yet
    after it                            the new version; staged files that readers look for where they are, rubbish
"""

from __future__ import annotations

import os
import re
import shutil
import time

import ags1.dataset._journal as _journal
import ags1.dataset._tree as _tree
from ags1.dataset._control import (
    CONTROL,
    MANIFEST_NAME,
    METADATA,
    STAGED_NAME,
    Metadata,
    write_whole,
)
from ags1.dataset._manifest import Entry
from ags1.dataset._runs import RECORD_NAME
from ags1.errors import Ags1Error, FormatError
from ags1.storage import TEMPORARY_SUFFIX

__all__ = ["LEFT", "commit", "finish_moves", "is_in_place", "live_journal", "sweep"]

LEFT = re.compile(r"removed-[0-9]+(-[0-9a-f]{16})?\.jsonl|parts-[0-9a-f]{16}|placed-[0-9a-f]{16}-[0-9a-f]{16}\.jsonl")
"""What updates by many processes may leave besides: lists of files that they dropped or made, and parts of big ones."""
_CHECKED_WHOLE = 4 << 20


def commit(root: str, metadata: Metadata) -> None:
    """Replace ``metadata.json``: from here on the dataset is what `metadata` says."""
    write_whole(os.path.join(root, CONTROL, METADATA), metadata.encode())


def finish_moves(root: str, metadata: Metadata) -> Metadata:
    """Move what waits in the staging directory to where it belongs, and remove what the commit dropped."""
    from ags1.dataset._store import LocalStore
    from ags1.dataset._update import remove_dropped

    remove_dropped(LocalStore(root), metadata)
    if metadata.staged is None:
        return metadata
    waiting = os.path.join(root, CONTROL, metadata.staged)
    if os.path.islink(waiting):
        raise FormatError(f"{waiting} is a link: what is behind it is not of this dataset; remove it")
    _tree.move(waiting, root)
    settled = metadata.settled()
    commit(root, settled)
    shutil.rmtree(waiting, ignore_errors=True)
    return settled


def live_journal(root: str, metadata: Metadata | None) -> str | None:
    """The journal of a run that did not come to its commit; one whose run did is removed.

    Raises
    ------
    FormatError
        A journal that belongs to another dataset or a later version, or more than one.
    """
    live = []
    for identity, endings in sorted(_journal.journals(root).items()):
        if "json" not in endings:
            _journal.remove(root, identity)
            continue
        fields = _journal.read_fields(root, identity)
        name = os.path.join(root, CONTROL, f"journal-{identity}.json")
        if metadata is not None and fields["uuid"] != metadata.uuid:
            raise FormatError(f"{name} is the journal of another dataset: it was put here; move it away")
        version = 0 if metadata is None else metadata.version
        if fields["base-version"] < version:
            _journal.remove(root, identity)
        elif fields["base-version"] > version:
            raise FormatError(
                f"{name} is of version {fields['base-version']}, but metadata.json says {version}: "
                "an older metadata.json was put back, or it is damaged"
            )
        else:
            live.append(identity)
    if len(live) > 1:
        raise FormatError(
            f"{os.path.join(root, CONTROL)} has the journals of {len(live)} unfinished runs ({', '.join(live)}), "
            "which no run leaves: move those away that were put here"
        )
    return live[0] if live else None


def sweep(root: str, metadata: Metadata | None, journal: str | None, keep: frozenset[str] = frozenset()) -> None:
    """Remove what interrupted runs left in the control directory and nobody needs, those of Spark too."""
    control = os.path.join(root, CONTROL)
    keep |= {f"staged-{journal}"} if journal is not None else set()
    if metadata is not None:
        keep |= {metadata.manifest, metadata.staged or ""}
    for name in os.listdir(control):
        path = os.path.join(control, name)
        if name in keep:
            continue
        if STAGED_NAME.fullmatch(name) or (LEFT.fullmatch(name) and os.path.isdir(path)):
            shutil.rmtree(path, ignore_errors=True)
        elif MANIFEST_NAME.fullmatch(name) or RECORD_NAME.fullmatch(name) or LEFT.fullmatch(name) or is_temporary(name):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass


def is_temporary(name: str) -> bool:
    """Whether a file is a temporary one of ours, which a kill left."""
    return re.fullmatch(rf"\..*{re.escape(TEMPORARY_SUFFIX)}", name) is not None


def is_in_place(path: str, entry: Entry) -> bool:
    """Whether a file is the one of an entry: its length, its first block and its last are right."""
    from ags1._open import open as open_stream

    try:
        if os.lstat(path).st_size != entry.file_length:
            return False
        with open_stream(path, key_metadata=entry.key_metadata, threads=1) as reader:
            if reader.size != entry.plaintext_length:
                return False
            if entry.file_length <= _CHECKED_WHOLE:
                return len(reader.read()) == entry.plaintext_length
            reader.pread(0, 1)
            reader.pread(entry.plaintext_length - 1, 1)
    except (Ags1Error, OSError):
        return False
    return True


def now_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
