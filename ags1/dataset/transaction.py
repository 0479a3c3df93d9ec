"""A transaction: makes a new version from the last one.

    begin     read the last version; a run with its own keys begins
    write     workers write objects under unique names; readers do not see them
    put       each new or changed file, in the order of paths; remove likewise     --> new manifests, not yet named
    commit    create v-(n+1).json if it is absent                                  --> the dataset has the new version

    v-7.json --names--> root manifest --names--> manifests --name--> objects
    v-8.json --names--> a new root ------------> most of the same, and the new ones

There is no lock. If another writer has committed v-(n+1) first, the changes of both are compared. If no path is in
both, and no file is a directory of the other, this transaction is applied on top of the other version and committed as
the next one. Otherwise ConflictError names the path, and nothing is lost: all objects still exist for the next attempt.
A transaction that ends without a commit, at any moment, leaves objects that no version names; `expire` removes them.

Why no committed data is ever lost: only `expire` deletes objects, only those that no kept version names, and only after
it has committed a version that fences the runs which made them. A transaction reads all versions after its base before
it commits on the last one. It is refused if one of them fences a run whose objects it adds, or if one is missing
because it was expired. Versions are expired in ascending order. So a writer can be so late that the number after its
base is free again, and create that version. It then sees that later versions exist, and removes the file. Even if it is
killed before, the file does not count as committed, because the next version has another parent.
"""

from __future__ import annotations

import errno
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from heapq import merge
from itertools import repeat
from typing import TypeVar

from ags1.core.gcm import random_bytes
from ags1.dataset.damage import authenticated
from ags1.dataset.entries import DatasetEntry
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.manifests import Change, Editor, ManifestNode, Manifests, changes, open_root
from ags1.dataset.names import CONTROL, sort_key, version_name
from ags1.dataset.pins import Access
from ags1.dataset.runs import DatasetRun, Done, RunKeys
from ags1.dataset.versions import (
    Version,
    damaged,
    latest_number,
    made_since,
    no_dataset,
    publish,
    read_latest,
    read_version,
)
from ags1.errors import AuthenticationError, ConflictError, FormatError, UnsupportedError
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.storage import Location, Twins, Unsynced, can_create, creates_once, remove, status
from ags1.support.arguments import spelled
from ags1.support.typing import Any, Self

Made = TypeVar("Made")
_LOG = logging.getLogger("ags1.dataset")


