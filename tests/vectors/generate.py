"""Write the test vectors; run ``python -m tests.vectors.generate`` after a change of a case or the reference.

The output depends on nothing but the cases beside this file and the reference. Every vector is run through
the reference before it is written, so a stated outcome that the reference does not have stops the run. The
``java`` lines state what ``interop/test_iceberg_java.py`` then checks against Iceberg's own classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import reference
from tests.vectors import metadata_cases, stream_cases, wrap_cases
from tests.vectors.cases import Case, java_behaviour

DIRECTORY = Path(__file__).parent
HEX_BYTES_PER_LINE = 32
FORMAT_VERSION = "1"


@dataclass(frozen=True)
class Written:
    """One file to write, by its path relative to this directory."""

    path: str
    text: str


def bytes_field(value: bytes | None) -> str:
    """Render a byte string for a header line."""
    if value is None:
        return "none"
    return value.hex() or "empty"


def number_field(value: int | None) -> str:
    """Render an optional number for a header line."""
    return "none" if value is None else str(value)


def outcome(case: Case, stream: bytes) -> tuple[str, bytes | None]:
    """Return what the reference makes of `stream`: the outcome's word and the plaintext."""
    try:
        return "success", reference.decrypt(stream, case.key, case.aad_prefix or b"", case.length)
    except reference.ReferenceFailure as failure:
        return failure.outcome, None


def render_stream(case: Case) -> str:
    """Render a stream vector's file."""
    stream = case.stream()
    found, plaintext = outcome(case, stream)
    if found != case.expect or plaintext != case.plaintext:
        raise SystemExit(f"{case.name}: the reference says {found}, the vector {case.expect}")
    block_length = int.from_bytes(stream[4:8], "little") if len(stream) >= reference.HEADER_LENGTH else None
    header = {
        "ags1-vector": FORMAT_VERSION,
        "comment": case.comment,
        "expect": case.expect,
        "java": case.java or java_behaviour(case, block_length),
        "key": case.key.hex(),
        "aad-prefix": bytes_field(case.aad_prefix),
        "block-length": number_field(block_length),
        "length": number_field(case.length),
        "stream-length": str(len(stream)),
        "stream-sha256": hashlib.sha256(stream).hexdigest(),
    }
    if plaintext is not None:
        header["plaintext-length"] = str(len(plaintext))
        header["plaintext-sha256"] = hashlib.sha256(plaintext).hexdigest()
        header["plaintext"] = "pattern" if case.patterned else bytes_field(plaintext)
    if case.base is not None:
        header["base-key"] = case.base.key.hex()
        header["base-aad-prefix"] = bytes_field(case.base.aad_prefix)
        header["base-block-length"] = str(case.base.block_length)
        header["base-plaintext-length"] = str(case.base.size)
    lines = [f"{name}: {value}" for name, value in header.items()]
    return "\n".join([*lines, "", *body_lines(case)]) + "\n"


def body_lines(case: Case) -> Iterator[str]:
    """Render the parts of a stream: ranges of the base stream, and hexadecimal lines."""
    for part in case.parts:
        if isinstance(part, tuple):
            yield f"base {part[0]} {part[1]}"
            continue
        for start in range(0, len(part), HEX_BYTES_PER_LINE):
            yield part[start : start + HEX_BYTES_PER_LINE].hex()


def render_key_metadata() -> str:
    """Render the file of all key metadata vectors."""
    records = []
    for case in metadata_cases.cases():
        try:
            found, fields = "success", reference.decode_key_metadata(case.encoded)
        except reference.ReferenceFailure as failure:
            found, fields = failure.outcome, None
        if found != case.expect or fields != case.fields:
            raise SystemExit(f"{case.name}: the reference says {found}, the vector {case.expect}")
        header = {
            "name": case.name,
            "comment": case.comment,
            "expect": case.expect,
            "java": case.java,
            "encoded": bytes_field(case.encoded),
        }
        if fields is not None:
            forms = {reference.encode_key_metadata(fields): "three-fields"}
            if fields.file_length is None:
                forms[reference.encode_key_metadata(fields, fields=2)] = "two-fields"
            header["key"] = fields.encryption_key.hex()
            header["aad-prefix"] = bytes_field(fields.aad_prefix)
            header["file-length"] = number_field(fields.file_length)
            header["canonical"] = forms.get(case.encoded, "no")
        records.append("\n".join(f"{name}: {value}" for name, value in header.items()))
    return "\n\n".join(records) + "\n"


def render_wrapped_keys() -> str:
    """Render the file of all vectors of wrapped keys."""
    records = []
    for case in wrap_cases.cases():
        found = wrap_cases.opened(case)
        if found != (case.expect, case.metadata):
            raise SystemExit(f"{case.name}: the reference says {found[0]}, the vector {case.expect}")
        header = {
            "name": case.name,
            "comment": case.comment,
            "expect": case.expect,
            "java": case.java,
            "master-key": case.master.hex(),
            "wrapped-kek": case.wrapped_kek.hex(),
            "kek": case.kek.hex(),
            "key-timestamp": text_field(case.timestamp),
            "entry": case.entry.hex(),
        }
        if case.metadata is not None:
            header["key-metadata"] = case.metadata.hex()
        records.append("\n".join(f"{name}: {value}" for name, value in header.items()))
    return "\n\n".join(records) + "\n"


def text_field(value: str | None) -> str:
    """Render a text for a header line: its UTF-8 in hexadecimal, since it may have spaces at its ends."""
    return bytes_field(None if value is None else value.encode())


def render_all() -> Iterator[Written]:
    """Render every file."""
    names = set()
    for case in stream_cases.cases():
        if case.name in names:
            raise SystemExit(f"two vectors are called {case.name}")
        names.add(case.name)
        yield Written(f"streams/{case.name}.vector", render_stream(case))
    yield Written("key_metadata.vector", render_key_metadata())
    yield Written("wrapped_keys.vector", render_wrapped_keys())


def main() -> None:
    """Write every file, and remove vectors that are no longer made."""
    written = {DIRECTORY / each.path: each.text for each in render_all()}
    for stale in set(DIRECTORY.glob("streams/*.vector")) - written.keys():
        stale.unlink()
    (DIRECTORY / "streams").mkdir(exist_ok=True)
    for path, text in written.items():
        path.write_text(text, encoding="ascii")
    print(f"{len(written)} files")


if __name__ == "__main__":
    main()
