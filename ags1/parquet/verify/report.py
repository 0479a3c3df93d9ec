"""The report of verify_file: findings, columns, and all of it as text and for JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ags1.errors import AuthenticationError, FormatError, LimitError, UnsupportedError
from ags1.support.reports import Record, Report
from ags1.support.typing import Any
from ags1.support.words import counted, first_lines, listed, printable

# In a class with a field `bytes`, that name is the field.
Octets = bytes

AUTHENTIC, DAMAGED, NOT_PROTECTED = "authentic", "damaged", "not protected"
"""The outcomes of verification."""
NOT_CHECKED = "not checked"
"""Instead of an outcome: a key is missing, or the file could not be read."""

NOT_COMPARED = (
    "the AAD prefix that is stored in a file was not compared, so another file under the same keys may be in its place"
    "; `aad_prefix` says which one is expected"
)
NO_PREFIX = "without an AAD prefix, another file under the same keys may be in the place of a file"

SIGNATURE = "footer signature"
# The most findings that are kept, and the most names and findings in the text.
_REPORTED = 1000
_LISTED = 20


def worst_outcome(outcomes: Iterable[str]) -> str:
    """The outcome of several files: "damaged" has precedence; "authentic" only if all of them are."""
    found = set(outcomes)
    return next((each for each in (DAMAGED, NOT_CHECKED, NOT_PROTECTED) if each in found), AUTHENTIC)


def outcome_of(error: BaseException) -> str:
    """The outcome of a file for which verification raised an error."""
    if isinstance(error, UnsupportedError):
        # What is not read here, or not allowed to be, may be whole.
        return NOT_CHECKED
    return DAMAGED if isinstance(error, (AuthenticationError, FormatError, LimitError)) else NOT_CHECKED


@dataclass(frozen=True)
class VerifyFinding(Record):
    """A module that failed, or a contradiction between parts of the file.

    Attributes
    ----------
    module : str
        Kind of module: "footer", "footer signature", "column metadata", "data page header", "data page", "dictionary
        page header", "dictionary page", "column index", "offset index", "Bloom filter header", "Bloom filter bitset".
        Other kinds: "magic" (the first four bytes), "column key" (it could not be unwrapped), "column chunk", "row
        group".
    error : str
        Name of the exception's class; "" for a contradiction.
    message : str
        The error, with the names of the parts concerned.
    row_group : int or None
        Ordinal, counted from 0.
    path : tuple of str or None
        The column.
    page : int or None
        Ordinal of a data page in its column chunk, counted from 0.
    offset : int or None
        Offset in the file, in bytes, at which the module begins; for the body of a page, the begin of the body.
    unchecked : int
        Bytes of pages that could not be checked because of this finding.
    """

    module: str
    error: str
    message: str
    row_group: int | None = None
    path: tuple[str, ...] | None = None
    page: int | None = None
    offset: int | None = None
    unchecked: int = 0

    @property
    def column(self) -> str | None:
        """The column's path with dots."""
        return None if self.path is None else ".".join(self.path)

    def to_dict(self) -> dict[str, Any]:
        """All values, for JSON."""
        names = ("module", "error", "message", "row_group", "column", "page", "offset", "unchecked")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        where = "" if self.offset is None else f" (offset {self.offset})"
        behind = f"; {self.unchecked} bytes of pages could not be checked" if self.unchecked else ""
        return f"{self.message}{where}{behind}"


@dataclass
class ColumnVerification(Record):
    """What was found in all chunks of one column.

    Attributes
    ----------
    path : tuple of str
        Path of the leaf.
    protection : str
        "plaintext", "footer key", "column key"; "mixed" if row groups differ.
    modules : int
        Modules that were authenticated.
    pages : int
        Pages that were found, the dictionary pages among them.
    failures, problems : int
    missing_key : bool
        Whether chunks of it could not be checked because their key is not known.
    """

    path: tuple[str, ...]
    protection: str = ""
    modules: int = 0
    pages: int = 0
    failures: int = 0
    problems: int = 0
    missing_key: bool = False

    @property
    def column(self) -> str:
        """The path with dots."""
        return ".".join(self.path)

    def to_dict(self) -> dict[str, Any]:
        """All values, for JSON."""
        names = ("column", "protection", "modules", "pages", "failures", "problems", "missing_key")
        return {name: getattr(self, name) for name in names}


