"""Versions of a dataset: one small file each, created if absent. Its creation is the commit.

    _ags1/v-7.json
    {
      "format-version": 1,
      "uuid": "...",              identity of the dataset
      "version": 7,
      "parent": "9f86d0...",      SHA-256 of v-6.json, or null
      "ancestors": ["60303a..."], SHA-256 of v-5.json and so on, 400 at most; null for one that was damaged
      "run": "4f1c2a9be07d",      the run that made it; after a lost response it shows who created the file
      "operation": "add",
      "created-ms": ...,
      "key": {...},               the master key, and the key of the dataset, wrapped (ags1.dataset.keys)
      "manifest": {"name": ..., "key": ...},  the root, and its key metadata, sealed (ags1.dataset.manifests)
      "file-count": 2, "plaintext-bytes": 10,
      "fenced": ["1b22..."],      runs that cannot commit after this version (ags1.dataset.maintenance)
      "single-writer": false,     whether the store lacks create-if-absent, and one writer was promised
      "tag": "..."                HMAC over all other fields, with a key derived from the dataset's
    }

The last version is the one with the highest number. No file of a version is ever changed, and each has exactly one
form: other white space, or one more field, is refused. Versions are expired in ascending order, so there is no gap
between committed ones. A version that is not the parent of the next one was made by a late writer, or was tampered
with.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import hmac
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from ags1.dataset.keys import DatasetKeys
from ags1.dataset.names import CONTROL, run_of, version_name, version_number
from ags1.errors import Ags1Error, AuthenticationError, FormatError, UnsupportedError
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.storage import Location, create, in_order, list_names, make_parent, open_output, read_whole, status
from ags1.support.typing import Any, Buffer

FORMAT_VERSION = 1
RESTORE_OVER = "restore-over-damage"
"""The operation of a version that goes back knowingly, before one that is damaged."""
MAX_BYTES = 4 << 20
MAX_ANCESTORS = 400
_MAX_FENCED = 100_000
_REQUESTS = 32
# Errors for a directory, a link, a pipe, a socket or a device in the place of a file.
_NO_FILE = (errno.EINVAL, errno.EISDIR)


@dataclass(frozen=True)
class Version:
    """The content of a version's file.

    Attributes
    ----------
    uuid, version, parent, ancestors, run, operation, created_ms, key, file_count, plaintext_bytes, fenced, \
