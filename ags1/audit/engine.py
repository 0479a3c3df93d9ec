"""The walk: one listing, the datasets and tables in it, and small reads of each file, many at once."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Mapping
from typing import Any

from ags1.audit._datasets import DatasetMembership
from ags1.audit._tables import METADATA_DIRECTORY, TableMembership
from ags1.audit.classification import NOT_ENCRYPTED, UNKNOWN, AuditedFile, decryption_of, look
from ags1.audit.report import AuditReport, Group, Membership
from ags1.dataset.names import CONTROL, version_number
from ags1.dataset.selection import Patterns, matches, patterns_of
from ags1.iceberg.metadata.metadata_document import is_metadata_file
from ags1.storage import REQUESTS_AT_ONCE, Entry, Location, in_order, list_files, status
from ags1.streams.files import Progress
from ags1.support.arguments import spelled
from ags1.support.reports import DAMAGED, ERROR, NOT_CHECKED, NOT_PROTECTED, WARNING, Finding


def audit(
    location: Any,
    *,
    allow: Patterns = None,
    kms: Any = None,
    whole: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> AuditReport:
    """Report what is encrypted in a bucket, a directory, a dataset, a table or a file, how, and what is not.

    Parameters
    ----------
    location : path or URL
        What to audit, with all files below it. Links to directories are reported, but not followed.
    allow : str or sequence of str, optional
        Glob patterns of names of files that may be plaintext; any other file that is not encrypted is a violation. A
        pattern without ``/`` is compared with each component of a name, one with ``/`` with the whole name, where
        ``*`` stands for any characters, also ``/``.
    kms : client or URL, optional
        Opens the metadata of datasets and encrypted tables, and the footers of Parquet. Without it they are judged by
        their plaintext parts: unreferenced files, for example, are then not known.
    whole : bool
        Read all of each file that looks encrypted, not only samples, and follow all modules of Parquet.
    threads : int, optional
        Files to inspect at once; by default 32.
    progress : callable, optional
        Called as ``progress(done, total)`` with the bytes of the inspected files. An exception in it stops the audit.
    storage_options : mapping, optional
        Options to reach a URL that the environment does not have.

    Returns
    -------
    AuditReport

    Raises
    ------
    FileNotFoundError, OSError
        The location does not exist, or cannot be listed. Files below it that cannot be read are in the report.
    KeyAccessError
        No client can be made for the URL of the KMS.
    ValueError
        A number of threads below 1.

    Notes
    -----
    Without its key nothing proves that a file is encrypted: it looks encrypted, and verification with the key proves
    it. Memory grows with the number of files, about as their listing does, but not with their sizes.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    with contextlib.ExitStack() as stack:
        if isinstance(kms, str):
            from ags1.kms import load

            kms = load(kms)
            stack.callback(kms.close)
        found = _Audit(Location(location, storage_options), patterns_of(allow, "allow"), kms)
        return found.run(threads or REQUESTS_AT_ONCE, whole, progress)


class _Audit:
    def __init__(self, location: Location, allowed: list[str], kms: Any) -> None:
        self._location = location
        self._allowed = allowed
        self._kms = kms
        self._report = AuditReport(location.shown)

    def run(self, at_once: int, whole: bool, progress: Progress | None) -> AuditReport:
        report = self._report
        listed = self._listed()
        groups = _memberships(self._location, listed, self._kms, report)
        report.groups = [each.group for each in groups]
        index = {each.group.path: number for number, each in enumerate(groups) if number}
        decryption = decryption_of(self._kms)
        looked_at = in_order(lambda each: look(each, decryption, whole=whole), listed, at_once=at_once)
        done, total = 0, sum(each.size for each in listed)
        for entry, found in zip(listed, looked_at, strict=True):
            found.group = _group_of(entry.name, index)
            groups[found.group].judge(found, report)
            self._take(found)
            done += entry.size
            if progress is not None:
                progress(done, total)
        report.add_up()
        if not report.files and not report.findings:
            # A schedule with a wrong path must not stay green.
            text = f"{self._location}: there are no files here, so nothing was inspected"
            report.add(Finding(ERROR, "nothing-found", self._location.shown, text, NOT_CHECKED))
        report.sort()
        return report

    def _listed(self) -> list[Entry]:
        def tell(error: OSError) -> None:
            name = str(error.filename)
            is_link = error.errno == errno.ENOTDIR
            found = (WARNING, "link-not-followed", "") if is_link else (ERROR, "unreadable", NOT_CHECKED)
            severity, code, outcome = found
            self._report.add(Finding(severity, code, name, f"{name}: {error.strerror}", outcome))

        try:
            return list_files(self._location, on_error=tell)
        except (NotADirectoryError, FileNotFoundError) as nothing:
            if not self._location.name:
                # A bucket, which is not a file.
                raise
            try:
                return [status(self._location)]
            except FileNotFoundError:
                # The listing shows whether it is the bucket.
                raise nothing from None

    def _take(self, found: AuditedFile) -> None:
        report = self._report
        report.files.append(found)
        if found.problem is not None:
            code, message = found.problem
            if code == "key-in-plaintext":
                report.add(Finding("warning", code, found.name, message))
            else:
                outcome = DAMAGED if code == "damaged" else NOT_CHECKED
                report.add(Finding("error", code, found.name, message, outcome))
        if found.detail.startswith("AES_GCM_CTR_V1"):
            text = f"{found.name}: its pages have no tags: changes of them are not detected"
            report.add(Finding("warning", "pages-without-tags", found.name, text))
        if found.protection in NOT_ENCRYPTED and not any(matches(found.name, each) for each in self._allowed):
            what = "is of an unknown format" if found.protection == UNKNOWN else f"is {found.protection}"
            text = f"{found.name}: {what}, and no pattern of {spelled('allow')} matches its name"
            report.add(Finding("violation", "not-encrypted", found.name, text, NOT_PROTECTED))


def _memberships(location: Location, listed: list[Entry], kms: Any, report: AuditReport) -> list[Membership]:
    """All groups below a location, first the one for files without another group.

    A dataset has ``_ags1/v-N.json``, an Iceberg table ``metadata/*.metadata.json``.
    """
    datasets: dict[str, list[int]] = {}
    tables: dict[str, list[Entry]] = {}
    for entry in listed:
        above, _, last = entry.name.rpartition("/")
        root, _, directory = above.rpartition("/")
        if directory == CONTROL and (number := version_number(last)) is not None:
            datasets.setdefault(root, []).append(number)
        elif directory == METADATA_DIRECTORY and is_metadata_file(last):
            tables.setdefault(root, []).append(entry)
    found = [Membership(Group("files", ""))]
    for root, numbers in datasets.items():
        found.append(DatasetMembership(root, _below(location, root), numbers, listed, kms, report))
    for root, metadata in tables.items():
        if root not in datasets:
            found.append(TableMembership(root, _below(location, root), metadata, kms, report))
    return found


def _below(location: Location, root: str) -> Location:
    return location.join(root) if root else location


def _group_of(name: str, index: Mapping[str, int]) -> int:
    """The innermost dataset or table that a file is in; 0 if it is in none."""
    above = name
    while above and index:
        above = above.rpartition("/")[0]
        if above in index:
            return index[above]
    return 0
