"""The walk: one listing, the datasets and tables in it, one small read of each file, many at once, and the policy."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ags1.audit._datasets import DatasetMembership
from ags1.audit._tables import METADATA_DIRECTORY, TableMembership
from ags1.audit.classification import PARTLY, PLAINTEXT, UNKNOWN, AuditedFile, decryption_of, look
from ags1.audit.policy import Policy
from ags1.audit.report import AuditReport, Group, Membership
from ags1.dataset.names import CONTROL, version_number
from ags1.iceberg.metadata.metadata_names import is_metadata_file
from ags1.storage import REQUESTS_AT_ONCE, Entry, Location, in_order, list_files, status
from ags1.streams.files import Progress
from ags1.support.exit_codes import EXIT_IO
from ags1.support.words import counted, share_text, size_text


def audit(
    location: Any,
    *,
    policy: Any = None,
    kms: Any = None,
    threads: int | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> AuditReport:
    """Report what is encrypted in a bucket, a directory, a dataset, a table or a file, how, and what is not.

    Parameters
    ----------
    location : path or URL
        What to audit, with all files below it. Links to directories are reported, but not followed.
    policy : Policy, path, URL or mapping, optional
        What must be encrypted; see :class:`ags1.audit.Policy`. Without it nothing is a violation.
    kms : client or URL, optional
        Opens the metadata of datasets and encrypted tables, and the footers of Parquet. Without it they are judged by
        their plaintext parts: unreferenced files, for example, are then not known.
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
        An invalid policy, or a number of threads below 1.

    Notes
    -----
    Memory grows with the number of files, about as their listing does, but not with their sizes.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    close = None
    if isinstance(kms, str):
        from ags1.kms import load

        kms = load(kms)
        close = kms.close

    def look_at(listed: list[Entry]) -> Iterable[AuditedFile]:
        decryption = decryption_of(kms)
        return in_order(lambda each: look(each, decryption), listed, at_once=threads or REQUESTS_AT_ONCE)

    try:
        return judge(Location(location, storage_options), look_at, policy=policy, kms=kms, progress=progress)
    finally:
        if close is not None:
            close()


def judge(
    location: Location,
    look_at: Callable[[list[Entry]], Iterable[AuditedFile]],
    *,
    policy: Any = None,
    kms: Any = None,
    progress: Progress | None = None,
) -> AuditReport:
    """Audit with `look_at`, which returns an AuditedFile for each entry, in their order.

    Otherwise as :func:`audit`; `kms` is a client.
    """
    if isinstance(policy, Mapping):
        policy = Policy.of(policy)
    elif policy is not None and not isinstance(policy, Policy):
        remote = isinstance(policy, str) and "://" in policy
        policy = Policy.read(policy, location.storage_options if remote else None)
    return _Audit(location, policy, kms).run(look_at, progress)


class _Audit:
    def __init__(self, location: Location, policy: Policy | None, kms: Any) -> None:
        self._location = location
        self._policy = policy
        self._kms = kms
        of_policy = (None, None) if policy is None else (policy.name, policy.digest)
        self._report = AuditReport(location.text, *of_policy)

    def run(self, look_at: Callable[[list[Entry]], Iterable[AuditedFile]], progress: Progress | None) -> AuditReport:
        report = self._report
        listed = self._listed()
        groups = _memberships(self._location, listed, self._kms, report)
        report.groups = [each.group for each in groups]
        index = {each.group.path: number for number, each in enumerate(groups) if number}
        done, total = 0, sum(each.size for each in listed)
        for entry, found in zip(listed, look_at(listed), strict=True):
            found.group = _group_of(entry.name, index)
            groups[found.group].judge(found, report)
            self._take(found)
            done += entry.size
            if progress is not None:
                progress(done, total)
        report.add_up()
        if not report.files and not report.findings:
            text = f"{self._location.text}: there are no files here, so nothing was inspected"
            report.add("warning", "nothing-found", self._location.text, text)
        self._judge_all()
        report.sort_findings()
        return report

    def _listed(self) -> list[Entry]:
        def tell(error: OSError) -> None:
            name = str(error.filename)
            if error.errno == errno.ENOTDIR:
                self._report.add("warning", "link-not-followed", name, f"{name}: {error.strerror}")
            else:
                self._report.add("error", "unreadable", name, f"{name}: {error.strerror}", EXIT_IO)

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
                report.add("warning", code, found.name, message)
            else:
                report.add("error", code, found.name, message, 1 if code == "damaged" else 4)
        if found.detail.startswith("AES_GCM_CTR_V1"):
            text = f"{found.name}: its pages have no tags: changes of them are not detected"
            report.add("warning", "pages-without-tags", found.name, text)
        if self._policy is not None:
            for code, message in self._policy.violations(found):
                report.add("violation", code, found.name, message)

    def _judge_all(self) -> None:
        policy, report = self._policy, self._report
        if policy is None:
            return
        for group in report.groups:
            for code, message in policy.key_violations(group.name, group.keys):
                report.add("violation", code, group.name, message)
        most = policy.max_plaintext_share
        if most is not None:
            bare = sum(report.totals[each][1] for each in (PLAINTEXT, UNKNOWN, PARTLY))
            if bare > most * report.size:
                share = f"{share_text(bare, report.size)} of the bytes ({size_text(bare)})"
                text = f"{share} are not encrypted, more than the {100 * most:g} % of plaintext.max_share"
                report.add("violation", "too-much-plaintext", self._location.text, text)
        if policy.keys_allowed is not None:
            unnamed = [
                each
                for each in report.files
                if each.protection in ("encrypted", PARTLY) and not each.keys and not report.groups[each.group].keys
            ]
            if unnamed:
                text = f"{counted(len(unnamed), 'encrypted file')} of no dataset and no table do not name their key"
                report.add("note", "key-not-known", unnamed[0].name, f"{text}, such as {unnamed[0].name}")


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
