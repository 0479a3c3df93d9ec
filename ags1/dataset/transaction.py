"""A transaction: what makes a new version out of the last one.

    begin     read the last version; a run with keys of its own begins
    write     workers write objects under names that nobody else has; nobody sees them
    put       each new or changed file, in the order of paths; remove likewise     --> new manifests, that nobody names
    commit    create v-(n+1).json if it is absent                                  --> the dataset has the new version

    v-7.json --names--> root manifest --names--> manifests --name--> objects
    v-8.json --names--> a new root ------------> most of the same, and the new ones

There is no lock. If somebody else has committed v-(n+1) first, what they changed is compared with what this changed:
where no path is in both, and no file is a directory of the other, this is applied on top of theirs and committed as the
version after; otherwise ConflictError names the path, and nothing is lost: all objects are still there for the next
attempt. A transaction that is given up, at any moment, leaves objects that no version names; `expire` removes them.

Why nothing that is committed is ever lost: an object is deleted only by `expire`, only if no version that is kept names
it, and only after a version was committed that fences the run which made it. A transaction reads all versions behind
its base before it commits on the last one; it is refused if one of them fences a run whose objects it brings, or if one
is missing, because it was expired. Versions are expired in ascending order: a writer that comes so late that the number
behind its own base is free again, and takes it, sees that there are later versions, and withdraws what it made. Nobody
takes that for committed, also if the writer is killed before, because the version behind it was not made on it.
"""

from __future__ import annotations

import errno
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from heapq import merge
from itertools import repeat

from ags1._typing import Any, Self
from ags1.dataset.classes import ClassKeys, KeyClass, class_of, merge_classes
from ags1.dataset.entries import Entry, Part
from ags1.dataset.manifests import Change, Editor, Manifests, Node, changes
from ags1.dataset.names import Twins, check_path, run_of, sort_key, version_name
from ags1.dataset.runs import Done, Run, RunKeys
from ags1.dataset.versions import Version, latest_number, made_since, publish, read_latest, read_version
from ags1.errors import AuthenticationError, ConflictError, UnsupportedError
from ags1.keys import KeyMetadata
from ags1.storage import Location, Unsynced, can_create, remove, status

__all__ = ["Transaction", "open_root"]

_ATTEMPTS = 100


