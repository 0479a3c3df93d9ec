"""The Dataset: what :func:`ags1.dataset.open` and :func:`ags1.dataset.encrypt` return."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace

import ags1.dataset.expiry as _expiry
import ags1.dataset.maintenance as _maintenance
from ags1.dataset._arguments import Path, check_run, kms_client, relative
from ags1.dataset._reading import ReadableDataset
from ags1.dataset.reports import DatasetRewrapReport, ExpireReport, RunReport
from ags1.dataset.selection import Filter, Patterns
from ags1.dataset.sources import refuse_missing
from ags1.dataset.verification import compare
from ags1.dataset.writing import Options, write_files
from ags1.storage import Location
from ags1.streams.files import Progress
from ags1.support.arguments import at_least_one
from ags1.support.typing import Any

_DAY = 24 * 3600.0


class Dataset(ReadableDataset):
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
        report = _expiry.expire(
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
            ``errors`` lists every damaged file that could not be repaired.
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
        return self._changed(_maintenance.remove(self._access, names, dry_run=dry_run))

    def restore(self, version: int, *, dry_run: bool = False) -> RunReport:
        """Make a version that has the files of an older one, and no others.

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
            ``done`` files came back, ``removed`` were left out, and ``unchanged`` are the same in both.

        Raises
        ------
        FileNotFoundError
            There is no such version, or it was expired.
        ConflictError
            Another writer has changed a file meanwhile, or the version was expired. Nothing was committed.
        """
        self._view()
        return self._changed(_maintenance.restore(self._access, version, dry_run=dry_run))

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
