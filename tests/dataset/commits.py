"""What the tests of the commit share: files put into a dataset by hand, and what is in it."""

from __future__ import annotations

from pathlib import Path

from ags1 import kms
from ags1.codec import decrypt, encrypt
from ags1.dataset.entries import DatasetEntry
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.manifests import Manifests, open_root
from ags1.dataset.names import new_object_name, sort_key
from ags1.dataset.pins import Access
from ags1.dataset.runs import Done
from ags1.dataset.transaction import Transaction
from ags1.dataset.versions import Version
from ags1.storage import Location, make_parent, open_output

KEY_ID = "lake"


def client() -> kms.MemoryKms:
    """A client of a new process: the same master keys, nothing cached."""
    return kms.MemoryKms({"lake": bytes(32), "a": bytes(range(32)), "new": bytes(range(1, 33))})


def write_object(transaction: Transaction, path: str, data: bytes) -> Done:
    """What a worker does: an object under a name of its own."""
    transaction.run.begin()
    name = new_object_name(path, transaction.run.id)
    metadata = transaction.run.keys.object_key(name)
    place = transaction.location.join(name)
    make_parent(place)
    with open_output(place) as output:
        output.write(encrypt(data, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b""))
        output.commit()
    return Done(path, ((name, len(data)),), run=transaction.run.id)


def put_all(transaction: Transaction, files: dict[str, bytes]) -> None:
    """Write files, and put them into a transaction."""
    for path in sorted(files, key=sort_key):
        transaction.put(transaction.entry(write_object(transaction, path, files[path])))


def commit(
    root: Path | Location,
    files: dict[str, bytes],
    removed: tuple[str, ...] = (),
    service: kms.MemoryKms | kms.LocalKms | None = None,
) -> Version | None:
    """One version more."""
    access = Access.of(Location(root), service or client())
    with Transaction.begin(access, "test", key_id=KEY_ID, durable=False) as transaction:
        for path in sorted({*files, *removed}, key=sort_key):
            if path in removed:
                transaction.remove(path)
            else:
                transaction.put(transaction.entry(write_object(transaction, path, files[path])))
        return transaction.commit()


def entries_of(root: Path, version: Version) -> tuple[list[DatasetEntry], DatasetKeys]:
    """The files of a version, and what opens them."""
    keys = DatasetKeys(version.key, client(), str(root))
    version.authenticate(keys, str(root))
    manifests = Manifests(Location(root), version.uuid)
    return list(manifests.files(open_root(manifests, version, keys))), keys


def contents(root: Path, version: Version) -> dict[str, bytes]:
    """What a version holds, every block authenticated."""
    entries, keys = entries_of(root, version)
    found = {}
    for entry in entries:
        pieces = []
        for part in entry.parts:
            metadata = keys.open_part(part)
            data = (root / part.name).read_bytes()
            prefix = metadata.aad_prefix or b""
            pieces.append(decrypt(data, metadata.encryption_key, aad_prefix=prefix, length=metadata.file_length))
        found[entry.path] = b"".join(pieces)
    return found
