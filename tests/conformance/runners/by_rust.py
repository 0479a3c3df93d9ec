"""The cases through iceberg-rust: streams, key metadata, and tables by its keys and manifests and the crate parquet."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from tests.conformance import loader
from tests.conformance.outcomes import Fields, Implementation, NotRead, Reader
from tests.conformance.table_cases import Placed
from tests.interop import rust_peer

VERSION = "0.10.1"


class _Peer:
    """The running command; one question at a time."""

    def __init__(self, questions: IO[str], answers: IO[str]) -> None:
        self._questions, self._answers = questions, answers

    def ask(self, *fields: str) -> list[str]:
        """Return the fields of an answer. RustFailure: it says an error."""
        self._questions.write("\t".join(fields) + "\n")
        self._questions.flush()
        status, *answer = self._answers.readline().rstrip("\n").split("\t")
        if status != "ok":
            raise rust_peer.RustFailure(" ".join(answer))
        return answer


@contextlib.contextmanager
def _readers() -> Iterator[Mapping[str, Reader]]:
    command = rust_peer.install()
    with (
        tempfile.TemporaryDirectory(prefix="ags1-") as folder,
        subprocess.Popen([command, "ask"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        peer = _Peer(process.stdin, process.stdout)

        def stream(case: Fields) -> bytes:
            vector = loader.StreamVector(case["name"], case)
            if vector.length is not None and vector.length != vector.stream_length:
                raise NotRead("its reader is told no length")
            source, target = Path(folder, "stream"), Path(folder, "plaintext")
            source.write_bytes(vector.stream())
            peer.ask("stream", str(source), str(target), vector.key.hex(), (vector.aad_prefix or b"").hex() or "-")
            return target.read_bytes()

        def key_metadata(case: Fields) -> tuple[bytes, bytes | None, int | None]:
            key, prefix, length = peer.ask("key-metadata", case["encoded"])
            return (
                bytes.fromhex(key),
                None if prefix == "-" else bytes.fromhex(prefix),
                None if length == "-" else int(length),
            )

        def table(case: Fields) -> object:
            if case["table"].startswith("delete"):
                raise NotRead("the crate refuses deletion vectors")
            masters = {name: bytes.fromhex(key) for name, key in case["master_keys"].items()}
            with Placed(case) as metadata:
                return rust_peer.rows(command, "files", metadata, masters).sort_by("id").to_pylist()

        yield {"streams": stream, "key_metadata": key_metadata, "tables": table}
        process.stdin.close()


ICEBERG_RUST = Implementation(lambda: f"iceberg-rust {VERSION}", _readers)
