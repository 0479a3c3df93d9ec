"""A dataset: its master keys, and whether a version names each object in it."""

from __future__ import annotations

from typing import Any

from ags1.audit.classification import BY_DESIGN, PLAINTEXT, AuditedFile
from ags1.audit.report import AuditReport, Group, Membership
from ags1.dataset.damage import newest_keys
from ags1.dataset.keys import DatasetKeys
from ags1.dataset.manifests import Manifests, open_root
from ags1.dataset.names import CONTROL, RUNS, run_of, version_name, version_number
from ags1.dataset.versions import Version, damaged, kept_versions
from ags1.dataset.versions import numbers as numbers_of
from ags1.errors import Ags1Error, KeyAccessError
from ags1.storage import Entry, Location, status
from ags1.support.reports import DAMAGED, NOT_CHECKED, Finding
from ags1.support.words import counted


class DatasetMembership(Membership):
    def __init__(
        self,
        root: str,
        location: Location,
        numbers: list[int],
        listed: list[Entry],
        kms: Any,
        report: AuditReport,
    ) -> None:
        super().__init__(Group("dataset", root, encrypted=True))
        self._location = location.as_root()
        self._kms = kms
        self._report = report
        # Names of the objects that versions need; None if that is not known.
        self._needed: set[str] | None = None
        self._unread: list[str] = []
        if kms is not None:
            # An audit lists no link, which may stand in the place of a version.
            numbers = sorted({*numbers, *numbers_of(self._location)})
        versions = self._versions(sorted(numbers))
        if not versions:
            return
        newest = versions[-1]
        self.group.keys = tuple(dict.fromkeys(each.key_id for each in versions))
        shown = f"{counted(len(versions), 'version')}, {counted(newest.file_count, 'file')} in version {newest.version}"
        self.group.detail = shown
        if kms is None or self._unread:
            why = "no KMS was given" if kms is None else f"{' and '.join(self._unread)} cannot be read"
            self.group.detail += f"; {why}, so unreferenced objects are not known"
        if kms is None:
            return
        prefix = f"{root}/" if root else ""
        sizes = {each.name[len(prefix) :]: each.size for each in listed if each.name.startswith(prefix)}
        self._open(versions, sizes)

    def _add(self, severity: str, code: str, name: str, message: str, outcome: str = "") -> None:
        subject = f"{self.group.path}/{name}" if self.group.path and name else name or self.group.name
        self._report.add(Finding(severity, code, subject, f"{subject}: {message}", outcome))

    def _versions(self, numbers: list[int]) -> list[Version]:
        """The versions that were committed, ascending."""
        found: list[Version] = []
        keys = None if self._kms is None else newest_keys(self._location, self._kms)
        for each in kept_versions(self._location, numbers, keys):
            name = version_name(each.number)
            if each.error is not None:
                self._unread.append(name)
                self._failed(name, damaged(self._location, each.number, each.error))
            elif each.next_is_lost:
                self._add("error", "dataset-file-missing", name, each.fault, DAMAGED)
            elif not each.is_committed:
                self._add("warning", "dataset-unreferenced", name, each.fault)
            elif each.version is not None:
                found.append(each.version)
        return found[::-1]

    def _failed(self, name: str, error: Exception) -> None:
        if isinstance(error, FileNotFoundError):
            self._add("error", "dataset-file-missing", name, f"a manifest is missing: {error}", DAMAGED)
        elif isinstance(error, KeyAccessError):
            self._add("error", "key-refused", name, str(error), NOT_CHECKED)
        elif isinstance(error, Ags1Error):
            self._add("error", "dataset-damaged", name, str(error), DAMAGED)
        else:
            self._add("error", "unreadable", name, str(error), NOT_CHECKED)

    def _open(self, versions: list[Version], sizes: dict[str, int]) -> None:
        """Authenticate the versions, and collect the objects that they need."""
        needed: set[str] = set()
        looked_at: set[str] = set()
        keys = DatasetKeys(versions[-1].key, self._kms, self._location.shown)
        for version in reversed(versions):
            name = version_name(version.version)
            try:
                version.authenticate(keys, name)
                manifests = Manifests(self._location, version.uuid, version=version.version)
                root = open_root(manifests, version, keys)
                if version is versions[-1]:
                    for entry in manifests.files(root):
                        for part in entry.parts:
                            self._check(part.name, sizes.get(part.name), part.file_length)
                needed.update(manifests.object_names(root, looked_at))
            except (Ags1Error, OSError) as error:
                self._failed(name, error)
                return
        # What a version that cannot be read needs is not known.
        self._needed = None if self._unread else needed

    def _check(self, name: str, size: int | None, expected: int) -> None:
        if size is None:
            try:
                size = status(self._location.join(name)).size
            except FileNotFoundError:
                text = "is in the manifest, but not in the dataset"
                self._add("error", "dataset-file-missing", name, text, DAMAGED)
                return
        if size != expected:
            text = f"has {size:,} bytes, and the manifest says {expected:,}"
            self._add("error", "dataset-file-size", name, text, DAMAGED)

    def judge(self, file: AuditedFile, report: AuditReport) -> None:
        name = self.group.inside(file.name)
        above, _, last = name.rpartition("/")
        if name.startswith(f"{RUNS}/") or (above == CONTROL and version_number(last) is not None):
            if file.protection == PLAINTEXT:
                # They contain wrapped keys, and a key authenticates them.
                file.protection, file.format, file.leaks = BY_DESIGN, "dataset", ()
                file.detail = "version or run of a dataset: master key, wrapped keys, numbers of files"
                file.problem = None
            return
        made_here = run_of(name) is not None and file.format == "AGS1"
        if not made_here:
            text = "is of no run of this dataset: it was put there"
            self._add("warning", "dataset-foreign-file", name, f"{text} ({file.protection})")
        elif self._needed is not None and name not in self._needed:
            text = (
                "no version names it: its version was expired, or its run was interrupted or is in progress; "
                "`ags1 dataset expire` removes it after a day"
            )
            self._add("note", "dataset-unreferenced", name, text)
