"""Object stores over a link of 20 ms and 90 MB/s a connection, beside obstore, s5cmd and PyArrow on the same bytes.

The server is MinIO on loopback, behind a proxy of our own that shapes latency and rate. All of it shares the machine's
cores with what is measured, so the ratios count and not the figures: each peer moves the same bytes in the same run.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import parquet
from ags1.bench import Run, Subject
from bench import settings, storage_peers
from bench.conftest import Record
from bench.measure import figure

KEY = bytes(range(32))
LATENCY_MILLISECONDS, MEGABYTES_PER_SECOND = 20.0, 90.0
CONDITIONS = f"{LATENCY_MILLISECONDS:.0f} ms, {MEGABYTES_PER_SECOND:.0f} MB/s a connection"


@pytest.fixture(scope="module")
def link(sizes: settings.Settings) -> Iterator[storage_peers.Link]:
    from tests.servers._install import MissingServerError

    try:
        context = storage_peers.link()
        made = context.__enter__()
    except MissingServerError as error:
        pytest.skip(str(error))
    try:
        made.shape(LATENCY_MILLISECONDS, MEGABYTES_PER_SECOND)
        yield made
    finally:
        context.__exit__(None, None, None)


@pytest.fixture(scope="module")
def lake(link: storage_peers.Link, sizes: settings.Settings, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A stream, a plain object of the same length, and a plain file."""
    directory = tmp_path_factory.mktemp("lake")
    nbytes = 32 << 20 if sizes.quick else 256 << 20
    plain = directory / "plain"
    with open(plain, "wb") as file:
        file.writelines(os.urandom(1 << 20) for _ in range(nbytes >> 20))
    options = link.direct.storage_options()
    ags1.encrypt_file(plain, "s3://lake/stream.ags1", KEY, storage_options=options)
    store = link.direct.store("lake")
    storage_peers.obstore_put(store, "plain", plain.read_bytes())
    return nbytes, plain, directory


def test_storage_read(lake: Any, link: storage_peers.Link, interleave: Callable[..., Run], record: Record) -> None:
    nbytes = lake[0]
    options, store = link.server.storage_options(), link.server.store("lake")
    memory = bytearray(1 << 20)

    def ours() -> None:
        with ags1.open("s3://lake/stream.ags1", key=KEY, storage_options=options) as reader:
            while reader.readinto(memory):
                pass

    plain, opened = "obstore, 16 ranges of 8 MiB", "obstore, 16 ranges of 8 MiB, each decrypted and dropped"
    alike = "obstore, 16 ranges of 4 MiB, each decrypted and dropped"
    run = interleave(
        {
            "ags1": ours,
            plain: lambda: storage_peers.obstore_get(store, "plain"),
            opened: lambda: storage_peers.obstore_get_and_open(store, "stream.ags1", KEY),
            alike: lambda: storage_peers.obstore_get_and_open(store, "stream.ags1", KEY, blocks=4),
        }
    )
    question = f"read an object of {nbytes >> 20} MiB from beginning to end, {CONDITIONS}"
    note = "server, proxy and reader share the cores; 16 ranges of 8 MiB hold twice the 64 MiB that a stream may hold"
    record(
        run,
        figure(run, question, alike, nbytes=nbytes, kind="floor", target=0.9),
        figure(run, question, opened, nbytes=nbytes, kind="peer", note=note),
        figure(run, question, plain, nbytes=nbytes, kind="peer", note=note),
    )


@pytest.mark.parametrize("direction", ["store to disk", "disk to store", "store to store"])
def test_storage_files(
    direction: str, lake: Any, link: storage_peers.Link, interleave: Callable[..., Run], record: Record
) -> None:
    nbytes, plain, directory = lake
    options, store = link.server.storage_options(), link.server.store("lake")
    stream, out = "s3://lake/stream.ags1", directory / "out"
    if direction == "store to disk":
        works: dict[str, Callable[[], Any]] = {
            "ags1": lambda: ags1.decrypt_file(stream, out, KEY, storage_options=options),
            "s5cmd": lambda: storage_peers.s5cmd_get(link.server, "plain", directory / "s5cmd"),
        }
        peer, target = "s5cmd", 1.0
    elif direction == "disk to store":
        data = plain.read_bytes()
        works = {
            "ags1": lambda: ags1.encrypt_file(plain, "s3://lake/new.ags1", KEY, storage_options=options),
            "s5cmd": lambda: storage_peers.s5cmd_put(link.server, plain, "new"),
            "obstore": lambda: storage_peers.obstore_put(store, "new-2", data),
        }
        peer, target = "s5cmd", 1.0
    else:
        works = {
            "ags1": lambda: ags1.encrypt_file("s3://lake/plain", "s3://lake/new.ags1", KEY, storage_options=options),
            "obstore": lambda: storage_peers.obstore_copy(store, "plain", store, "copy"),
        }
        peer, target = "obstore", 0.85
    run = interleave(works)
    question = (
        f"{'decrypt' if direction == 'store to disk' else 'encrypt'} {nbytes >> 20} MiB, {direction}, {CONDITIONS}"
    )
    figures = [figure(run, question, peer, nbytes=nbytes, target=target)]
    figures += [figure(run, question, name, kind="peer", nbytes=nbytes) for name in works if name not in ("ags1", peer)]
    record(run, *figures)


