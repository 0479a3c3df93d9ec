"""Names of a table's metadata files: those that any writer has used, and what looks like one and is none of them.

00007-UUID.metadata.json       of a catalog; Hadoop catalogs have v7.metadata.json
00007-UUID.gz.metadata.json    compressed; others write .gzip.metadata.json
00007-UUID.metadata.json.gz    compressed, before Iceberg 0.8
UUID.metadata.json             of a Hadoop catalog, before its commit renames the file
"""

from __future__ import annotations

import re
from collections.abc import Iterable

METADATA_SUFFIX, VERSION_HINT = ".metadata.json", "version-hint.text"
"""What names of metadata files end with; the file that says which is the newest, where there is no catalog."""

_KIND = re.compile(r"[^./][^/]*\.metadata\.json(?:\.[^/]*)?")
_NUMBER = re.compile(r"v?(\d{1,18})[-.]", re.ASCII)
_KNOWN = re.compile(r"(?:v\d+|\d+-[^/]*?)(?:(?:\.gz(?:ip)?)?\.metadata\.json|\.metadata\.json\.gz)", re.ASCII)
# A commit that has not been made has no number: its name may begin with digits.
_UNCOMMITTED = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.")


def is_metadata_file(location: str) -> bool:
    """Return whether a name is that of a metadata file, also one in a form that is not known."""
    return _KIND.fullmatch(location.rpartition("/")[2]) is not None


def is_compressed(location: str) -> bool:
    """Return whether the name of a metadata file says that it is compressed by gzip."""
    return location.endswith((".gz.metadata.json", ".gzip.metadata.json", ".metadata.json.gz"))


def version_of(location: str) -> int | None:
    """Return the number in a metadata file's name; None if it has none, or a form that is not known."""
    name = location.rpartition("/")[2]
    return number_in(name) if _KNOWN.fullmatch(name) else None


def number_in(name: str) -> int | None:
    """Return the number that the name of a metadata file, or a version hint, begins with; None if it has none."""
    found = _NUMBER.match(f"{name}.")
    return None if found is None or _UNCOMMITTED.match(name) else int(found[1])


def not_understood(names: Iterable[str], version: int) -> list[str]:
    """Return the metadata files in a form that is not known, but for those with a number below `version`."""
    found = [each for each in names if is_metadata_file(each) and version_of(each) is None]
    return sorted(each for each in found if (number := number_in(each)) is not None and number >= version)
