"""What others reach over the link that the benchmarks of storage use, and the link: a server behind a shaping proxy.

The peers do what ags1 does, without the cryptography: obstore with many requests at once, s5cmd (in Go), pyarrow's own
file system of S3. Each function does its work once; bench/storage_peers.py runs them all and prints megabytes a second.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers.proxy import ShapingProxy
from tests.servers.s3 import S3Server

RANGE = 8 << 20
AT_ONCE = 16
# Parts that a put has in flight; obstore's own default is 12.
PARTS_AT_ONCE = 16
BUCKET = "lake"


class Link(NamedTuple):
    """A server, and the way to it that clients take."""

    server: S3Server
    proxy: ShapingProxy
    direct: S3Server

    def shape(self, milliseconds: float, megabytes_per_second: float | None) -> None:
        """Give the link a latency, and each connection a rate; None for no limit."""
        rate = None if megabytes_per_second is None else megabytes_per_second * 1e6
        self.proxy.shape(latency=milliseconds / 1e3, rate=rate)


@contextlib.contextmanager
def link(kind: str = "minio", directory: Path | None = None) -> Iterator[Link]:
    """Start a server with the bucket ``lake`` and a proxy in front of it, for as long as the context lasts.

    Raises
    ------
    MissingServerError
        The server cannot be had here.
    """
    with S3Server.start(directory, kind) as direct:
        direct.make_bucket(BUCKET)
        with ShapingProxy.start(direct.endpoint) as proxy:
            yield Link(direct.through(proxy.endpoint), proxy, direct)


# -- obstore -------------------------------------------------------------------------------------------------


def obstore_get(store: Any, name: str, at_once: int = AT_ONCE, range_bytes: int = RANGE) -> int:
    """Read an object into memory by ranges, `at_once` of them in flight; return how many bytes came.

    A range is dropped when it has come, as by somebody who has decrypted it.
    """
    import obstore

    size = obstore.head(store, name)["size"]

    def fetch(start: int) -> int:
        return len(obstore.get_range(store, name, start=start, end=min(start + range_bytes, size)))

    with ThreadPoolExecutor(at_once) as pool:
        return sum(pool.map(fetch, range(0, size, range_bytes)))


def obstore_get_and_open(store: Any, name: str, key: bytes, at_once: int = AT_ONCE, blocks: int = RANGE >> 20) -> int:
    """As :func:`obstore_get`, of an AGS1 stream whose blocks have 1 MiB: each range is decrypted where it has come."""
    import obstore

    from ags1.core import blocks as native_blocks
    from ags1.core.gcm import Key

    size, stride, shared = obstore.head(store, name)["size"], (1 << 20) + 28, Key(key)

    def fetch(first: int) -> int:
        start = 8 + first * stride
        data = memoryview(obstore.get_range(store, name, start=start, end=min(start + blocks * stride, size)))
        out = bytearray(len(data) - 28 * -(-len(data) // stride))
        native_blocks.open_blocks(data, out, shared, b"", 1 << 20, first, 1, name)
        return len(out)

    with ThreadPoolExecutor(at_once) as pool:
        return sum(pool.map(fetch, range(0, (size - 9) // stride + 1, blocks)))


def obstore_put(store: Any, name: str, data: Any, at_once: int = PARTS_AT_ONCE) -> int:
    """Write an object from memory in parts of 8 MiB, `at_once` of them in flight; return how many bytes it has."""
    import obstore

    obstore.put(store, name, data, use_multipart=True, chunk_size=RANGE, max_concurrency=at_once)
    return len(data)


def obstore_copy(source: Any, name: str, target: Any, new_name: str, at_once: int = AT_ONCE) -> int:
    """Copy an object through this process, ranges and parts in flight at once; return how many bytes it has.

    At most `at_once` ranges are in flight or wait for their turn, and as many parts.
    """
    import obstore

    size = obstore.head(source, name)["size"]

    def fetch(start: int) -> Any:
        return obstore.get_range(source, name, start=start, end=min(start + RANGE, size))

    def parts(pool: ThreadPoolExecutor) -> Iterator[Any]:
        coming: deque[Future[Any]] = deque()
        for start in range(0, size, RANGE):
            coming.append(pool.submit(fetch, start))
            if len(coming) == at_once:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()

    with ThreadPoolExecutor(at_once) as pool:
        obstore.put(target, new_name, parts(pool), use_multipart=True, chunk_size=RANGE, max_concurrency=at_once)
    return int(size)


# -- s5cmd ---------------------------------------------------------------------------------------------------


def s5cmd(server: S3Server, *arguments: str | os.PathLike[str]) -> None:
    """Run s5cmd, found beside this interpreter or on the path.

    Raises
    ------
    subprocess.CalledProcessError
        It failed; the message is on standard error.
    """
    beside = Path(sysconfig.get_path("scripts")) / "s5cmd"
    program = str(beside) if beside.exists() else "s5cmd"
    subprocess.run(
        [program, "--log", "error", *(os.fspath(argument) for argument in arguments)],
        env={**os.environ, **server.environment()},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def s5cmd_get(server: S3Server, name: str, path: Path) -> None:
    """Copy an object to a file, or with a name that ends in ``*`` many to a directory."""
    s5cmd(server, "cp", f"s3://{BUCKET}/{name}", f"{path}/" if name.endswith("*") else path)


def s5cmd_put(server: S3Server, path: Path, name: str) -> None:
    """Copy a file to an object, or with a name that ends in ``/`` a directory's files to many."""
    s5cmd(server, "cp", f"{path}/" if name.endswith("/") else path, f"s3://{BUCKET}/{name}")


