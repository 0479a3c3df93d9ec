"""What verify_file reports: findings, columns, and the whole of it as text and for JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["SIGNATURE", "ColumnVerification", "VerifyFinding", "VerifyReport"]

SIGNATURE = "footer signature"
# As many findings as are kept, and as many names and findings as the text has.
_REPORTED = 1000
_LISTED = 20


@dataclass(frozen=True)
class VerifyFinding:
    """A module that failed, or something that contradicts something else.

    Attributes
    ----------
    module : str
        Kind of module: "footer", "footer signature", "column metadata", "data page header", "data page", "dictionary
        page header", "dictionary page", "column index", "offset index", "Bloom filter header", "Bloom filter bitset".
        What is no module: "column key" (it could not be unwrapped), "column chunk", "row group".
    error : str
        Name of the exception's class; "" for a contradiction.
    message : str
        What is wrong, with the names of all that it concerns.
    row_group : int or None
        Ordinal, counted from 0.
    path : tuple of str or None
        The column.
    page : int or None
        Ordinal of a data page in its column chunk, counted from 0.
    offset : int or None
        Where in the file the module begins, in bytes; of a page's body, where the body begins.
    unchecked : int
        Bytes of pages that could not be checked because of it.
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
        """What JSON can hold of it: everything."""
        names = ("module", "error", "message", "row_group", "column", "page", "offset", "unchecked")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        where = "" if self.offset is None else f" (offset {self.offset})"
        behind = f"; {self.unchecked} bytes of pages could not be checked" if self.unchecked else ""
        return f"{self.message}{where}{behind}"


@dataclass
class ColumnVerification:
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
        """What JSON can hold of it: everything."""
        names = ("column", "protection", "modules", "pages", "failures", "problems", "missing_key")
        return {name: getattr(self, name) for name in names}


@dataclass
class VerifyReport:
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

    @property
    def ok(self) -> bool:
        """Whether nothing failed, and no key was missing (or that was allowed). Problems do not count."""
        return self.failure_count == 0 and (self.missing_allowed or not (self.missing_keys or self.footer_key_missing))

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
        """What JSON can hold of it: everything."""
        found: dict[str, Any] = {"ok": self.ok}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, list):
                value = [each.to_dict() for each in value]
            found[name] = dict(value) if isinstance(value, dict) else value
        return found

    def summary(self) -> str:
        """The report as text, a few lines if all is well."""
        lines = [f"{self.name or 'file'}: {'ok' if self.ok else 'NOT OK'}{self._counted_faults()}"]
        lines.append(f"footer: {self._footer_text()}")
        lines.append(f"authenticated: {_counts(self.modules) or 'nothing'}")
        lines.append(f"checked: {self.bytes} of {self.size} bytes")
        pages = {kind: count for kind, count in self.unauthenticated.items() if kind != SIGNATURE}
        if pages:
            lines.append(
                f"NOT authenticated: {_counts(pages)}. Pages of AES_GCM_CTR_V1 carry no tag: changes of their contents "
                "cannot be noticed"
            )
        if self.plaintext_levels:
            lines.append(
                f"NOT authenticated: the levels of {_count(self.plaintext_levels, 'version 2 page')}, which lie in "
                "plaintext before the module as in parquet-java: which values are null, and where lists end"
            )
        if self.plaintext_pages:
            lines.append(f"not encrypted: {_count(self.plaintext_pages, 'page')}, only their structure was checked")
        if pages or self.plaintext_pages:
            lines.append(f"CRC checked of {_count(self.checksums, 'page')} without a tag")
        if self.missing_keys:
            lines.append(f"not checked for want of a key: {_listed(sorted(self.missing_keys))}")
        if self.unchecked_bytes:
            lines.append(f"not checked: {self.unchecked_bytes} bytes of pages")
        for title, findings, count in (
            ("failed", self.failures, self.failure_count),
            ("problem", self.problems, self.problem_count),
        ):
            lines += [f"{title}: {each}" for each in findings[:_LISTED]]
            if count > _LISTED:
                lines.append(f"{title}: {count - _LISTED} more")
        return "\n".join(lines)

    __str__ = summary

    def _counted_faults(self) -> str:
        parts = []
        if self.failure_count:
            parts.append(f"{self.failure_count} failed")
        missing = len(self.missing_keys) + self.footer_key_missing
        if missing:
            parts.append(_count(missing, "key") + " missing")
        if self.problem_count:
            parts.append(_count(self.problem_count, "problem"))
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
            return f"{how}, signature not verified, as check_footer_integrity=False says"
        return f"{how}, signature NOT valid"


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in counts.items())


def _listed(names: list[str]) -> str:
    rest = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")