@dataclass
class ParquetVerifyReport(Report):
    """What :func:`verify_file` found.

    Attributes
    ----------
    name : str or None
        The file.
    size : int
        Its bytes.
    footer : str
        "encrypted", "signed" or "plaintext".
    algorithm : str or None
        "AES_GCM_V1" or "AES_GCM_CTR_V1"; None for a file that is not encrypted.
    signature_verified : bool or None
        Of a signed footer; None if there is no signature.
    row_groups : int
    modules : dict of str to int
        How many modules of each kind were authenticated.
    unauthenticated : dict of str to int
        How many modules nothing protects from changes: pages of AES_GCM_CTR_V1 carry no tag, and a signature may not
        have been checked.
    plaintext_levels : int
        Encrypted pages whose repetition and definition levels are neither encrypted nor authenticated: parquet-java
        puts those of version 2 pages before the module. (Arrow puts them inside.)
    plaintext_pages : int
        Pages that are not encrypted; nothing but a CRC can tell whether they are as they were.
    checksums : int
        Pages without a tag, encrypted or not, whose CRC was checked.
    bytes : int
        Bytes of the file that were checked.
    unchecked_bytes : int
        Bytes of pages that could not be checked, as far as it is known how many there are.
    columns : list of ColumnVerification
        In the order of the schema.
    failures : list of VerifyFinding
        Modules that failed, in the order in which they were met, the first thousand of them.
    failure_count : int
        How many there are in all.
    problems : list of VerifyFinding
        What authenticates, or need not, and contradicts something else in the file: readers that rely on it may
        stumble. The first thousand.
    problem_count : int
        How many there are in all.
    missing_keys : dict of str to str
        Columns (paths with dots) that could not be checked because their key is not known, and why it is not.
    footer_key_missing : bool
        Whether a signature could not be checked for want of the footer key.
    missing_allowed : bool
        Whether the caller said that missing keys are no fault.
    aad_prefix : bytes or None
        The AAD prefix that a footer was authenticated with; None without one.
    aad_prefix_given : bool
        Whether the caller said which prefix that must be. Without it a stored one proves nothing: another file under
        the same keys, with its own prefix, passes for this one.
    unprotected_columns : dict of str to str
        Columns (paths with dots) that were to be encrypted, or encrypted with a key that was given for them, and what
        they are instead.
    plaintext_allowed, unauthenticated_pages_allowed : bool
        What the caller allowed: files without an authenticated footer; pages without a tag.
    """

    name: str | None = None
    size: int = 0
    footer: str = "plaintext"
    algorithm: str | None = None
    signature_verified: bool | None = None
    row_groups: int = 0
    modules: dict[str, int] = field(default_factory=dict)
    unauthenticated: dict[str, int] = field(default_factory=dict)
    plaintext_levels: int = 0
    plaintext_pages: int = 0
    checksums: int = 0
    bytes: int = 0
    unchecked_bytes: int = 0
    columns: list[ColumnVerification] = field(default_factory=list)
    failures: list[VerifyFinding] = field(default_factory=list)
    failure_count: int = 0
    problems: list[VerifyFinding] = field(default_factory=list)
    problem_count: int = 0
    missing_keys: dict[str, str] = field(default_factory=dict)
    footer_key_missing: bool = False
    missing_allowed: bool = False
    aad_prefix: Octets | None = None
    aad_prefix_given: bool = False
    unprotected_columns: dict[str, str] = field(default_factory=dict)
    plaintext_allowed: bool = False
    unauthenticated_pages_allowed: bool = False

    @property
    def outcome(self) -> str:
        """What the file is: "authentic", "damaged" or "not protected"; "not checked" if keys were missing.

        Damaged is a file in which anything failed, whatever else it is. Not protected is one without an authenticated
        footer, one with pages whose contents, or levels, carry no tag, and one with `unprotected_columns`; other
        plaintext columns that an authenticated footer declares are as somebody meant them. Where missing keys are
        allowed, the outcome is that of what could be checked.
        """
        if self.failure_count:
            return DAMAGED
        if not self.missing_allowed and (self.missing_keys or self.footer_key_missing):
            return NOT_CHECKED
        return NOT_PROTECTED if self.unprotected() else AUTHENTIC

    @property
    def ok(self) -> bool:
        """Whether the file is authentic, or what it is was allowed. Problems do not count."""
        if self.outcome != NOT_PROTECTED:
            return self.outcome == AUTHENTIC
        return not self.unprotected(allowed=True)

    @property
    def may_be_exchanged(self) -> bool:
        """Whether the file has a stored AAD prefix that nobody compared, so that it may be another file."""
        return self.aad_prefix is not None and not self.aad_prefix_given

    @property
    def has_no_prefix(self) -> bool:
        """Whether the footer is authentic and has no AAD prefix, so that the file may be another file."""
        return self.aad_prefix is None and self.footer_authenticated

    @property
    def footer_authenticated(self) -> bool:
        """Whether a tag of the footer was verified."""
        return self.modules.get("footer", 0) + self.modules.get(SIGNATURE, 0) > 0

    @property
    def plaintext_columns(self) -> list[str]:
        """Paths with dots of the columns of which anything is not encrypted."""
        return [each.column for each in self.columns if each.protection in ("plaintext", "mixed")]

    def unprotected(self, *, allowed: bool = False) -> list[str]:
        """Why the file is not protected, in words; empty if it is. `allowed` leaves out what the caller allowed."""
        found = []
        if not self.footer_authenticated and not (allowed and self.plaintext_allowed):
            what = {
                "encrypted": "it does not open: wrong footer key, wrong AAD prefix, or damaged data",
                "signed": "its signature does not verify: wrong footer key, wrong AAD prefix, or a changed footer",
            }.get(self.footer, "it is not encrypted")
            if self.footer == "signed" and (self.footer_key_missing or SIGNATURE in self.unauthenticated):
                what = "its signature was not verified"
            found.append(f"no footer is authenticated ({what})")
        pages = sum(count for kind, count in self.unauthenticated.items() if kind != SIGNATURE)
        if not (allowed and self.unauthenticated_pages_allowed):
            if pages:
                found.append(f"{counted(pages, 'page')} without a tag ({self.algorithm})")
            if self.plaintext_levels:
                found.append(f"the levels of {counted(self.plaintext_levels, 'version 2 page')} without a tag")
        found += [f"column {name} {what}" for name, what in sorted(self.unprotected_columns.items())[:_LISTED]]
        return found

    @property
    def consistent(self) -> bool:
        """Whether nothing of what was checked contradicts anything else."""
        return self.problem_count == 0

    def add_failure(self, failure: VerifyFinding, column: ColumnVerification | None = None) -> None:
        """Take in a failure, in a column or elsewhere."""
        self.failure_count += 1
        self.unchecked_bytes += failure.unchecked
        if column is not None:
            column.failures += 1
        if len(self.failures) < _REPORTED:
            self.failures.append(failure)

    def add_problem(self, problem: VerifyFinding, column: ColumnVerification | None = None) -> None:
        """Take in a problem, in a column or elsewhere."""
        self.problem_count += 1
        if column is not None:
            column.problems += 1
        if len(self.problems) < _REPORTED:
            self.problems.append(problem)

    def count(self, kind: str, column: ColumnVerification | None = None) -> None:
        """Count a module that was authenticated."""
        self.modules[kind] = self.modules.get(kind, 0) + 1
        if column is not None:
            column.modules += 1

    def to_dict(self) -> dict[str, Any]:
        """All values, for JSON."""
        found = {
            "outcome": self.outcome,
            "unprotected": self.unprotected(),
            "plaintext_columns": self.plaintext_columns,
        }
        return {**found, **super().to_dict()}

    def _text(self) -> str:
        """The report as text, a few lines if all is well."""
        outcome = self.outcome if self.outcome == AUTHENTIC else self.outcome.upper()
        allowed = ", which was allowed" if self.ok and self.outcome != AUTHENTIC else ""
        lines = [f"{self.name or 'file'}: {outcome}{allowed}{self._counted_faults()}"]
        lines += [f"not protected: {each}" for each in self.unprotected()]
        lines.append(f"footer: {self._footer_text()}")
        lines.append(f"authenticated: {_counts(self.modules) or 'nothing'}")
        if self.may_be_exchanged:
            lines.append(NOT_COMPARED)
        elif self.has_no_prefix:
            lines.append(NO_PREFIX)
        lines.append(f"checked: {self.bytes} of {self.size} bytes")
        pages = {kind: count for kind, count in self.unauthenticated.items() if kind != SIGNATURE}
        if pages:
            lines.append(
                f"NOT authenticated: {_counts(pages)}. Pages of AES_GCM_CTR_V1 carry no tag: changes of their contents "
                "cannot be noticed"
            )
        if self.plaintext_levels:
            lines.append(
                f"NOT authenticated: the levels of {counted(self.plaintext_levels, 'version 2 page')}, which lie in "
                "plaintext before the module as in parquet-java: which values are null, and where lists end"
            )
        if self.plaintext_pages:
            names = self.plaintext_columns
            lines.append(
                f"not encrypted: {counted(len(names), 'column')} ({listed(names, _LISTED)}), "
                f"{counted(self.plaintext_pages, 'page')}, only their structure was checked"
            )
        if pages or self.plaintext_pages:
            lines.append(f"CRC checked of {counted(self.checksums, 'page')} without a tag")
        if self.missing_keys:
            lines.append(f"not checked, because a key is missing: {listed(sorted(self.missing_keys), _LISTED)}")
        if self.unchecked_bytes:
            lines.append(f"not checked: {self.unchecked_bytes} bytes of pages")
        lines += first_lines("failed", self.failures, self.failure_count, _LISTED)
        lines += first_lines("problem", self.problems, self.problem_count, _LISTED)
        # Names of columns and files are a stranger's: none of them is to look like a line of the report.
        return "\n".join(map(printable, lines))

    def _counted_faults(self) -> str:
        parts = []
        if self.failure_count:
            parts.append(f"{self.failure_count} failed")
        missing = len(self.missing_keys) + self.footer_key_missing
        if missing:
            parts.append(counted(missing, "key") + " missing")
        if self.problem_count:
            parts.append(counted(self.problem_count, "problem"))
        return f" ({', '.join(parts)})" if parts else ""

    def _footer_text(self) -> str:
        if self.algorithm is None and self.footer == "plaintext":
            return "not encrypted and not signed: whoever can write to the file can change all of it unnoticed"
        how = f"{self.footer}, {self.algorithm or 'algorithm not known'}"
        if self.signature_verified is None:
            return how
        if self.signature_verified:
            return f"{how}, signature verified"
        if self.footer_key_missing:
            return f"{how}, signature NOT verified: the footer key is missing"
        if SIGNATURE in self.unauthenticated:
            return f"{how}, signature not verified, as `check_footer_integrity=False` says"
        return f"{how}, signature NOT valid"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in counts.items())
