"""A second reader of Iceberg tables: the crate iceberg, built once into the cache of the servers."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from tests.servers._install import installed, run, tool

_PROJECT = Path(__file__).parent / "rust"
_NAME = "iceberg-reader"
_SECONDS = 600.0


class RustFailure(RuntimeError):
    """The crate did not read a table; what it said."""


def install() -> Path:
    """Return the path of the command, built first if need be.

    Raises
    ------
    MissingServerError
        Cargo is missing, or the build failed.
    """

    def build(target: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="ags1-cargo-") as scratch:
            options = ("--quiet", "--locked", "--jobs", "2", "--manifest-path", _PROJECT / "Cargo.toml")
            run([tool("cargo"), "build", *options, "--target-dir", scratch])
            shutil.copy2(Path(scratch) / "debug" / _NAME, target)

    parts = b"".join((_PROJECT / name).read_bytes() for name in ("Cargo.toml", "Cargo.lock", "src/main.rs"))
    return installed(_NAME, hashlib.sha256(parts).hexdigest()[:16], build) / _NAME


def rows(command: Path, mode: str, metadata: Path, keys: Mapping[str, bytes]) -> pa.Table:
    """Rows of a table's current snapshot.

    Parameters
    ----------
    mode : {"scan", "files"}
        The crate's own scan; or its manifests, with all rows of the files that they name.
    keys
        The master keys.

    Raises
    ------
    RustFailure
        It cannot be read.
    """
    given = [f"{name}={key.hex()}" for name, key in keys.items()]
    done = subprocess.run(
        [command, mode, metadata, *given], stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
    )
    if done.returncode != 0:
        raise RustFailure(done.stderr.decode("utf-8", "replace"))
    return pa.ipc.open_stream(done.stdout).read_all() if done.stdout else pa.table({})
