"""How a dataset does: a file among a million, one more, and ten thousand small ones, beside what the system charges."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import count as counted
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import dataset, kms
from ags1.bench import Run, Subject
from ags1.dataset.entries import SourceIdentity
from ags1.dataset.manifests import ManifestNode
from ags1.dataset.names import new_object_name
from ags1.dataset.pins import Access
from ags1.dataset.runs import Done, RunKeys
from ags1.dataset.transaction import Transaction
from ags1.storage import Location
from bench import processes, settings
from bench.conftest import Record
from bench.measure import figure, memory_figure

MASTER = bytes(range(32))
FILE_BYTES = 4096
MEMORY_TARGET = 64.0


def _client() -> kms.MemoryKms:
    return kms.MemoryKms({"lake": MASTER})


def _path(index: int) -> str:
    return f"year={2000 + index % 27}/month={index % 12 + 1:02}/part-{index:07}.parquet"


# -- a dataset of a million files ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def count(sizes: settings.Settings) -> int:
    return 20_000 if sizes.quick else 1_000_000


def make_manifests(root: Path, client: Any, count: int, made: Callable[[RunKeys, Done], object]) -> None:
    """A dataset whose manifests have many files, of which none is there; `made` is called for each."""
    with Transaction.begin(Access.of(Location(root), client), "encrypt", key_id="lake", durable=False) as transaction:
        run = transaction.run
        run.begin()
        for path in sorted((_path(index) for index in range(count)), key=os.fsencode):
            source = SourceIdentity(FILE_BYTES, 1_700_000_000_000_000_000, 1_700_000_000_000_000_000, 1 << 32)
            done = Done(path, ((new_object_name(path, run.id), FILE_BYTES),), source, 0o644)
            transaction.put(transaction.entry(done))
            made(run.keys, done)
        transaction.commit()


@pytest.fixture(scope="module")
def large(directory: Path, count: int) -> Iterator[Path]:
    """A dataset whose manifests have many files; one of them, in the middle, is there."""
    root, one = directory / "million", _path(count // 2)

    def made(keys: RunKeys, done: Done) -> None:
        if done.path == one:
            ((name, _),) = done.parts
            metadata = keys.object_key(name)
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            prefix = metadata.aad_prefix or b""
            ags1.encrypt_file(_plain_file(directory), root / name, metadata.encryption_key, aad_prefix=prefix)

    make_manifests(root, _client(), count, made)
    yield root
    shutil.rmtree(root)


def _plain_file(directory: Path) -> Path:
    path = directory / "four-kibibytes"
    path.write_bytes(os.urandom(FILE_BYTES))
    return path


def _way_to(root: Path, path: str) -> tuple[list[ManifestNode], dataset.DatasetEntry]:
    """The manifests between the version and a file, and its entry."""
    transaction = Transaction.begin(Access.of(Location(root), _client()), "look")
    found: list[ManifestNode] = []
    item: Any = transaction.root
    key = path.encode()
    while isinstance(item, ManifestNode):
        found.append(item)
        below = transaction.manifests.children(item)
        item = [each for each in below if (each.first if isinstance(each, ManifestNode) else each.key) <= key][-1]
    return found, item


def _floor_of_one(root: Path, path: str) -> Callable[[], object]:
    """The version parsed, each manifest on the way read, decrypted and parsed, the file read and decrypted."""
    way, _ = _way_to(root, path)
    with dataset.open(root, _client()) as opened:
        metadata = opened.key_metadata(path)
        name, version = opened.files[path].parts[0].name, opened.version
    manifests = [(root / each.name, ags1.KeyMetadata.decode(each.key_metadata)) for each in way]

    def work() -> object:
        json.loads((root / "_ags1" / f"v-{version}.json").read_bytes())
        for place, key in manifests:
            json.loads(ags1.decrypt(place.read_bytes(), key.encryption_key, aad_prefix=key.aad_prefix or b""))
        data = (root / name).read_bytes()
        return ags1.decrypt(data, metadata.encryption_key, aad_prefix=metadata.aad_prefix or b"")

    return work


def test_one_file_of_many(large: Path, count: int, interleave: Callable[..., Run], record: Record) -> None:
    client = _client()
    middle = _path(count // 2)
    opened = dataset.open(large, client)
    paths = [_path(index) for index in range(0, count, max(1, count // 997))]
    turn = iter(range(1 << 60))

    def cold() -> object:
        with dataset.open(large, client) as vault, vault.open(middle) as reader:
            return reader.read()

    def find() -> object:
        return opened.files[paths[next(turn) % len(paths)]]

    run = interleave({"ags1": cold, "find": find, "floor": _floor_of_one(large, middle)})
    note = (
        f"opening the dataset, one file of it, and reading that: {run.median('ags1') * 1e3:.2f} ms; "
        f"finding a path in an open one: {run.median('find') * 1e6:.0f} µs; the floor is the version and "
        "each manifest on the way read, decrypted and parsed, and the file"
    )
    question = f"read one of {count:,} files, dataset opened for it"
    record(run, figure(run, question, "floor", measure="time", calls=1, note=note, target=3.0))
    opened.close()


_PROGRAM = """
import sys
from ags1 import dataset, kms
vault = dataset.open(sys.argv[1], kms.MemoryKms({"lake": bytes(range(32))}))
assert len(vault.open(sys.argv[2]).read()) == 4096
"""


def test_memory_of_one_file_of_many(large: Path, count: int, record: Record) -> None:
    mine = processes.peak_memory([sys.executable, "-c", _PROGRAM, str(large), _path(count // 2)])
    bare = processes.peak_memory([sys.executable, "-c", "import ags1.dataset, ags1.kms.memory"])
    question = f"peak memory of reading one of {count:,} files"
    record(None, memory_figure(question, "import ags1.dataset", mine, bare, target=MEMORY_TARGET))


def _floor_of_append(root: Path, path: str, directory: Path) -> Callable[[], object]:
    """As many files of the same sizes written and synced, with their directory."""
    way, entry = _way_to(root, path)
    sizes = [(root / each.name).stat().st_size for each in way] + [entry.file_length, 1600]
    target = directory / "floor-of-append"
    target.mkdir(exist_ok=True)
    turn = counted()

    def work() -> None:
        for size in sizes:
            descriptor = os.open(target / str(next(turn)), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(descriptor, bytes(size))
            os.fsync(descriptor)
            os.close(descriptor)
        descriptor = os.open(target, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    return work


def test_one_file_more(
    large: Path, count: int, directory: Path, interleave: Callable[..., Run], record: Record
) -> None:
    plain = _plain_file(directory)
    opened = dataset.open(large, _client())
    turn = counted()

    def add() -> None:
        opened.add(plain, prefix=f"year=2013/month=07/more-{next(turn):06}")

    run = interleave({"ags1": add, "write and fsync": _floor_of_append(large, _path(count // 2), directory)})
    milliseconds = run.median("ags1") * 1e3
    note = f"{milliseconds:.1f} ms, durable, manifests in the page cache; at most 50 ms is wanted"
    question = f"add one file to a dataset of {count:,}"
    record(run, figure(run, question, "write and fsync", measure="time", calls=1, note=note))
    opened.close()


_APPEND = """
import sys
from ags1 import dataset, kms
with dataset.open(sys.argv[1], kms.MemoryKms({"lake": bytes(range(32))})) as vault:
    vault.add(sys.argv[2], prefix="memory")