class Transaction:
    """A change of a dataset, begun with :meth:`begin`. Use it from one thread, in a ``with`` statement.

    Attributes
    ----------
    base, root : Version or None, ManifestNode or None
        The version that it began with, and its manifests; None for a new dataset.
    key : WrappedKey
        The key of the dataset, as the new version has it.
    run : DatasetRun
        Objects are written with its keys.
    mode : int or None
        Permission bits of the source, for the new version; None keeps those of the version before.
    unsynced : Unsynced
        Objects that were written here and may not be on the disk yet: note them before the commit.
    """

    def __init__(
        self, access: Access, base: Version | None, key: WrappedKey, keys: DatasetKeys, operation: str,
        *, single_writer: bool = False, durable: bool = True,
    ) -> None:  # fmt: skip
        self.location = location = access.location
        self._access = access
        self.base = base
        self.key = key
        self.keys = keys
        self._operation = operation
        self._durable = durable
        self.mode: int | None = None
        self._uuid = str(uuid.uuid4()) if base is None else base.uuid
        began = 0 if base is None else base.version
        self.run = DatasetRun(location, self._uuid, key, began, access.kms, operation, durable=durable)
        self._single_writer = single_writer if base is None else base.single_writer
        self._promised = single_writer
        self.unsynced = Unsynced(location)
        self.manifests = Manifests(location, self._uuid, self.unsynced, version=began)
        self.root = None if base is None else open_root(self.manifests, base, keys)
        self._editor = Editor(self.manifests, self.root, self.run.id)
        self._mine: ManifestNode | None = None
        # Runs whose objects are put, and whose objects may be put: no version up to `_looked_at` fences one of them.
        self._runs = {self.run.id}
        self._not_fenced = {self.run.id}
        self._looked_at = base
        self._fenced: set[str] = set()
        self._replaces_all = False
        self._is_rewrap = False

    @classmethod
    def begin(
        cls, access: Access, operation: str, *, key_id: str | None = None, single_writer: bool = False,
        durable: bool = True, on: int | Version | None = None,
    ) -> Self:  # fmt: skip
        """Begin a change of an existing dataset, or with `key_id` of a new one; `operation` is recorded in the version.

        `key_id` is the master key of a new dataset; an existing one must be under it. With `single_writer`, which the
        first version records, a store without create-if-absent is accepted: the caller promises that there is no second
        writer. `durable` syncs local manifests and versions to the disk before the commit. The pins of `access` hold
        for the version that it begins on, and for all that it is applied on top of. `on` is the version that it begins
        on, or its number: by default the last one, and 0 if there was none. Later ones are those of other writers.

        FileNotFoundError: there is no dataset, and no `key_id`. ConflictError: the version `on` was expired. Others as
        :func:`ags1.dataset.encrypt`.
        """
        location, pins = access.location, access.pins
        base = on if isinstance(on, Version) else read_latest(location) if on is None else _begun_on(location, on)
        if base is None:
            pins.refuse_nothing(location)
        else:
            if base.key_id == key_id:
                # The caller knows of a rewrap.
                pins = pins.under(key_id)
            keys = authenticated(location, base, access.kms, partial(pins.check, base, location))
        if key_id == "" or (base is None and key_id is None and operation == "encrypt"):
            raise ValueError(f"{location}: a new dataset needs a master key: give {spelled('key_id')}")
        if base is None and key_id is None:
            raise no_dataset(location)
        if not can_create(location) and not (single_writer if base is None else base.single_writer):
            raise UnsupportedError(
                f"{location}: this store cannot create a file only if it is absent, so two writers could not see each "
                f"other: use another store, or promise with {spelled('single_writer', True)} that there is no other "
                "writer "
                "(for a new dataset)"
            )
        if base is None:
            assert key_id is not None
            key = WrappedKey(key_id).another(access.kms)
        else:
            base.refuse_other_key(key_id, location)
            key = base.key
        if base is None:
            keys = DatasetKeys(key, access.kms, location.shown)
        if key_id is not None:
            # Whoever names a master key encrypts under no other one.
            access = replace(access, pins=pins.under(key_id))
        return cls(access, base, key, keys, operation, single_writer=single_writer, durable=durable)

    def prove(self) -> None:
        """Refuse a store that lets two writers create one object, before anything is written; it is asked once.

        UnsupportedError: it does, and nobody promised that there is a single writer.
        """
        if self._single_writer:
            return
        probe = f"{CONTROL}/probe.{self.run.id}-{random_bytes(4).hex()}.ags1"
        if creates_once(self.location.join(probe)):
            return
        if not self._promised:
            raise UnsupportedError(
                f"{self.location}: this store says that it creates a file only if it is absent, and does not: of "
                f"several writers, one would lose its commit; use another store, or promise with "
                f"{spelled('single_writer', True)} "
                "that there is no other writer"
            )
        self._single_writer = True

    # -- files -----------------------------------------------------------------------------------------------------

    def take_over(self, run: str, began: int) -> None:
        """Allow objects of another run, which began on version `began`; 0 if there was no dataset.

        ConflictError: `expire` removes them, or later versions were expired, so that this is unknown.
        """
        now = 0 if self.base is None else self.base.version
        if began > now:
            raise ConflictError(
                f"{self.location}: this began on version {began}, and the last one is {now}: run it again"
            )
        if self.base is not None and began < now:
            self._refuse_fenced({run}, self.base, began)
        self._not_fenced.add(run)

    def entry(self, done: Done, keys: RunKeys | None = None) -> DatasetEntry:
        """The entry of a file that was written; `keys` are those of its run, if that was taken over."""
        run = self.run.keys if keys is None else keys
        if run.reference.run not in self._not_fenced:
            raise AssertionError("take over the run first: expire may have given it up")
        self._runs.add(run.reference.run)
        return DatasetEntry(done.path, run.parts(done, self.keys), self.next_version, done.source, done.mode)

    @property
    def next_version(self) -> int:
        """The version that the commit makes, unless another writer commits first."""
        return 1 if self.base is None else self.base.version + 1

    def put(self, entry: DatasetEntry) -> DatasetEntry | None:
        """Add a new or changed file or directory; return the one that had its path. Call it in the order of paths."""
        return self._reading(self._editor.put, entry)

    def keep_runs(self, runs: Iterable[str]) -> None:
        """Say that objects of other runs are put which the base lacks: the commit is refused if one is fenced."""
        self._runs.update(runs)

    def refuse_twin(self, path: str) -> None:
        """Refuse a new path that is a directory of the dataset, or below a file of it: both cannot be decrypted."""
        below = next(self.manifests.entries(self.root, f"{path}/"), None)
        if below is not None:
            raise IsADirectoryError(errno.EISDIR, f"is a directory of the dataset: remove {below.path} first", path)
        above = path.rpartition("/")[0]
        while above:
            if self.manifests.find(self.root, above) is not None:
                raise NotADirectoryError(
                    errno.ENOTDIR, f"is a file of the dataset, so {path} cannot exist: remove it first", above
                )
            above = above.rpartition("/")[0]

    def remove(self, path: str) -> DatasetEntry | None:
        """Remove a file or a directory; return it. Call it in the order of paths."""
        return self._reading(self._editor.remove, path)

    def _reading(self, function: Callable[..., Made], *arguments: Any) -> Made:
        """Call a function; if a manifest of the base version is missing, expire has removed it: ConflictError."""
        try:
            return function(*arguments)
        except FileNotFoundError as error:
            if self.base is None or latest_number(self.location, self.base.version) == self.base.version:
                raise
            raise ConflictError(
                f"{self.location}: the version that this began on was expired meanwhile: run it again ({error})"
            ) from None

    def rewrap(self, key: WrappedKey) -> None:
        """Put the dataset under another master key, with the commit."""
        self.key, self._is_rewrap = key, True

    def fence(self, runs: Iterable[str]) -> None:
        """Fence these runs, and no others, with the commit: they cannot commit afterwards."""
        self._fenced = set(runs)

    def replace_all(self) -> None:
        """Say that all files of the dataset are replaced.

        Then ConflictError is raised if another writer has changed or replaced files meanwhile, since both writers'
        files would stay; files that it has only added stay, as if they were added afterwards.
        """
        self._replaces_all = True

    # -- the commit ------------------------------------------------------------------------------------------------

    def commit(
        self, *, always: bool = False, on_top: Callable[[list[Version]], object] | None = None
    ) -> Version | None:
        """Sync the objects in `unsynced` to the disk, then make the new version visible.

        Return None if nothing differs and no version was made; with `always`, a version is made in this case too.
        `on_top` is called with the versions of other writers before this is committed on top of them, and may
        :meth:`fence` other runs. Without it, a transaction that fences runs is refused there.

        ConflictError: another writer has changed the same paths; or `expire` has given up this run, or removed a
        version after its base. Nothing was committed. OSError: nothing was committed; or, if the store did not reply,
        this is unknown, and the message says so.
        """
        self._mine = self._reading(self._editor.finish)
        head, root = self.base, self._mine
        is_same = self.base is not None and root is self.root and self.mode in (None, self.base.mode)
        if is_same and not (self._is_rewrap or always):
            self.run.forget()
            return None
        self.prove()
        for _ in range(self._access.attempts):
            version = self._next(head, root)
            if self._durable:
                self.unsynced.sync()
            try:
                made = publish(self.location, version, self.keys, durable=self._durable)
            except FileExistsError:
                # If it is our version, the response to our own creation was lost.
                found = self._published(version)
            else:
                found = None if self._is_stale(made) else made
            if found is not None:
                _LOG.info(
                    "%s: %s made version %d of %d files (run %s)",
                    self.location, self._operation, found.version, found.file_count, self.run.id,
                )  # fmt: skip
                try:
                    self.run.forget()
                except OSError as error:
                    # The version counts; `expire` removes the record.
                    _LOG.warning("%s: version %d is complete, but the record of the run stays: %s",
                                 self.location, found.version, error)  # fmt: skip
                return found
            _LOG.info("%s: another writer has made version %d: %s goes on top of it (run %s)",
                      self.location, version.version, self._operation, self.run.id)  # fmt: skip
            if self._fenced and on_top is None:
                raise ConflictError(
                    f"{self.location}: another writer has committed meanwhile: nothing was committed; run it again"
                )
            head, root = self._on_top(on_top)
        raise ConflictError(
            f"{self.location}: other writers committed during each of {self._access.attempts} attempts: nothing was "
            "committed; run it again, or allow more attempts"
        )

    def _published(self, version: Version) -> Version | None:
        """The version as it was written, if its file has the very bytes that this transaction wrote."""
        made, _ = version.authenticated(self.keys)
        try:
            found = read_version(self.location, version.version)
        except FileNotFoundError:
            if self._mine is self.root:
                # Another writer's, expired since then; or ours, without any file.
                return None
            # Ours, if the reply to its creation was lost: then its objects must not be removed.
            text = f"version {version.version} was expired at once: whether it was this one is unknown"
            raise OSError(errno.EIO, text, self.location.shown) from None
        except FormatError:
            # Another writer's, damaged since then.
            return None
        return made if found.digest == made.digest and not self._is_stale(made) else None

    def _is_stale(self, made: Version) -> bool:
        """Whether our version took the number of an expired one; it is removed in this case.

        Expire never removes the last version, and removes the others in ascending order.
        """
        if latest_number(self.location) <= made.version:
            return False
        place = self.location.join(version_name(made.version))
        try:
            if read_version(self.location, made.version + 1).parent == made.digest:
                return False
        except FileNotFoundError:
            try:
                status(place)
            except FileNotFoundError:
                text = f"version {made.version} was expired at once: whether it was the last one is unknown"
                raise OSError(errno.EIO, text, self.location.shown) from None
        remove([place])
        return True

    def _refuse_fenced(self, runs: set[str], head: Version, before: int) -> list[Version]:
        """Refuse objects of fenced runs that began on version `before`; return the versions after it, up to `head`."""
        try:
            versions = made_since(self.location, head, before)
        except FileNotFoundError as error:
            raise ConflictError(
                f"{self.location}: versions after {before}, on which this began, were expired meanwhile: nothing was "
                f"committed; run it again ({error})"
            ) from None
        except FormatError as error:
            raise ConflictError(
                f"{self.location}: a version after {before}, on which this began, is damaged, so whether expire has "
                f"given up this run is unknown: nothing was committed; run it again ({error})"
            ) from None
        if any(not runs.isdisjoint(version.fenced) for version in versions):
            raise ConflictError(
                f"{self.location}: expire has given up this run, because it took longer than the grace period, or adds "
                "objects of a version that was expired: nothing was committed; run it again"
            )
        return versions

    def _next(self, head: Version | None, root: ManifestNode | None) -> Version:
        return Version(
            uuid=self._uuid,
            version=1 if head is None else head.version + 1,
            # A damaged version that cannot be read has no digest.
            parent=None if head is None else head.digest or None,
            ancestors=() if head is None else head.made_from,
            run=self.run.id,
            operation=self._operation,
            created_ms=time.time_ns() // 1_000_000,
            # Another writer may have rewrapped it meanwhile.
            key=self.key if head is None or self._is_rewrap else head.key,
            manifest=None if root is None else root.name,
            manifest_key=None if root is None else self.keys.seal(root.name, root.key_metadata),
            file_count=0 if root is None else root.file_count,
            plaintext_bytes=0 if root is None else root.plaintext_bytes,
            mode=self.mode if self.mode is not None or head is None else head.mode,
            fenced=frozenset(self._fenced),
            single_writer=self._single_writer,
        )

    def _on_top(self, told: Callable[[list[Version]], object] | None) -> tuple[Version, ManifestNode | None]:
        """The last version, and its files with the changes of this transaction."""
        head = read_latest(self.location)
        if head is None:
            raise FileNotFoundError(errno.ENOENT, "the dataset was removed meanwhile", self.location.shown)
        self._access.pins.check(head, self.location)
        if head.uuid != self._uuid and self.base is not None:
            raise AuthenticationError(
                f"{self.location} is another dataset than the one that this began on: nothing was committed"
            )
        if head.uuid != self._uuid:
            raise ConflictError(
                f"{self.location}: another writer has made this dataset meanwhile: nothing was committed; run it again"
            )
        try:
            head.authenticate(self.keys, "it")
        except AuthenticationError as error:
            raise damaged(self.location, head.version, error) from None
        before, digest = (0, None) if self._looked_at is None else (self._looked_at.version, self._looked_at.digest)
        since = self._refuse_fenced(self._runs, head, before) if head.version > before else []
        if not since or since[0].parent != digest:
            raise AuthenticationError(
                f"{self.location}: an older copy was put back since this began: nothing was committed; run it again"
            )
        self._looked_at = head
        if self._is_rewrap:
            raise ConflictError(
                f"{self.location}: another writer has changed the dataset meanwhile: nothing was committed; run it "
                "again"
            )
        if told is not None:
            told(since)
        self.manifests.version = head.version
        return head, self._reading(self._merged, head, since)

    def _merged(self, head: Version, since: list[Version]) -> ManifestNode | None:
        theirs = open_root(self.manifests, head, self.keys)
        self._refuse_replaced(since, changes(self.manifests, self.root, theirs))
        editor = Editor(self.manifests, theirs, self.run.id)
        for before, after in changes(self.manifests, self.root, self._mine):
            if after is None:
                assert before is not None
                found, path = editor.remove(before.path), before.path
            else:
                found, path = editor.put(replace(after, version=head.version + 1)), after.path
            # A file that another writer has removed need not be removed again.
            if not _is_same(found, before) and not _is_same(found, after):
                raise ConflictError(
                    f"{self.location}: another writer has changed {path} meanwhile: nothing was committed; run it again"
                )
        self._refuse_twins(
            _new(changes(self.manifests, self.root, self._mine)), _new(changes(self.manifests, self.root, theirs))
        )
        return editor.finish()

    def _refuse_replaced(self, since: list[Version], theirs: Iterable[Change]) -> None:
        """Refuse changes of others where this replaces all: in neither order do the files of two such writers stay."""
        both = any(each.operation == self._operation for each in since)
        for before, after in theirs if self._replaces_all else ():
            if both or before is not None:
                path = (before or after).path  # type: ignore[union-attr]
                raise ConflictError(
                    f"{self.location}: another writer has replaced or changed {path} meanwhile, which this replaces "
                    "too: nothing was committed; run it again"
                )

    def _refuse_twins(self, mine: Iterator[str], theirs: Iterator[str]) -> None:
        """Refuse a file of one writer below a file of the other: both cannot be decrypted."""
        twins = Twins()
        for path, is_mine in merge(
            zip(mine, repeat(True)), zip(theirs, repeat(False)), key=lambda each: sort_key(each[0])
        ):
            above = twins.above_on_other_side(path, is_mine)
            if above is not None:
                own, other = (path, above) if is_mine else (above, path)
                raise ConflictError(
                    f"{self.location}: another writer has made {other} meanwhile, so {own} cannot exist: one would be "
                    "a file where the other needs a directory; nothing was committed; run it again"
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # Objects that were written and not committed stay for a later run, or for expire.
        pass


def _begun_on(location: Location, number: int) -> Version | None:
    try:
        return read_version(location, number) if number else None
    except FileNotFoundError as error:
        raise ConflictError(f"{location}: the version that this began on is gone: run it again ({error})") from None


def _new(found: Iterator[Change]) -> Iterator[str]:
    """Paths that had no entry before."""
    return (after.path for before, after in found if before is None and after is not None)


def _is_same(one: DatasetEntry | None, other: DatasetEntry | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.path == other.path and [part.name for part in one.parts] == [part.name for part in other.parts]