class Transaction:
    """A change of a dataset, begun with :meth:`begin`. Use it from one thread, in a ``with`` statement.

    Attributes
    ----------
    base, root : Version or None, Node or None
        The version that it began with, and its manifests; None for a new dataset.
    classes : tuple of KeyClass
        The classes of keys of the new version.
    run : Run
        Under whose keys objects are written.
    unsynced : Unsynced
        Objects that were written here, and may not be on the disk yet: note them before the commit.
    """

    def __init__(
        self, location: Location, kms: Any, base: Version | None, classes: tuple[KeyClass, ...], operation: str,
        *, single_writer: bool = False, durable: bool = True,
    ) -> None:  # fmt: skip
        self.location = location
        self.base = base
        self.classes = classes
        self.keys = ClassKeys(classes, kms, location.text)
        self.run = Run(location, classes, 0 if base is None else base.version, kms, operation, durable=durable)
        self._kms = kms
        self._operation = operation
        self._durable = durable
        self._uuid = str(uuid.uuid4()) if base is None else base.uuid
        self._single_writer = single_writer if base is None else base.single_writer
        self.unsynced = Unsynced(location)
        self.manifests = Manifests(location, self._uuid, self.unsynced)
        self.root = None if base is None else open_root(self.manifests, base, kms)
        self._editor = Editor(self.manifests, self.root, self.run.id)
        self._mine: Node | None = None
        # Whose objects are put, and whose may be: up to `_looked_at`, no version fences one of these.
        self._runs = {self.run.id}
        self._not_fenced = {self.run.id}
        self._looked_at = base
        self._fenced: set[str] = set()
        self._reclassified = base is None or base.classes != classes
        self._is_rewrap = False
        self._carries = False

    @classmethod
    def begin(
        cls, location: Location, kms: Any, operation: str, *, keys: Mapping[str, str] | str | None = None,
        single_writer: bool = False, durable: bool = True, dry_run: bool = False,
    ) -> Self:  # fmt: skip
        """Begin a change of a dataset that is there, or with `keys` of a new one; the version will call it `operation`.

        `keys` are patterns of paths, and the master keys of their files; ``**`` is all others. They replace those of a
        dataset that is there. A master key alone is that of all files of a new dataset; one that is there has to be
        under it, and keeps its patterns. With `single_writer`, which the first version records, a store without
        create-if-absent is accepted: the caller promises that nobody else writes. `durable` syncs local manifests and
        versions to the disk before the commit. A `dry_run` makes no keys for new classes: nothing can be written or
        committed.

        FileNotFoundError: there is no dataset, and no `keys`. Others as :func:`ags1.dataset.encrypt`.
        """
        base = read_latest(location)
        if base is None and keys is None:
            text = "there is no ags1 dataset here, or its first run was not completed"
            raise FileNotFoundError(errno.ENOENT, text, location.text)
        if not can_create(location) and not (single_writer if base is None else base.single_writer):
            raise UnsupportedError(
                f"{location}: this store cannot create a file only if it is absent, so two writers could not see each "
                "other: use another store, or promise with single_writer=True that nobody else writes (for a new "
                "dataset)"
            )
        if base is not None:
            base.authenticate(ClassKeys(base.classes, kms, location.text), location.text)
        classes = merge_classes(base.classes if base is not None else (), keys, None if dry_run else kms, location.text)
        return cls(location, kms, base, classes, operation, single_writer=single_writer, durable=durable)

    # -- files -----------------------------------------------------------------------------------------------------

    def class_of(self, path: str) -> KeyClass:
        """The class of keys of a new file. ValueError: no pattern matches."""
        return class_of(self.classes, path)

    def take_over(self, run: str, began: int) -> None:
        """Allow objects of another run, which began on version `began`; 0 if there was no dataset.

        ConflictError: `expire` removes them; or versions behind that one were expired, so that nobody knows.
        """
        now = 0 if self.base is None else self.base.version
        if began > now:
            raise ConflictError(
                f"{self.location}: this began on version {began}, and the last one is {now}: run it again"
            )
        if self.base is not None and began < now:
            self._refuse_fenced({run}, self.base, began)
        self._not_fenced.add(run)

    def entry(self, done: Done, keys: RunKeys | None = None) -> Entry:
        """The entry of a file that was written; `keys` are those of its run, if that was taken over."""
        run = self.run.keys if keys is None else keys
        if run.reference.run not in self._not_fenced:
            raise AssertionError("take over the run first: expire may have given it up")
        self._runs.add(run.reference.run)
        mine = done.key_class if keys is None else self.class_of(done.path).id
        parts = tuple(
            Part(name, length, self.keys.seal(mine, name, run.encoded_key(done.key_class, name, length)))
            for name, length in done.parts
        )
        return Entry(done.path, parts, mine, self.next_version, done.source, done.mode)

    @property
    def next_version(self) -> int:
        """The version that this becomes, if nobody else commits before."""
        return 1 if self.base is None else self.base.version + 1

    def put(self, entry: Entry) -> Entry | None:
        """Take a new or changed file; return the one that had its path. In the order of paths."""
        check_path(entry.path)
        self._carries = self._carries or any(run_of(part.name) not in self._runs for part in entry.parts)
        with self._reading():
            return self._editor.put(entry)

    def refuse_twin(self, path: str, changed: Mapping[str, Entry | None] = {}) -> None:
        """Refuse a new path that is a directory of the dataset, or below a file of it: nobody could decrypt both.

        `changed` are other paths that change, with what they will be: None for those that go.
        """
        below = next((each for each in self.manifests.files(self.root, f"{path}/") if each.path not in changed), None)
        if below is not None:
            raise IsADirectoryError(errno.EISDIR, f"is a directory of the dataset: remove {below.path} first", path)
        above = path.rpartition("/")[0]
        while above:
            if changed.get(above) or (above not in changed and self.manifests.find(self.root, above) is not None):
                raise NotADirectoryError(
                    errno.ENOTDIR, f"is a file of the dataset, so {path} cannot be: remove it first", above
                )
            above = above.rpartition("/")[0]

    def remove(self, path: str) -> Entry | None:
        """Leave a file out; return it. In the order of paths."""
        with self._reading():
            return self._editor.remove(path)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Say what it means that a manifest of the base version is gone: expire has removed it meanwhile."""
        try:
            yield
        except FileNotFoundError as error:
            if self.base is None or latest_number(self.location, self.base.version) == self.base.version:
                raise
            raise ConflictError(
                f"{self.location}: the version that this began on was expired meanwhile: run it again ({error})"
            ) from None

    def rewrap(self, class_id: str, new_key_id: str, new_kms: Any) -> None:
        """Put the keys of a class under another master key, with the commit. KeyAccessError: a service refused."""
        old = next(each for each in self.classes if each.id == class_id)
        renewed = old.rewrapped(self._kms, new_key_id, new_kms)
        self.classes = tuple(renewed if each.id == class_id else each for each in self.classes)
        self._reclassified = self._is_rewrap = True

    def fence(self, runs: Iterable[str]) -> None:
        """Refuse, with the commit, whatever these runs would still commit."""
        self._fenced |= set(runs)

    # -- the commit ------------------------------------------------------------------------------------------------

    def commit(self, *, always: bool = False) -> Version | None:
        """Make the new version the dataset's, when all objects that are noted in `unsynced` are on the disk.

        Return None if nothing differs and nothing was made; with `always`, a version is made all the same.

        ConflictError: somebody else has changed the same paths; or `expire` has given up this run, or removed a version
        behind its base. Nothing was committed. OSError: nothing was committed, or, if the store did not reply, that is
        unknown: the message says so.
        """
        with self._reading():
            self._mine = self._editor.finish()
        head, root = self.base, self._mine
        if root is self.root and not self._reclassified and not always:
            self.run.forget()
            return None
        for _ in range(_ATTEMPTS):
            version = self._next(head, root)
            if self._durable:
                self.unsynced.sync()
            try:
                made = publish(self.location, version, self.keys, durable=self._durable)
            except FileExistsError:
                # If it is ours, the response to our own creation was lost.
                found = self._published(version.version)
            else:
                found = None if self._is_stale(made) else made
            if found is not None:
                self.run.forget()
                return found
            if self._fenced:
                raise ConflictError(f"{self.location}: somebody else has committed meanwhile: run this again")
            head, root = self._on_top()
        raise ConflictError(f"{self.location}: others have committed {_ATTEMPTS} times meanwhile: run this again")

    def _published(self, number: int) -> Version | None:
        """The version of a number, if this transaction has made it."""
        try:
            found = read_version(self.location, number)
        except FileNotFoundError:
            # Somebody else's, and expired since.
            return None
        return found if found.run == self.run.id and not self._is_stale(found) else None

    def _is_stale(self, made: Version) -> bool:
        """Whether our version stands where another one was expired; it is taken away then.

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
                raise OSError(errno.EIO, text, self.location.text) from None
        remove([place])
        return True

    def _refuse_fenced(self, runs: set[str], head: Version, before: int) -> Version:
        """Refuse what runs have written that began on version `before`; return the version behind that."""
        try:
            versions = made_since(self.location, head, before)
        except FileNotFoundError as error:
            raise ConflictError(
                f"{self.location}: versions behind {before}, on which this began, were expired meanwhile: nothing was "
                f"committed; run it again ({error})"
            ) from None
        if any(not runs.isdisjoint(version.fenced) for version in versions):
            raise ConflictError(
                f"{self.location}: expire has given up this run, because it took longer than the grace period: nothing "
                "was committed; run it again"
            )
        return versions[0]

    def _next(self, head: Version | None, root: Node | None) -> Version:
        classes = self._classes_on(head)
        key = None
        if root is not None:
            default = next(each for each in classes if each.pattern == "**")
            metadata = KeyMetadata.decode(root.key_metadata)
            wrapped_keys = {each["key-id"] for each in default.encryption_keys}
            if head is not None and root.name == head.manifest and head.manifest_key in wrapped_keys:
                key = head.manifest_key
            else:
                wrapped, key = default.wrapping(metadata, self._kms)
                classes = tuple(wrapped if each.id == default.id else each for each in classes)
            classes = tuple(each.only(*([key] if each.id == default.id and key else [])) for each in classes)
        return Version(
            uuid=self._uuid,
            version=1 if head is None else head.version + 1,
            parent=None if head is None else head.digest,
            run=self.run.id,
            operation=self._operation,
            created_ms=time.time_ns() // 1_000_000,
            classes=classes,
            manifest=None if root is None else root.name,
            manifest_key=key,
            file_count=0 if root is None else root.file_count,
            plaintext_bytes=0 if root is None else root.plaintext_bytes,
            fenced=frozenset(self._fenced),
            single_writer=self._single_writer,
        )

    def _classes_on(self, head: Version | None) -> tuple[KeyClass, ...]:
        """The classes of the new version, where `head` may have been rewrapped or got other classes meanwhile."""
        if head is None or self.base is None or head.version == self.base.version:
            return self.classes
        if not self._reclassified:
            theirs = {each.id for each in head.classes}
            return (*head.classes, *(each for each in self.classes if each.id not in theirs))
        before, now = ({each.id: each.only() for each in version.classes} for version in (self.base, head))
        if self._is_rewrap or before != now:
            raise ConflictError(
                f"{self.location}: somebody else has changed the dataset or its keys meanwhile: run this again"
            )
        return self.classes

    def _on_top(self) -> tuple[Version, Node | None]:
        """The last version, and its files with what this transaction has changed."""
        head = read_latest(self.location)
        if head is None:
            raise FileNotFoundError(errno.ENOENT, "the dataset was removed meanwhile", self.location.text)
        theirs = ClassKeys(head.classes, self._kms, self.location.text)
        head.authenticate(theirs, self.location.text)
        if head.uuid != self._uuid and self.base is not None:
            raise AuthenticationError(
                f"{self.location} is another dataset than the one that this began on: nothing was committed"
            )
        before, digest = (0, None) if self._looked_at is None else (self._looked_at.version, self._looked_at.digest)
        if head.version <= before or self._refuse_fenced(self._runs, head, before).parent != digest:
            raise AuthenticationError(
                f"{self.location}: an older copy was put back since this began: nothing was committed; run it again"
            )
        self._looked_at = head
        if head.uuid != self._uuid:
            return head, self._joined(head, theirs)
        with self._reading():
            return head, self._merged(head, open_root(self.manifests, head, self._kms))

    def _merged(self, head: Version, theirs: Node | None) -> Node | None:
        editor = Editor(self.manifests, theirs, self.run.id)
        for before, after in changes(self.manifests, self.root, self._mine):
            if after is None:
                assert before is not None
                found, path = editor.remove(before.path), before.path
            else:
                found, path = editor.put(replace(after, version=head.version + 1)), after.path
            # What somebody else has removed need not be removed, but its objects cannot be given another path.
            done_already = _is_same(found, after) and not (after is None and self._carries)
            if not _is_same(found, before) and not done_already:
                raise ConflictError(
                    f"{self.location}: somebody else has changed {path} meanwhile: nothing was committed; run it again"
                )
        self._refuse_twins(
            _new(changes(self.manifests, self.root, self._mine)), _new(changes(self.manifests, self.root, theirs))
        )
        return editor.finish()

    def _refuse_twins(self, mine: Iterator[str], theirs: Iterator[str]) -> None:
        """Refuse a file of one writer below a file of the other: nobody could decrypt both."""
        twins = Twins()
        for path, is_mine in merge(
            zip(mine, repeat(True)), zip(theirs, repeat(False)), key=lambda each: sort_key(each[0])
        ):
            above = twins.above(path, is_mine)
            if above is not None:
                own, other = (path, above) if is_mine else (above, path)
                raise ConflictError(
                    f"{self.location}: somebody else has made {other} meanwhile, so {own} cannot be: one would be a "
                    "file where the other needs a directory; nothing was committed; run it again"
                )

    def _joined(self, head: Version, theirs: ClassKeys) -> Node | None:
        """Two writers were both about to make the dataset: what this one has made is added to the other's."""
        patterns = {(each.pattern, each.key_id) for each in head.classes}
        if patterns != {(each.pattern, each.key_id) for each in self.classes}:
            raise ConflictError(
                f"{self.location}: somebody else has made this dataset meanwhile, with other master keys"
            )
        manifests = Manifests(self.location, head.uuid, self.unsynced)
        begun = open_root(manifests, head, self._kms)
        editor = Editor(manifests, begun, self.run.id)
        for entry in self.manifests.files(self._mine):
            to = class_of(head.classes, entry.path).id
            parts = tuple(
                replace(part, sealed_key=theirs.seal(to, part.name, self.keys.open(entry.key_class, part).encode()))
                for part in entry.parts
            )
            if editor.put(replace(entry, parts=parts, key_class=to, version=head.version + 1)) is not None:
                raise ConflictError(
                    f"{self.location}: somebody else has made this dataset, and {entry.path} in it: run this again"
                )
        self._refuse_twins(
            (entry.path for entry in self.manifests.files(self._mine)), (each.path for each in manifests.files(begun))
        )
        root = editor.finish()
        # From here on it is a change of their dataset.
        self.base, self.root, self.manifests, self.keys = head, begun, manifests, theirs
        self.classes, self._uuid, self._reclassified = head.classes, head.uuid, False
        self._single_writer = head.single_writer
        self._mine = root
        return root

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        # What was written and is not committed stays for a later run, or for expire.
        pass


def open_root(manifests: Manifests, version: Version, kms: Any) -> Node | None:
    """The root of a version's manifests; None if it has no file."""
    if version.manifest is None or version.manifest_key is None:
        return None
    metadata = version.default_class.unwrap(version.manifest_key, kms)
    return manifests.root(version.manifest, metadata, version.file_count, version.plaintext_bytes)


def _new(found: Iterator[Change]) -> Iterator[str]:
    """Paths that had no file before."""
    return (after.path for before, after in found if before is None and after is not None)


def _is_same(one: Entry | None, other: Entry | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.path == other.path and [part.name for part in one.parts] == [part.name for part in other.parts]
