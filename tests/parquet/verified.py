"""What the tests of verify_file ask: encrypted files with their keys, and the findings of a report by kind."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ags1.parquet import DecryptionConfig
from ags1.support.reports import Finding, VerifyReport
from tests.parquet import corpus
from tests.parquet.reference import open_encrypted
from tests.parquet.reference_model import MODULE_TYPES, File, Module
from tests.parquet.reference_writer import Encryption, encrypt_reference

FOOTER_KEY = b"footer key, 24 bytes ..."
NAME_KEY = b"column key, 32 bytes ..........."
Y_KEY = b"another, 16 byte"
COLUMN_KEYS = {"name": NAME_KEY, "struct.y": Y_KEY}
OTHER_KEY = b"not the right key, of 32 bytes.."
KEYS = DecryptionConfig(FOOTER_KEY, column_keys=COLUMN_KEYS)
PLAIN = "everything-v1"
DATA_KINDS = sorted(set(MODULE_TYPES) - {"footer", "footer signature"})


def encrypted(name: str = PLAIN, **options: Any) -> bytes:
    options = {"column_keys": COLUMN_KEYS, "encrypt_all": True, **options}
    return encrypt_reference(corpus.build(name), Encryption(FOOTER_KEY, **options))


def opened(data: bytes) -> File:
    return open_encrypted(data, FOOTER_KEY, COLUMN_KEYS, strict=False)


def counted(report: VerifyReport) -> Counter[str]:
    """The modules by kind, and the pages without a tag."""
    return sum(
        (Counter(each.details) for each in report.having("pages-without-tags")), Counter(report.facts["modules"])
    )


def failures(report: VerifyReport) -> list[Finding]:
    """The modules that failed."""
    return report.having("damaged")


def modules(findings: list[Finding]) -> list[str]:
    return [each.details["module"] for each in findings]


def contradictions(report: VerifyReport) -> list[Finding]:
    return report.having("contradiction")


def missing_keys(report: VerifyReport) -> list[str]:
    """The columns whose key is missing."""
    return [each.subject for each in report.having("key-missing")]


def places(report: VerifyReport) -> list[tuple[str, int | None, str | None, int | None, int | None]]:
    found = []
    for each in failures(report):
        column = None if each.subject == report.subject else each.subject
        more = (each.details.get(name) for name in ("page", "offset"))
        found.append((each.details["module"], each.details.get("row_group"), column, *more))
    return found


def place_of(file: File, module: Module) -> tuple[str, int | None, str | None, int | None, int | None]:
    """Where a module of the reference must be reported."""
    column = None
    offset: int | None = module.offset
    if module.row_group is not None and module.column is not None:
        chunk = file.row_groups[module.row_group].chunks[module.column]
        column = ".".join(chunk.path)
        if module.kind == "column metadata":
            # It is inside the footer.
            offset = None
        elif module.kind == "data page":
            offset = next(p.offset + p.header_size for p in chunk.data_pages if p.ordinal == module.page)
    return module.kind, module.row_group, column, module.page, offset