# -- pyarrow -------------------------------------------------------------------------------------------------


def pyarrow_filesystem(server: S3Server) -> Any:
    """Return pyarrow's file system of S3."""
    from pyarrow.fs import S3FileSystem

    return S3FileSystem(
        access_key=server.access_key,
        secret_key=server.secret_key,
        region=server.region,
        endpoint_override=server.endpoint.removeprefix("http://"),
        scheme="http",
    )


def pyarrow_read_table(filesystem: Any, name: str, columns: Sequence[str] | None = None) -> Any:
    """Read a Parquet file, all of it or some columns; return the table."""
    import pyarrow.parquet as pq

    return pq.read_table(f"{BUCKET}/{name}", columns=columns, filesystem=filesystem)


def pyarrow_copy(filesystem: Any, path: Path, name: str) -> None:
    """Copy a local file to an object."""
    import pyarrow.fs

    pyarrow.fs.copy_files(
        str(path), f"{BUCKET}/{name}", source_filesystem=pyarrow.fs.LocalFileSystem(), destination_filesystem=filesystem
    )


# -- all of them ---------------------------------------------------------------------------------------------


def small_files(directory: Path, count: int = 10_000, nbytes: int = 4096) -> Path:
    """Make so many files of random bytes in ``directory``, a hundred to a folder, and return it."""
    for number in range(count):
        if number % 100 == 0:
            folder = directory / f"{number // 100:04d}"
            folder.mkdir(parents=True)
        (folder / f"{number % 100:02d}").write_bytes(os.urandom(nbytes))
    return directory


def _seconds(work: Callable[[], Any], rounds: int) -> float:
    """Return the median of so many times."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def main() -> None:
    """Print what the peers reach: ``python -m bench.storage_peers [MILLISECONDS [MEGABYTES-A-SECOND]]``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    milliseconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    rate = float(sys.argv[2]) if len(sys.argv) > 2 else 90.0
    count = 10_000
    size = 256 << 20
    with tempfile.TemporaryDirectory(prefix="ags1-peers-") as scratch, link(directory=Path(scratch) / "s3") as way:
        local = Path(scratch) / "local"
        local.mkdir()
        data = os.urandom(size)
        (local / "big").write_bytes(data)
        table = pa.table({f"c{i}": pa.array(memoryview(data)[i << 25 : (i + 1) << 25].cast("d")) for i in range(8)})
        pq.write_table(table, local / "table.parquet", compression="none", use_dictionary=False)
        trees = small_files(local / "small", count)
        direct = way.direct.store(BUCKET)
        for name in ("big", "table.parquet"):
            with open(local / name, "rb") as file:
                import obstore

                obstore.put(direct, name, file)
        way.shape(milliseconds, rate)
        store, other = way.server.store(BUCKET), way.server.store(BUCKET)
        filesystem = pyarrow_filesystem(way.server)
        columns = ["c1", "c5"]
        works: dict[str, tuple[Callable[[], Any], int, int]] = {
            "obstore get, 16 ranges at once": (lambda: obstore_get(store, "big"), size, 5),
            "obstore put": (lambda: obstore_put(store, "put", data), size, 3),
            "obstore copy, through the client": (lambda: obstore_copy(store, "big", other, "copy"), size, 3),
            "s5cmd get": (lambda: s5cmd_get(way.server, "big", local / "got"), size, 3),
            "s5cmd put": (lambda: s5cmd_put(way.server, local / "big", "put"), size, 3),
            "pyarrow copy to s3": (lambda: pyarrow_copy(filesystem, local / "big", "put"), size, 3),
            "pyarrow read_table": (lambda: pyarrow_read_table(filesystem, "table.parquet"), size, 3),
            "pyarrow read_table, 2 of 8": (
                lambda: pyarrow_read_table(filesystem, "table.parquet", columns),
                size // 4,
                3,
            ),
            f"s5cmd put of {count} files": (lambda: s5cmd_put(way.server, trees, "small/"), count * 4096, 1),
            f"s5cmd get of {count} files": (lambda: s5cmd_get(way.server, "small/*", local / "back"), count * 4096, 1),
        }
        print(f"{milliseconds:g} ms, {rate:g} MB/s a connection; MB/s:")
        for name, (work, nbytes, rounds) in works.items():
            way.proxy.forget()
            seconds = _seconds(work, rounds)
            log = way.proxy.log()
            print(
                f"{name:36} {nbytes / 1e6 / seconds:7.1f}  "
                f"({len(log) / rounds:.0f} requests, at most {log.most_in_flight} at once)",
                flush=True,
            )


if __name__ == "__main__":
    main()