@pytest.mark.parametrize("direction", ["disk to store", "store to disk"])
def test_storage_small_objects(
    direction: str,
    link: storage_peers.Link,
    sizes: settings.Settings,
    interleave: Callable[..., Run],
    record: Record,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """A dataset of them beside s5cmd, which copies them as they are."""
    from ags1 import dataset
    from ags1.kms import MemoryKms

    count = 500 if sizes.quick else 2000
    directory, kms = tmp_path_factory.mktemp("small"), MemoryKms({"lake": KEY})
    plain, options = storage_peers.small_files(directory / "plain", count), link.server.storage_options()
    vaults, target = (f"s3://lake/vault-{number}" for number in itertools.count()), directory / "out"

    def put() -> None:
        dataset.encrypt(plain, next(vaults), kms, "lake", storage_options=options).close()

    def get() -> None:
        with dataset.open("s3://lake/vault", kms, storage_options=options) as opened:
            opened.decrypt(target)

    def away() -> None:
        shutil.rmtree(target, ignore_errors=True)

    def put_by_peer() -> None:
        storage_peers.s5cmd_put(link.server, plain, "small/")

    def get_by_peer() -> None:
        storage_peers.s5cmd_get(link.server, "small/*", target)

    work, peer = put, put_by_peer
    if direction == "store to disk":
        direct = link.direct.storage_options()
        dataset.encrypt(plain, "s3://lake/vault", kms, "lake", storage_options=direct).close()
        storage_peers.s5cmd_put(link.direct, plain, "small/")
        work, peer = get, get_by_peer
    run = interleave({"ags1": Subject(work, after=away), "s5cmd": Subject(peer, after=away)})
    word = "encrypt" if direction == "disk to store" else "decrypt"
    question = f"{word} {count:,} objects of 4 KiB, {direction}, {CONDITIONS}"
    record(run, figure(run, question, "s5cmd", nbytes=count * 4096, target=0.8))


@pytest.mark.parametrize("columns", ["all columns", "2 of 8 columns"])
def test_storage_parquet(
    columns: str, lake: Any, link: storage_peers.Link, interleave: Callable[..., Run], record: Record
) -> None:
    np, pa, pq = (pytest.importorskip(name) for name in ("numpy", "pyarrow", "pyarrow.parquet"))
    directory: Path = lake[2]
    rows = lake[0] // 64
    chooser = np.random.default_rng(1)
    path = directory / "table.parquet"
    if not path.exists():
        table = pa.table({f"c{index}": chooser.integers(0, 1 << 60, rows) for index in range(8)})
        pq.write_table(table, path, compression="none", use_dictionary=False, row_group_size=max(1, rows // 8))
        direct = link.direct.store("lake")
        storage_peers.obstore_put(direct, "table.parquet", path.read_bytes())
        parquet.encrypt_file(path, directory / "table.encrypted", parquet.EncryptionConfig(KEY))
        storage_peers.obstore_put(direct, "table.encrypted", (directory / "table.encrypted").read_bytes())
    wanted = None if columns == "all columns" else ["c1", "c6"]
    file_system = storage_peers.pyarrow_filesystem(link.server)
    decryption = parquet.DecryptionConfig(KEY)
    environment = link.server.environment()
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        run = interleave(
            {
                "ags1": lambda: parquet.read_table("s3://lake/table.encrypted", decryption, wanted),
                "PyArrow, plaintext": lambda: storage_peers.pyarrow_read_table(file_system, "table.parquet", wanted),
            }
        )
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    question = f"read_table through the view, {columns} of {path.stat().st_size >> 20} MiB, {CONDITIONS}"
    record(run, figure(run, question, "PyArrow, plaintext", measure="time", target=1.2))
