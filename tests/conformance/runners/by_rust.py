"""The tables through iceberg-rust: its keys, manifest lists and manifests, and the crate parquet for data files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from tests.conformance.outcomes import Fields, Implementation, NotRead, Reader
from tests.conformance.table_cases import Placed
from tests.interop import rust_peer

VERSION = "0.10.1"


@contextlib.contextmanager
def _readers() -> Iterator[Mapping[str, Reader]]:
    command = rust_peer.install()

    def table(case: Fields) -> object:
        if case["table"] == "deleted":
            raise NotRead("the crate refuses deletion vectors")
        masters = {name: bytes.fromhex(key) for name, key in case["master_keys"].items()}
        with Placed(case) as metadata:
            return rust_peer.rows(command, "files", metadata, masters).sort_by("id").to_pylist()

    yield {"tables": table}


ICEBERG_RUST = Implementation(lambda: f"iceberg-rust {VERSION}", _readers)