single_writer
        As in the picture above.
    manifest, manifest_key : str or None, bytes or None
        Name of the root manifest, and its sealed key metadata; None if there is no entry.
    mode : int or None
        Permission bits of the directory that was encrypted; those of directories in it are entries.
    digest : str
        SHA-256 of the file: compared with a stored copy, it detects any substitute.
    """

    uuid: str
    version: int
    parent: str | None
    run: str
    operation: str
    created_ms: int
    key: WrappedKey
    ancestors: tuple[str | None, ...] = ()
    manifest: str | None = None
    manifest_key: bytes | None = None
    file_count: int = 0
    plaintext_bytes: int = 0
    mode: int | None = None
    fenced: frozenset[str] = frozenset()
    single_writer: bool = False
    tag: str = ""
    digest: str = ""

    @property
    def key_id(self) -> str:
        """The master key."""
        return self.key.key_id

    @property
    def made_from(self) -> tuple[str | None, ...]:
        """Digests of the versions before this one, the last one first; None for one that was damaged."""
        if self.version == 1:
            return ()
        return (None if self.operation == RESTORE_OVER else self.parent, *self.ancestors)[:MAX_ANCESTORS]

    def is_made_from(self, other: Version) -> bool:
        """Whether another version is one of the last 400 before this one."""
        place = self.version - 1 - other.version
        return 0 <= place < len(self.made_from) and self.made_from[place] == other.digest

    def _fields(self) -> dict[str, Any]:
        manifest = None
        if self.manifest is not None and self.manifest_key is not None:
            manifest = {"name": self.manifest, "key": base64.b64encode(self.manifest_key).decode("ascii")}
        return {
            "format-version": FORMAT_VERSION,
            "uuid": self.uuid,
            "version": self.version,
            "parent": self.parent,
            **({"ancestors": list(self.ancestors)} if self.ancestors else {}),
            "run": self.run,
            "operation": self.operation,
            "created-ms": self.created_ms,
            "key": self.key.to_json(),
            "manifest": manifest,
            "file-count": self.file_count,
            "plaintext-bytes": self.plaintext_bytes,
            **({} if self.mode is None else {"mode": self.mode}),
            "fenced": sorted(self.fenced),
            "single-writer": self.single_writer,
        }

    def _tag(self, keys: DatasetKeys) -> str:
        text = json.dumps(self._fields(), sort_keys=True, separators=(",", ":"))
        return keys.tag(text.encode("ascii"))

    def authenticated(self, keys: DatasetKeys) -> tuple[Version, bytes]:
        """The version with its tag and digest, and the bytes of its file."""
        tagged = replace(self, tag=self._tag(keys))
        data = tagged._encoded()
        return replace(tagged, digest=hashlib.sha256(data).hexdigest()), data

    def _encoded(self) -> bytes:
        return json.dumps({**self._fields(), "tag": self.tag}, indent=2).encode("ascii") + b"\n"

    def authenticate(self, keys: DatasetKeys, name: str) -> None:
        """Check the tag. AuthenticationError: the file was changed, or was made with another key."""
        if not hmac.compare_digest(self._tag(keys), self.tag):
            raise AuthenticationError(f"{name} was changed, or is of another dataset")

    def refuse_other_key(self, key_id: str | None, where: Location) -> None:
        """Raise ValueError if a caller names another master key."""
        if key_id and key_id != self.key_id:
            raise ValueError(
                f"the dataset {where} is under the master key {self.key_id!r}, not {key_id!r}: name that, or rewrap "
                "the dataset"
            )

    @classmethod
    def parse(cls, data: Buffer, number: int, name: str) -> Version:
        """Parse the file of a version. It is not authentic before :meth:`authenticate`."""
        octets = bytes(memoryview(data))
        try:
            fields = json.loads(octets)
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise FormatError(f"{name} is not a JSON object")
        if fields.get("format-version") != FORMAT_VERSION:
            raise UnsupportedError(
                f"{name} has format-version {fields.get('format-version')!r}; only {FORMAT_VERSION} is known"
            )
        kinds: dict[str, type] = {
            "uuid": str, "version": int, "run": str, "operation": str, "created-ms": int, "key": dict,
            "file-count": int, "plaintext-bytes": int, "fenced": list, "single-writer": bool, "tag": str,
        }  # fmt: skip
        for each, kind in kinds.items():
            value = fields.get(each)
            # True is an int for isinstance.
            if type(value) is not kind or (isinstance(value, int) and not 0 <= value < 1 << 63):
                raise FormatError(f"{name} has no valid {each}")
        manifest, parent, mode = fields.get("manifest"), fields.get("parent"), fields.get("mode")
        ancestors = fields.get("ancestors", [])
        right = {"manifest", "parent"} <= fields.keys() and isinstance(ancestors, list)
        texts = [*fields["fenced"], *(each for each in (parent, *(ancestors if right else ())) if each is not None)]
        right = right and all(isinstance(each, str) for each in texts)
        if not right or not (mode is None or (type(mode) is int and 0 <= mode < 1 << 12)):
            raise FormatError(f"{name} has a damaged parent, manifest, mode, or list of ancestors or of fenced runs")
        if fields["version"] != number:
            raise FormatError(f"{name} says that it is version {fields['version']}: it was put in another's place")
        if len(fields["fenced"]) > _MAX_FENCED or len(ancestors) > MAX_ANCESTORS:
            raise FormatError(f"{name} has more fenced runs or ancestors than a version can have")
        made = cls(
            fields["uuid"], number, parent, fields["run"], fields["operation"], fields["created-ms"],
            WrappedKey.from_json(fields["key"], name), tuple(ancestors), None, None,
            fields["file-count"], fields["plaintext-bytes"], mode, frozenset(fields["fenced"]), fields["single-writer"],
            fields["tag"], hashlib.sha256(octets).hexdigest(),
        )  # fmt: skip
        if manifest is not None:
            made = made._with_manifest(manifest, name)
        # The tag is over the fields. Where one content had two forms, it would have two digests, and the chain of
        # parents could be broken without a key.
        if made._encoded() != octets:
            raise FormatError(f"{name} is not in the form in which ags1 writes it: it was changed")
        return made

    def _with_manifest(self, manifest: Any, name: str) -> Version:
        if not isinstance(manifest, dict) or not all(isinstance(manifest.get(each), str) for each in ("name", "key")):
            raise FormatError(f"{name} has a damaged manifest")
        if run_of(manifest["name"]) is None or not manifest["name"].startswith(f"{CONTROL}/"):
            raise FormatError(f"{name} names the manifest {manifest['name']!r}, which is no name of a manifest")
        try:
            sealed = base64.b64decode(manifest["key"], validate=True)
        except binascii.Error:
            raise FormatError(f"{name} has a damaged manifest") from None
        return replace(self, manifest=manifest["name"], manifest_key=sealed)


def numbers(location: Location) -> list[int]:
    """Numbers of the versions of a dataset, ascending; empty if there is no dataset."""
    control = location.as_root().join(CONTROL)
    try:
        names = list_names(control)
    except NotADirectoryError:
        if not location.is_local or not os.path.isdir(location.path):
            return []
        raise FormatError(f"{control} is a link or a file, but has to be a directory: put the true one there") from None
    except FileNotFoundError:
        if control.is_object:
            # The bucket itself is missing.
            raise
        return []
    return sorted(number for name in names if (number := version_number(name)) is not None)


def latest_number(location: Location, after: int = 0) -> int:
    """The number of the last version; 0 if there is none.

    If `after`, a version that existed, still exists, the names that follow it are tried instead of a listing.
    """
    if after:
        found = after
        while _exists(location, found + 1):
            found += 1
        # If it was expired, the next file may be the version of a late writer, which was never committed.
        if _exists(location, after):
            return found
    return max(numbers(location), default=after)


def _exists(location: Location, number: int) -> bool:
    try:
        status(_place(location, number))
    except FileNotFoundError:
        return False
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        # read_version() raises the error.
    return True


def _place(location: Location, number: int) -> Location:
    return location.as_root().join(version_name(number))


def read_version(location: Location, number: int) -> Version:
    """Read one version, without authentication. FileNotFoundError: it does not exist, or was expired."""
    place = _place(location, number)
    try:
        data = read_whole(place, MAX_BYTES)
    except FileNotFoundError:
        raise expired(location, number) from None
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        raise _no_file(place) from None
    return Version.parse(data, number, place.shown)


def read_named(location: Location, number: int) -> Version:
    """Read one version that a caller named; as :func:`read_version`, but an error says what to do."""
    try:
        return read_version(location, number)
    except FileNotFoundError:
        raise
    except (Ags1Error, OSError) as error:
        raise damaged(location, number, error) from None


def _no_file(place: Location) -> FormatError:
    return FormatError(f"{place} is not a regular file, as the file of a version must be: remove it")


def expired(location: Location, number: int) -> FileNotFoundError:
    """The error for a version that does not exist."""
    newest = max(numbers(location), default=0)
    if not newest:
        return no_dataset(location)
    why = f"the newest one is {newest}"
    if number <= newest:
        why = "it may have been expired" if number > 0 else "the first one is 1"
    return FileNotFoundError(errno.ENOENT, f"the dataset has no version {number}: {why}", location.shown)


def no_dataset(location: Location) -> FileNotFoundError:
    """The error for a place where nothing was committed."""
    return FileNotFoundError(
        errno.ENOENT, "there is no ags1 dataset here, or its first run was not completed", location.shown
    )


def refuse_uncommitted(location: Location, found: Version, keys: DatasetKeys) -> None:
    """Refuse a version that was never committed: a late writer may have reused the number of an expired version."""
    try:
        following = read_version(location, found.version + 1)
        following.authenticate(keys, "it")
        is_committed = following.parent == found.digest
    except FileNotFoundError:
        try:
            is_committed = max(numbers(location), default=found.version) == found.version
        except OSError:
            # A store that cannot be listed has no writers.
            is_committed = True
    except (Ags1Error, OSError):
        # Unknown; a caller who opens the next version gets the error.
        is_committed = True
    if not is_committed:
        raise expired(location, found.version)


def damaged(location: Location, number: int, error: Ags1Error | OSError, name: str = "") -> Ags1Error | OSError:
    """The error for a version that cannot be read, with what to do; `name` is the file, by default the version's own.

    It is `error` itself if the version was expired meanwhile.
    """
    if isinstance(error, FileNotFoundError) and not _exists(location, number):
        return error
    place = location.as_root().join(name or version_name(number)).shown
    cause = str((isinstance(error, OSError) and error.strerror) or error)
    cause = cause.removeprefix(f"{place}: ")
    if cause.startswith(f"{place} "):
        cause = f"it{cause[len(place) :]}"
    if isinstance(error, FileNotFoundError):
        error, cause = FormatError(), "it is missing"
    text = f"{place}: version {number} of the dataset {location} cannot be read: {cause}. {_remedy(location, number)}"
    return OSError(error.errno or errno.EIO, text) if isinstance(error, OSError) else type(error)(text)


def _remedy(location: Location, number: int) -> str:
    put_back = "Put the file back from a backup"
    try:
        present = numbers(location)
    except (Ags1Error, OSError):
        return put_back
    where = shlex.quote(location.shown)
    if max(present, default=0) > number:
        return (
            f"{put_back}, or restore a version that `ags1 dataset versions {where}` can read; to remove this one and "
            f"all before: `ags1 dataset expire {where} --give-up {number}`"
        )
    for older in reversed([each for each in present if each < number]):
        with suppress(Ags1Error, OSError):
            read_version(location, older)
            return f"{put_back}, or go back to version {older}: `ags1 dataset restore {where} {older}`"
    return f"{put_back}, or encrypt the source into a new dataset"


@dataclass(frozen=True)
class Kept:
    """A version whose file exists: its content, or the error from reading it.

    It `is_committed` if it is the parent of the next version. `next_is_lost` if it is not, and a later version was made
    from it. Otherwise a late writer made it, and was killed before it could remove it; or the chain of versions was
    tampered with.
    """

    number: int
    version: Version | None
    error: Ags1Error | OSError | None
    is_committed: bool
    next_is_lost: bool = False

    @property
    def fault(self) -> str:
        """What to say of a version that is not committed."""
        name, following = version_name(self.number), self.number + 1
        if self.next_is_lost:
            return (
                f"{name} is a former version, and version {following}, which was made from it, is missing: it was lost "
                "or removed, or somebody put an expired version back. Restore its file from a backup, or give up what "
                f"is before it: `ags1 dataset expire --give-up {self.number}`"
            )
        return (
            f"{name} is not what the next version was made from: a late writer made it, or somebody put an expired "
            "version back, which a former master key may open. expire removes it when it is old, or is told to"
        )


def kept_versions(
    location: Location, present: list[int] | None = None, keys: DatasetKeys | None = None
) -> Iterator[Kept]:
    """Yield all existing versions, or those of `present` (ascending), the last one first.

    With `keys`, a version that is not authentic under these has an error too.
    """
    present = numbers(location) if present is None else present
    following: Version | None = None
    for number, is_last in zip(reversed(present), (True, *(False for _ in present)), strict=False):
        is_committed = is_last or number + 1 in present
        try:
            found = read_version(location, number)
            if keys is not None:
                found.authenticate(keys, version_name(number))
        except FileNotFoundError:
            # Expired in the meantime.
            continue
        except (Ags1Error, OSError) as error:
            yield Kept(number, None, error, is_committed)
            continue
        if following is not None and following.version == number + 1:
            is_committed = following.parent == found.digest
        is_former = following is not None and following.is_made_from(found)
        yield Kept(number, found, None, is_committed, is_former and not is_committed)
        following = found


def made_since(location: Location, head: Version, after: int) -> list[Version]:
    """The versions after number `after`, up to `head`: as authentic as `head`, because each has its parent's digest.

    FileNotFoundError: one of them was expired.
    """
    between, read = range(after + 1, head.version), partial(read_named, location)
    found = [*(map(read, between) if location.is_local else in_order(read, between, at_once=_REQUESTS)), head]
    for before, version in pairwise(found):
        if version.parent != before.digest:
            # A late writer made it after the version of this number was expired.
            raise expired(location, before.version)
    return found


def read_latest(location: Location, after: int = 0) -> Version | None:
    """Read the last version, without authentication; None if there is no dataset. `after` is for `latest_number`."""
    while number := latest_number(location, after):
        try:
            return read_version(location, number)
        except FileNotFoundError:
            # Expired between the listing and the read: there is a newer one.
            if latest_number(location, after) == number:
                raise
        except (Ags1Error, OSError) as error:
            raise damaged(location, number, error) from None
    return None


def readable_since(location: Location, head: Version, first: int, keys: DatasetKeys) -> list[Version]:
    """The versions from number `first` on, up to `head`, without those that are damaged; the first must not be.

    Each is authentic by itself. FileNotFoundError: one of them was expired.
    """
    found = [head]
    for number in range(head.version - 1, first - 1, -1):
        try:
            version = read_version(location, number)
            version.authenticate(keys, version_name(number))
        except FileNotFoundError:
            raise expired(location, first) from None
        except (Ags1Error, OSError) as error:
            if number == first:
                raise damaged(location, number, error) from None
            continue
        if found[-1].version == number + 1 and found[-1].parent != version.digest:
            raise expired(location, first)
        found.append(version)
    return found[::-1]


def publish(location: Location, version: Version, keys: DatasetKeys, *, durable: bool = True) -> Version:
    """Commit a version: create its file. Return it as it was written, with tag and digest.

    FileExistsError: another writer has committed this number. After any other OSError it is unknown whether the
    version was committed.
    """
    made, data = version.authenticated(keys)
    place = _place(location, version.version)
    if len(data) > MAX_BYTES or len(version.fenced) > _MAX_FENCED:
        text = f"version {version.version} would have more than {MAX_BYTES:,} bytes or {_MAX_FENCED:,} fenced runs"
        raise OSError(errno.EFBIG, text, place.shown)
    make_parent(place)
    if version.single_writer:
        _create_alone(place, data)
    else:
        try:
            create(place, data, durable=durable)
        except IsADirectoryError:
            raise _no_file(place) from None
    return made


def _create_alone(place: Location, data: bytes) -> None:
    """Write to a store without create-if-absent: the maker of the dataset has promised that there is one writer."""
    try:
        status(place)
    except FileNotFoundError:
        with open_output(place) as output:
            output.write(data)
            output.commit(durable=True)
        return
    raise FileExistsError(errno.EEXIST, "File exists", place.shown)
