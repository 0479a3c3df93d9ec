"""How a dataset does: one file among a million, and ten thousand small files, beside what the system charges."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import dataset, kms
from ags1.dataset import _control, _keys, _manifest
from bench import processes, settings
from bench.conftest import Record
from bench.measure import Run, Subject, figure, memory_figure

MASTER = bytes(range(32))
FILE_BYTES = 4096
MEMORY_TARGET = 64.0


def _client() -> kms.MemoryKms:
    return kms.MemoryKms({"lake": MASTER})


def _path(index: int) -> str:
    return f"year={2000 + index % 27}/month={index % 12 + 1:02}/part-{index:07}.parquet"


# -- a manifest of a million files -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def count(sizes: settings.Settings) -> int:
    return 20_000 if sizes.quick else 1_000_000


@pytest.fixture(scope="module")
def large(directory: Path, count: int) -> Iterator[Path]:
    """A dataset whose manifest has many files; one of them, in the middle, is there."""
    root = directory / "million"
    (root / "_ags1").mkdir(parents=True)
    one = _path(count // 2)
    (root / one).parent.mkdir(parents=True)
    metadata = ags1.encrypt_file(_plain_file(directory), root / one)
    identity = "00000000-0000-0000-0000-000000000001"
    header = _manifest.header_line(_control.Metadata(identity, 1, "lake", [], "", "", 0, 0, 1, 1))
    name = "manifest-1-0123456789abcdef.jsonl.ags1"
    writer = _manifest.ManifestWriter(str(root / "_ags1" / name), header)
    for path in sorted((_path(index) for index in range(count)), key=os.fsencode):
        encoded = (metadata if path == one else ags1.KeyMetadata.generate().with_length(metadata.file_length)).encode()
        entry = _manifest.Entry(path, FILE_BYTES, metadata.file_length or 0, encoded, FILE_BYTES, 1)
        writer.add(_manifest.sort_key(path), _manifest.entry_line(entry), FILE_BYTES)
    keys = _keys.KeyRing([], "lake")
    key_id = keys.add(writer.close(), _client())
    found = _control.Metadata(identity, 1, "lake", keys.to_list(), name, key_id, count, count * FILE_BYTES, 1, 1)
    _control.write_whole(str(root / "_ags1" / "metadata.json"), found.encode())
    yield root
    shutil.rmtree(root)


def _plain_file(directory: Path) -> Path:
    path = directory / "four-kibibytes"
    path.write_bytes(os.urandom(FILE_BYTES))
    return path


def _floor_of_one(root: Path) -> Callable[[], object]:
    """One block of the manifest read and decrypted, one line of it parsed, one file read and decrypted."""
    with dataset.open(root, _client()) as opened:
        metadata = opened._metadata
        key = _keys.KeyRing(metadata.encryption_keys, "lake").unwrap(metadata.manifest_key_id, _client())
        one = opened.files[_path(metadata.file_count // 2)]
        file_key = one.key_metadata
        line = _manifest.entry_line(one)
    manifest = os.open(root / "_ags1" / metadata.manifest, os.O_RDONLY)
    stride = _manifest.BLOCK_LENGTH + ags1.layout.BLOCK_OVERHEAD
    first = os.pread(manifest, 8 + stride, 0)
    prefix, secret = key.aad_prefix or b"", key.encryption_key

    def work() -> bytes:
        data = os.pread(manifest, len(first), 0)
        ags1.decrypt(data[: 8 + stride], secret, aad_prefix=prefix)
        json.loads(line)
        with open(root / one.path, "rb", buffering=0) as file:
            return ags1.decrypt(file.read(), file_key.encryption_key, aad_prefix=file_key.aad_prefix or b"")

    return work


def test_one_file_of_many(large: Path, count: int, interleave: Callable[..., Run], record: Record) -> None:
    client = _client()
    middle = _path(count // 2)
    opened = dataset.open(large, client)
    paths = [_path(index) for index in range(0, count, max(1, count // 997))]
    turn = iter(range(1 << 60))

    def cold() -> bytes:
        with dataset.open(large, client) as vault, vault.open(middle) as reader:
            return reader.read()

    def find() -> object:
        return opened.files[paths[next(turn) % len(paths)]]

    run = interleave({"ags1": cold, "find": find, "floor": _floor_of_one(large)})
    note = (
        f"opening the dataset, one file of it, and reading that: {run.median('ags1') * 1e3:.2f} ms; "
        f"finding a path in an open one: {run.median('find') * 1e6:.0f} µs; the floor is one block of the manifest "
        "opened, one line parsed, one file read and opened"
    )
    question = f"read one of {count:,} files, dataset opened for it"
    record(run, figure(run, question, "floor", measure="time", calls=1, note=note))
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


# -- many small files ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(directory: Path, sizes: settings.Settings) -> Path:
    """A tree of files of 4 KiB."""
    root = directory / "small"
    for index in range(1000 if sizes.quick else 10_000):
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


@pytest.mark.parametrize("direction", ["encrypt", "decrypt"])
def test_small_files(
    direction: str,
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
            dataset.encrypt(small, target, client, "lake").close()
        else:
            opened.decrypt(target)

    def away() -> None:
        shutil.rmtree(target)
        os.sync()

    copy = [*processes.cp_command(), "-r", str(source), str(target)]
    subjects: dict[str, Any] = {
        "ags1": Subject(ours, after=away),
        "create, write, rename": Subject(lambda: _copy_tree(source, target), after=away),
        "cp -r": Subject(lambda: processes.run(copy), after=away),
    }
    run = interleave(subjects)
    count = len(opened.files)
    question = f"{direction} a dataset of {count:,} files of 4 KiB"
    note = f"{count / run.median('ags1'):,.0f} files a second; {settings.cpus()} CPUs"
    nbytes = count * FILE_BYTES
    record(
        run,
        figure(run, question, "create, write, rename", measure="time", nbytes=nbytes, note=note),
        figure(run, question, "cp -r", kind="reference", measure="time", nbytes=nbytes, note=note),
    )
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
