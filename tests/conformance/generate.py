"""Write ``tests/vectors``: run ``python -m tests.conformance.generate`` after a change of a case or the reference.

What it writes depends on nothing but the cases beside this file, the reference, and the tables and the plaintext
Parquet files in ``tests/vectors``, which ``make_tables.py`` and ``parquet_cases.py`` make anew when asked. Every case
is run through the reference before it is written, so a stated outcome that the reference does not have stops the run.
The ``java`` lines state what ``interop/test_iceberg_java.py`` then checks against Iceberg's own classes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from tests import reference
from tests.conformance import coverage, metadata_cases, parquet_cases, stream_cases, table_cases, wrap_cases
from tests.conformance.cases import Case, java_behaviour
from tests.conformance.loader import DIRECTORY
from tests.conformance.threats import threat_of

FORMAT_VERSION = 2
Fields = dict[str, Any]


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()


def _outcome(case: Case, stream: bytes) -> tuple[str, bytes | None]:
    try:
        return "success", reference.decrypt(stream, case.key, case.aad_prefix or b"", case.length)
    except reference.ReferenceFailure as failure:
        return failure.outcome, None


def _head(name: str, comment: str, expect: str, java: str, group: str) -> Fields:
    head = {"name": name, "comment": comment, "expect": expect}
    if (threat := threat_of(group, name, expect)) is not None:
        head["threat"] = threat
    return {**head, "java": java}


def stream_files() -> Iterator[tuple[Fields, bytes | None]]:
    """Every case of a stream, and the stream's bytes where they are a file."""
    for case in stream_cases.cases():
        stream = case.stream()
        found, plaintext = _outcome(case, stream)
        if found != case.expect or plaintext != case.plaintext:
            raise SystemExit(f"{case.name}: the reference says {found}, the vector {case.expect}")
        block_length = int.from_bytes(stream[4:8], "little") if len(stream) >= reference.HEADER_LENGTH else None
        java = case.java or java_behaviour(case, block_length)
        fields = _head(case.name, case.comment, case.expect, java, "streams")
        fields["key"] = case.key.hex()
        fields["aad_prefix"] = _hex(case.aad_prefix)
        fields["block_length"] = block_length
        fields["length"] = case.length
        fields["stream_length"] = len(stream)
        fields["stream_sha256"] = hashlib.sha256(stream).hexdigest()
        if plaintext is not None:
            fields["plaintext_length"] = len(plaintext)
            fields["plaintext_sha256"] = hashlib.sha256(plaintext).hexdigest()
            if not case.patterned:
                fields["plaintext"] = plaintext.hex()
        if case.base is None:
            fields["file"] = f"streams/{case.name}.ags1"
            yield fields, stream
            continue
        fields["base"] = {
            "key": case.base.key.hex(),
            "aad_prefix": _hex(case.base.aad_prefix),
            "block_length": case.base.block_length,
            "plaintext_length": case.base.size,
        }
        fields["parts"] = [list(part) if isinstance(part, tuple) else part.hex() for part in case.parts]
        yield fields, None


def _key_metadata() -> Iterator[Fields]:
    for case in metadata_cases.cases():
        try:
            found, decoded = "success", reference.decode_key_metadata(case.encoded)
        except reference.ReferenceFailure as failure:
            found, decoded = failure.outcome, None
        if found != case.expect or decoded != case.fields:
            raise SystemExit(f"{case.name}: the reference says {found}, the vector {case.expect}")
        fields = _head(case.name, case.comment, case.expect, case.java, "key_metadata")
        fields["encoded"] = case.encoded.hex()
        if decoded is not None:
            forms = {reference.encode_key_metadata(decoded): 3}
            if decoded.file_length is None:
                forms[reference.encode_key_metadata(decoded, fields=2)] = 2
            fields["key"] = decoded.encryption_key.hex()
            fields["aad_prefix"] = _hex(decoded.aad_prefix)
            fields["file_length"] = decoded.file_length
            fields["canonical"] = forms.get(case.encoded)
        yield fields


def _wrapped_keys() -> Iterator[Fields]:
    for case in wrap_cases.cases():
        found = wrap_cases.opened(case)
        if found != (case.expect, case.metadata):
            raise SystemExit(f"{case.name}: the reference says {found[0]}, the vector {case.expect}")
        fields = _head(case.name, case.comment, case.expect, case.java, "wrapped_keys")
        fields |= {"master_key": case.master.hex(), "wrapped_kek": case.wrapped_kek.hex(), "kek": case.kek.hex()}
        fields |= {"key_timestamp": case.timestamp, "entry": case.entry.hex()}
        if case.metadata is not None:
            fields["key_metadata"] = case.metadata.hex()
        yield fields


def _document(group: str, cases: Iterable[Fields]) -> bytes:
    found = list(cases)
    names = [case["name"] for case in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise SystemExit(f"{group}: two cases are called {', '.join(sorted(twice))}")
    document = {"version": FORMAT_VERSION, "group": group, "cases": found}
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def render_all() -> dict[str, bytes]:
    """Return every generated file by its path below ``tests/vectors``."""
    files: dict[str, bytes] = {}
    streams = []
    for fields, stream in stream_files():
        streams.append(fields)
        if stream is not None:
            files[fields["file"]] = stream
    parquet, parquet_files = parquet_cases.cases()
    files |= parquet_files
    groups = {
        "streams": streams,
        "key_metadata": list(_key_metadata()),
        "wrapped_keys": list(_wrapped_keys()),
        "parquet": parquet,
        "tables": table_cases.cases(),
    }
    files |= {f"{group}.json": _document(group, cases) for group, cases in groups.items()}
    files["COVERAGE.md"] = coverage.render({group: [case["name"] for case in cases] for group, cases in groups.items()})
    return files


def main() -> None:
    """Write every file, and remove streams and Parquet files that are no longer made."""
    files = render_all()
    for folder, suffix in (("streams", ".ags1"), ("parquet", ".encrypted")):
        (DIRECTORY / folder).mkdir(exist_ok=True)
        for path in (DIRECTORY / folder).glob(f"*{suffix}"):
            if f"{folder}/{path.name}" not in files:
                path.unlink()
    for name, data in files.items():
        (DIRECTORY / name).write_bytes(data)
    print(f"{len(files)} files")


if __name__ == "__main__":
    main()
