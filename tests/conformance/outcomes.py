"""What a reader of a case must return, and whether an implementation's reader does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tests.conformance import loader
from tests.conformance.loader import DIRECTORY

GROUPS = {
    "streams": "AGS1 streams",
    "key_metadata": "key metadata",
    "wrapped_keys": "wrapped keys",
    "parquet": "Parquet",
    "tables": "tables",
}
Fields = dict[str, Any]
Reader = Callable[[Fields], Any]
"""Returns what a case holds, in the form of `expected`, or raises."""


class NotRead(Exception):
    """The implementation has no reader for this, or none that can be asked in this way; the text says which."""


@dataclass(frozen=True)
class Implementation:
    """An implementation of some of the formats.

    Attributes
    ----------
    name
        As it stands in the pass table, with its version.
    readers
        Opens its readers by the group of cases that they read.
    """

    name: Callable[[], str]
    readers: Callable[[], AbstractContextManager[Mapping[str, Reader]]]


@dataclass(frozen=True)
class Result:
    """What an implementation did with a case: "passed", "failed" or "not read", and what it said."""

    group: str
    case: str
    outcome: str
    said: str = ""


def expected(group: str, case: Fields) -> Any:
    """Return the content of a good case."""
    if group == "streams":
        return loader.StreamVector(case["name"], case).plaintext()
    if group == "key_metadata":
        vector = loader.KeyMetadataVector(case["name"], case)
        metadata = vector.key_metadata
        return metadata.encryption_key, metadata.aad_prefix, metadata.file_length
    if group == "wrapped_keys":
        return bytes.fromhex(case["key_metadata"])
    stored = json.loads((DIRECTORY / case["rows"]).read_text())
    return stored if group == "parquet" else stored["rows"]


def run(implementation: Implementation, groups: Iterable[str] = GROUPS) -> Iterator[Result]:
    """Give an implementation every case of the groups."""
    with implementation.readers() as readers:
        for group in groups:
            for case in loader.load(group):
                reader = readers.get(group)
                if reader is None:
                    yield Result(group, case["name"], "not read")
                else:
                    yield _judged(group, case, reader)


def _judged(group: str, case: Fields, reader: Reader) -> Result:
    good = case["expect"] == "success"
    try:
        content = reader(case)
    except NotRead as reason:
        return Result(group, case["name"], "not read", str(reason))
    except Exception as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        return Result(group, case["name"], "failed" if good else "passed", said)
    if not good:
        return Result(group, case["name"], "failed", "returns content, and should refuse")
    if content == expected(group, case):
        return Result(group, case["name"], "passed")
    return Result(group, case["name"], "failed", "returns other content")
