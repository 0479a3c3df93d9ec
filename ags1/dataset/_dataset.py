"""The Dataset: what :func:`ags1.dataset.open` and :func:`ags1.dataset.encrypt` return."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal, overload

import ags1.dataset.maintenance as _maintenance
from ags1.dataset._arguments import Path, check_run, kms_client, relative
from ags1.dataset._files import Files
from ags1.dataset.damage import authenticated
from ags1.dataset.decrypting import decrypt_files
from ags1.dataset.entries import DatasetEntry
from ags1.dataset.joined import open_parts
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.manifests import DatasetView, changes
from ags1.dataset.pins import Access, Pins
from ags1.dataset.reports import DatasetRewrapReport, ExpireReport, RunReport
from ags1.dataset.selection import Filter, Patterns
from ags1.dataset.sources import refuse_missing
from ags1.dataset.verification import compare, verify
from ags1.dataset.versions import Version, damaged, expired, kept_versions, latest_number, made_since, read_latest
from ags1.dataset.writing import Options, write_files
from ags1.errors import AuthenticationError, FormatError
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.keys import KeyMetadata
from ags1.storage import Location
from ags1.streams.files import Progress
from ags1.streams.stream import Reader
from ags1.streams.text import check_text_options
from ags1.support.arguments import at_least_one
from ags1.support.closing import Closing
from ags1.support.forks import ForkSafeLock
from ags1.support.reports import VerifyReport
from ags1.support.typing import Any, NoReturn

_DAY = 24 * 3600.0


class Dataset(Closing):
    """A tree of encrypted files under one master key; :func:`ags1.dataset.open` returns it.

    Attributes
    ----------
    files : Files
        The files of this version.
    report : RunReport or None
        The report of the run that made this dataset or changed it last, through this object.

    Notes
    -----
    Safe to share between threads. It shows one version; :meth:`refresh` shows the last one. It holds keys, so it
    cannot be pickled: open the dataset again in the other process.
    """

    def __init__(
        self,
        access: Access,
        version: Version,
        keys: DatasetKeys,
        threads: int | None,
        close_kms: Callable[[], object] | None,
    ) -> None:
        self._location = location = access.location
        self._access = access
        self._threads = threads
        self._close_kms = close_kms
        self._lock = ForkSafeLock()
        # Debugging tools call repr() on an object whose constructor has failed.
        self._current: DatasetView | None = None
        self.files = Files(self._view, location.text)
        self.report: RunReport | None = None
        self._current = DatasetView.of(location, version, keys)
        self._access = replace(access, pins=access.pins.holding(version))

    # -- properties ------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """Path or URL."""
        return self._location.text

    @property
    def uuid(self) -> str:
        """UUID of the dataset."""
        return self._view().version.uuid

    @property
    def version(self) -> int:
        """Number of the version that this object shows."""
        return self._view().version.version

    @property
    def digest(self) -> str:
        """SHA-256 of the version's file. Store it elsewhere, and pin it with ``open(..., expected_digest=)``."""
        return self._view().version.digest

    @property
    def mode(self) -> int | None:
        """Permission bits of the directory that was encrypted; None where they are not known."""
        return self._view().version.mode

    @property
    def key_id(self) -> str:
        """The master key."""
        return self._view().version.key_id

    @property
    def wrapped_key(self) -> WrappedKey:
        """The key of the dataset, as the KMS has wrapped it."""
        return self._view().version.key

    @property
    def plaintext_bytes(self) -> int:
        """Bytes of plaintext in all files."""
        return self._view().version.plaintext_bytes

    @property
    def pins(self) -> Pins:
        """What every later version must be: of the same dataset, under the same master key, and none older.

        They hold for all that this object reads and builds on. Save them where nobody else can write, and give them to
        the next ``open(..., pins=)``.
        """
        return self._access.pins

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._current is None

    def _view(self) -> DatasetView:
        view = self._current
        if view is None:
            raise ValueError("this dataset is closed")
        return view

    # -- reading ---------------------------------------------------------------------------------------------------

    @overload
    def open(self, path: Path, mode: Literal["rb", "br"] = "rb") -> Reader: ...

    @overload
    def open(
        self,
        path: Path,
        mode: Literal["r", "rt", "tr"],
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> io.TextIOWrapper: ...

    def open(
        self,
        path: Path,
        mode: str = "rb",
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Reader | io.TextIOWrapper:
        """Open the plaintext of one file.

        Parameters
        ----------
        path : path
            Relative to the dataset.
        mode : {"rb", "r", "rt"}
            Binary, or text with `encoding`, `errors` and `newline` as the builtin ``open`` has them.

        Returns
        -------
        Reader, or io.TextIOWrapper
            It checks the length from the manifest, so a truncated file is refused when it is opened.

        Raises
        ------
        FileNotFoundError
            The dataset has no such file, or the object of the file is missing.
        TruncatedError, FormatError
            The object is shorter or longer than the manifest says.
        AuthenticationError
            From the reader: the object was replaced or damaged.
        """
        if mode not in ("rb", "br", "r", "rt", "tr"):
            raise ValueError(f"mode must be 'rb', 'r' or 'rt', got {mode!r}: use add to change a dataset")
        if mode in ("rb", "br"):
            if (encoding, errors, newline) != (None, None, None):
                raise ValueError("binary mode takes no encoding, errors or newline")
            return self._open(path)
        encoding = check_text_options(encoding, errors, newline)
        return io.TextIOWrapper(self._open(path), encoding=encoding, errors=errors, newline=newline)

    def _open(self, path: Path) -> Reader:
        view = self._view()
        entry = self.files[path]
        try:
            return open_parts(self._location, entry, view.keys, threads=self._threads)
        except FileNotFoundError as error:
            text = f"is in the manifest, but its object is missing{self._hint()}"
            raise FileNotFoundError(errno.ENOENT, text, error.filename or entry.path) from None

    def _hint(self) -> str:
        """A hint for the error about a missing object, if its version may have been expired."""
        try:
            now = latest_number(self._location)
        except (OSError, FormatError):
            return ""
        if now == self.version:
            return ""
        return f" (the dataset has version {now} by now, and version {self.version} was opened: open it again)"

    def key_metadata(self, path: Path) -> KeyMetadata:
        """Key, AAD prefix and length of one file: any AGS1 reader can open its object with these.

        Raises
        ------
        ValueError
            The file has several objects, each with a key of its own.
        """
        view, entry = self._view(), self.files[path]
        if len(entry.parts) != 1:
            raise ValueError(
                f"{entry.path} has {len(entry.parts)} objects, each with a key of its own: open it instead"
            )
        return view.keys.open_part(entry.parts[0])

    def verify(self, *, threads: int | None = None, progress: Progress | None = None) -> VerifyReport:
        """Authenticate every block of every file, and compare the objects in the directory with the manifests.

        Parameters
        ----------
        threads : int, optional
            Threads to use; by default every usable CPU.
        progress : callable, optional
            Called as ``progress(done, total)`` with bytes of plaintext.

        Returns
        -------
        VerifyReport
            `checked` has "files" and "bytes", which are of plaintext. `facts` has "version", and of this version
            "files" and "plaintext_bytes". The subject of a finding is the path of a file, or the name of an object that
            no version names.

            The codes of errors: "missing", "truncated" and "extended" (of another length, which another file in its
            place may have too), "replaced" (no block is its own), "damaged" (its header, or some of its blocks; of a
            file of one block, that one), "unreadable" (an I/O error), "foreign" (an object of no run of this
            dataset). The codes of warnings, which do no harm: "unreferenced" (a run wrote the object, and it is in no
            version), "leftover" (a temporary file of an interrupted run), "unknown" (objects that may be of a version
            which cannot be read; that version is an error).

        Notes
        -----
        A whole dataset that was restored from an older copy is authentic. Only a version number or a digest that is
        stored elsewhere detects that: ``open(..., expected_version=)``.
        """
        check_run("fail", threads)
        return verify(self._view(), threads=threads or self._threads, progress=progress)

    def decrypt(
        self,
        target: Any,
        *,
        include: Patterns = None,
        exclude: Patterns = None,
        threads: int | None = None,
        on_error: str = "fail",
        progress: Progress | None = None,
        durable: bool = False,
        dry_run: bool = False,
        overwrite: bool = True,
        storage_options: Mapping[str, Any] | None = None,
    ) -> RunReport:
        """Decrypt all files, or some of them, into a directory, with their paths, permissions and times of last change.

        Directories are made again with their modes, empty ones too, except behind a URL.

        Parameters
        ----------
        target : path or URL
            Made if it is missing; not a dataset. Files of the same names in it are replaced, each atomically. Links
            are not followed, and special files are not written to. Objects of a store have the store's own times.
        include, exclude, threads, on_error, progress
            As :func:`ags1.dataset.encrypt`.
        durable : bool
            Wait until everything is on the disk.
        dry_run : bool
            Only report what would be decrypted.
        overwrite : bool
            Whether to replace files that exist. Otherwise the target is looked at first: files of the same length and
            time of last change stay as they are, and count as `unchanged`; others must have the same content. Behind a
            URL, every file that exists is one that differs.
        storage_options : mapping, optional
            Settings for the URL that are not in the environment.

        Raises
        ------
        AuthenticationError, TruncatedError, FormatError
            A file is damaged or was replaced; no part of it is written. With ``on_error="collect"`` it is reported
            instead.
        FileExistsError
            Without `overwrite`, a file of the target differs. Nothing was written.
        NotADirectoryError
            One file has the name of a directory of another file, as only a store allows. Nothing was written.
        OSError
            Reading or writing failed.
        """
        check_run(on_error, threads)
        options = Options(
            Filter(include, exclude), threads or self._threads, on_error, progress=progress, durable=durable,
            dry_run=dry_run,
        )  # fmt: skip
        return decrypt_files(self._view(), Location(target, storage_options), options, overwrite=overwrite)

    # -- versions --------------------------------------------------------------------------------------------------

    def versions(self) -> list[Version]:
        """All versions that exist, in ascending order.

        Raises
        ------
        FormatError, OSError
            A version cannot be read.
        """
        last = read_latest(self._location)
        if last is not None:
            self._check(last)
        found: list[Version] = []
        for each in kept_versions(self._location, keys=self._view().keys):
            if each.error is not None:
                raise damaged(self._location, each.number, each.error)
            assert each.version is not None
            if not each.is_committed:
                # Nothing vouches for what is below a break in the chain of parents.
                break
            found.append(each.version)
        return found[::-1]

    def changed_since(self, version: int) -> Iterator[DatasetEntry]:
        """Yield the files that are new or changed since an older version, in the order of paths.

        Manifests that both versions share are not read.

        Raises
        ------
        FileNotFoundError
            There is no such version before this one, or it was expired.
        """
        view = self._view()
        if not 0 < version <= view.version.version:
            raise expired(self._location, version)
        try:
            old, *_ = made_since(self._location, view.version, version - 1)
        except FileNotFoundError:
            raise expired(self._location, version) from None
        before = DatasetView.of(self._location, old, view.keys).root
        return (
            now
            for was, now in changes(view.manifests, before, view.root)
            if now is not None and not now.is_directory and not now.is_same_file(was)
        )

    def refresh(self) -> bool:
        """Show the last version; return whether it differs from the one before.

        Raises
        ------
        AuthenticationError, KeyAccessError
            The last version is not what :attr:`pins` say: it is older, of another dataset, or under another master
            key. After somebody else's :meth:`rewrap`, open the dataset again, with the new key.
        """
        before = self._view().version
        found = read_latest(self._location, after=before.version)
        assert found is not None
        if found.digest == before.digest:
            return False
        self._check(found)
        view = DatasetView.of(self._location, found, self._view().keys)
        with self._lock.lock:
            self._current = view
            self._access = replace(self._access, pins=self.pins.holding(found))
        return True

    def _check(self, found: Version) -> None:
        """Refuse what is not pinned; if it is damaged, the error says so."""
        try:
            self.pins.check(found, self._location)
        except AuthenticationError:
            authenticated(self._location, found, self._access.kms, partial(self.pins.check, found, self._location))
            raise

    # -- ending ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the KMS client if this object made it. Open Readers stay usable."""
        with self._lock.lock:
            view, self._current = self._current, None
        if view is not None and self._close_kms is not None:
            self._close_kms()

    def __repr__(self) -> str:
        view = self._current
        state = "closed" if view is None else f"version {view.version.version}, {view.version.file_count} files"
        return f"<ags1.dataset.Dataset {self.path!r}: {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Dataset cannot be pickled or copied: it holds keys; open it where it is needed")

    def expire(
        self, *, keep: int = 1, older_than: float | None = 5 * _DAY, grace: float = _DAY, give_up: int = 0,
        dry_run: bool = False,
    ) -> ExpireReport:  # fmt: skip
        """Remove old versions, and the objects that no remaining version names.

        All manifests of the versions that stay are read. Memory holds the names of what is removed, and does not grow
        with the number of files that stay.

        Parameters
        ----------
        keep : int
            The number of last versions that always stay; at least 1.
        older_than : float or None
            Seconds since a version was replaced by the next one: younger versions stay. None removes all but `keep`. A
            writer that began on a version before the removed ones fails, so choose a time longer than the longest
            run.
        grace : float
            Seconds. An object that is younger and belongs to no version stays, because its writer may commit it
            later. The clock of the store counts. A writer that takes longer fails, and loses no committed file.
        give_up : int
            Remove this version and all before it, whatever `keep` and `older_than` say, even if they cannot be read.
            Objects that only they name are lost. The last version is never removed.
        dry_run : bool
            Only report what would be removed.

        Raises
        ------
        ConflictError
            Other writers committed during each attempt.
        FormatError, AuthenticationError, OSError
            A version that would stay cannot be read. The objects that it needs are unknown, so nothing was removed.
        """
        at_least_one(keep, "keep")
        report = _maintenance.expire(
            self._access, keep=keep, older_than=older_than, grace=grace, give_up=give_up, dry_run=dry_run
        )
        self.refresh()
        return report

    # -- changing --------------------------------------------------------------------------------------------------

    def add(
        self,
        source: Any,
        *,
        prefix: str = "",
        include: Patterns = None,
        exclude: Patterns = None,
        threads: int | None = None,
        on_error: str = "fail",
        resume: bool = True,
        progress: Progress | None = None,
        durable: bool = True,
        dry_run: bool = False,
        again: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> RunReport:
        """Add the files of a directory, or one file; unchanged files are not written again.

        Other files of the dataset are not read, so the cost does not grow with the dataset.

        Parameters
        ----------
        source : path or URL
            A directory, whose files keep their relative paths, or a file.
        prefix : str
            Directory of the dataset to add them to.
        include, exclude, threads, on_error, resume, progress, durable, again
            As :func:`ags1.dataset.encrypt`.
        dry_run : bool
            Only report what would be done.
        storage_options : mapping, optional
            Settings for the source that are not in the environment.

        Returns
        -------
        RunReport
            Also as :attr:`report`. This object shows the new version afterwards.

        Raises
        ------
        ConflictError
            Another writer has changed one of the same paths in the meantime.
        """
        check_run(on_error, threads)
        options = Options(
            Filter(include, exclude), threads or self._threads, on_error, resume, progress, durable, dry_run,
            complete=False, again=again,
        )  # fmt: skip
        return self._write(source, storage_options, relative(prefix) if prefix else "", "add", options)

    def repair(
        self,
        source: Any,
        *,
        prefix: str = "",
        threads: int | None = None,
        progress: Progress | None = None,
        dry_run: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> RunReport:
        """Verify every file, and encrypt again from the source each file that is missing, damaged or of wrong length.

        A file whose source has changed since then is an error: use :func:`ags1.dataset.encrypt` for it. `progress` is
        that of :meth:`verify`, and is told of the encryption too.

        Returns
        -------
        RunReport
            ``errors`` lists every damaged file that could not be repaired, ``notes`` objects of no run of this dataset.
        """
        check_run("fail", threads)
        name = relative(prefix) if prefix else ""
        refuse_missing(Location(source, storage_options))
        found = compare(self._view(), threads=threads or self._threads, progress=progress)
        options = Options(
            Filter(), threads or self._threads, "collect", progress=progress, dry_run=dry_run, again=True
        )  # fmt: skip

        damaged = {each.subject: each for each in found if "plaintext_length" in each.details}
        readable = frozenset(path for path, each in damaged.items() if each.code != "unreadable")
        report = RunReport(self.version)
        if readable:
            report = self._write(source, storage_options, name, "repair", replace(options, only=readable))
        report.repaired = report.done
        told = {path for path, _ in report.errors}
        is_written = report.changed and not dry_run
        written = {path for path in readable if is_written and self.files[path].version == report.version}
        report.errors += (
            (path, FileNotFoundError(errno.ENOENT, f"{each.code}, and not in the source", path))
            for path, each in damaged.items()
            if path not in written | told and not (dry_run and path in report.paths)
        )
        stays = "no run of this dataset has written it, and it stays: look at it, and remove it"
        report.notes += ((each.subject, stays) for each in found if each.code == "foreign")
        return report

    def _write(
        self, source: Any, storage_options: Mapping[str, Any] | None, prefix: str, operation: str, options: Options
    ) -> RunReport:
        self._view()
        where = Location(source, storage_options)
        report, _ = write_files(where, self._access, prefix, None, operation, options)
        return self._changed(report)

    def _changed(self, report: RunReport) -> RunReport:
        self.refresh()
        self.report = report
        return report

    def rm(self, *paths: Path, dry_run: bool = False) -> RunReport:
        """Make a version without some files, or without directories and all files below them.

        Older versions keep them until :meth:`expire`.

        Raises
        ------
        FileNotFoundError
            A path does not exist. Nothing was removed.
        """
        names = [relative(path) for path in paths]
        if not names or "" in names:
            raise ValueError("name the files or directories of the dataset that are to be removed")
        self._view()
        return self._changed(_maintenance.remove_files(self._access, names, dry_run=dry_run))

    def restore(self, version: int, *, dry_run: bool = False) -> RunReport:
        """Make a version that has the files of an older one, and no others; also where the last version is damaged.

        Objects of the older version are used again. Only files whose objects an :meth:`expire` may be removing are
        encrypted again.

        Parameters
        ----------
        version : int
            The number of a version that exists; see :meth:`versions`.
        dry_run : bool
            Only report what would be done.

        Returns
        -------
        RunReport
            ``done`` files came back, ``removed`` were left out, and ``unchanged`` are the same in both. Over a damaged
            version, which ``notes`` names, all files count as ``done``.

        Raises
        ------
        FileNotFoundError
            There is no such version, or it was expired.
        ConflictError
            Another writer has changed a file meanwhile, or the version was expired. Nothing was committed.
        """
        self._view()
        report = _maintenance.restore(self._access, version, dry_run=dry_run)
        # The last version may be damaged, which only a restore changes.
        return report if dry_run else self._changed(report)

    def rewrap(self, new_key_id: str, new_kms: Any = None, *, dry_run: bool = False) -> DatasetRewrapReport:
        """Change the master key of the dataset. Only a wrapped key is written.

        Parameters
        ----------
        new_key_id : str
            The new master key.
        new_kms : client or URL, optional
            The service that has it; by default the one that this dataset was opened with.
        dry_run : bool
            Make every call to the services, and write nothing.

        Raises
        ------
        KeyAccessError
            A service refused, or did not return the same key. The dataset is unchanged.

        Notes
        -----
        The old master key still opens the older versions until :meth:`expire` removes them. With a copy of an old
        version's file it opens later files too: the key of the dataset stays the same. After a leak, make a new
        dataset. From now on, :attr:`pins` have the new master key.
        """
        self._view()
        with kms_client(self._access.kms if new_kms is None else new_kms) as (client, close):
            report = _maintenance.rewrap(self._access, new_key_id, client, dry_run=dry_run)
        if dry_run:
            if close is not None:
                close()
            return report
        if new_kms is not None:
            if self._close_kms is not None:
                self._close_kms()
            self._close_kms = close
        self._access = replace(self._access, kms=client, pins=self.pins.under(new_key_id))
        self.refresh()
        return report