"""


def test_memory_of_one_file_more(large: Path, count: int, directory: Path, record: Record) -> None:
    mine = processes.peak_memory([sys.executable, "-c", _APPEND, str(large), str(_plain_file(directory))])
    bare = processes.peak_memory([sys.executable, "-c", "import ags1.dataset, ags1.kms.memory"])
    question = f"peak memory of adding one file to {count:,}"
    record(None, memory_figure(question, "import ags1.dataset", mine, bare, target=MEMORY_TARGET))


# -- many small files ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(directory: Path, sizes: settings.Settings) -> Path:
    """A tree of files of 4 KiB."""
    root = directory / "small"
    for index in range(1000 if sizes.quick else 2000):
        path = root / f"{index // 100:03}" / f"{index:05}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(FILE_BYTES))
    return root


def _copy_tree(source: Path, target: Path) -> None:
    """Read each file, write it under a temporary name, and rename it: the least that keeps half a file from view."""
    for parent, _, names in os.walk(source):
        directory = target / Path(parent).relative_to(source)
        directory.mkdir(parents=True)
        for name in names:
            with open(os.path.join(parent, name), "rb", buffering=0) as file:
                data = file.read()
            temporary = os.path.join(directory, f".{name}")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            os.write(descriptor, data)
            os.close(descriptor)
            os.rename(temporary, os.path.join(directory, name))


def sync(directory: Path) -> None:
    """Return when all that was written to the file system of a directory is on its disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), "syncfs failed", str(directory))
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("direction", ["encrypt", "decrypt"])
def test_small_files(
    direction: str,
    durable: bool,
    small: Path,
    directory: Path,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    client, target = _client(), directory / "out"
    vault = directory / "small-vault"
    if not vault.exists():
        dataset.encrypt(small, vault, client, "lake").close()
    opened = dataset.open(vault, client)
    source = small if direction == "encrypt" else vault

    def ours() -> None:
        if direction == "encrypt":
            dataset.encrypt(small, target, client, "lake", durable=durable).close()
        else:
            opened.decrypt(target, durable=durable)

    def theirs() -> None:
        _copy_tree(source, target)
        if durable:
            sync(target)

    def away() -> None:
        shutil.rmtree(target)
        os.sync()

    subjects: dict[str, Any] = {
        "ags1": Subject(ours, after=away),
        "create, write, rename": Subject(theirs, after=away),
    }
    run = interleave(subjects)
    count = len(opened.files)
    question = f"{direction} a dataset of {count:,} files of 4 KiB" + (", on the disk afterwards" if durable else "")
    note = f"{count / run.median('ags1'):,.0f} files a second; {settings.cpus()} CPUs"
    nbytes = count * FILE_BYTES
    record(run, figure(run, question, "create, write, rename", measure="time", nbytes=nbytes, note=note))
    opened.close()


def test_a_run_that_finds_nothing_new(
    small: Path, directory: Path, interleave: Callable[..., Run], record: Record
) -> None:
    client, vault = _client(), directory / "small-vault"
    if not vault.exists():
        dataset.encrypt(small, vault, client, "lake").close()

    def look() -> int:
        return sum(os.stat(os.path.join(parent, name)).st_size for parent, _, names in os.walk(small) for name in names)

    run = interleave({"ags1": lambda: dataset.encrypt(small, vault, client, "lake").close(), "os.walk and stat": look})
    count = sum(1 for path in small.rglob("*") if path.is_file())
    question = f"a run over {count:,} files of which none is new"
    record(run, figure(run, question, "os.walk and stat", measure="time", calls=count))
