"""How fast batches are, beside a C loop over the same offsets that makes no Python objects, and beside AESGCM.

The C loop takes fresh memory for each batch, as ags1 does, or writes to memory that is there, as ags1 does with
``out=``. Both are asked of the same items: in one piece with offsets, as an Arrow array, and as a list of bytes.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ags1
from ags1.bench import Run
from bench import peer, processes, settings
from bench.bench_memory import name_of
from bench.conftest import KEY, Record
from bench.floors import Floors
from bench.measure import best_loop, figure, memory_figure

# Share of the C loop.
PACKED_TARGET, LIST_TARGET = 0.97, 0.6
IPSEC_MB = "Intel's library for small messages, without EVP's calls for each item: the physical limit, and EVP stays"
LENGTHS = [pytest.param(1024, id="1KiB"), pytest.param(256, id="256B")]


@pytest.fixture
def buffers(request: pytest.FixtureRequest, sizes: settings.Settings, plaintext: Any) -> Iterator[list[bytes]]:
    """As many buffers of one length as a batch has, no two at the same place."""
    length: int = request.param
    count = min(sizes.batch_count, plaintext.nbytes // length)
    data = memoryview(plaintext)
    yield [bytes(data[length * i : length * (i + 1)]) for i in range(count)]
    gc.collect()


@pytest.mark.parametrize("threads", [1, None], ids=["one", "all"])
@pytest.mark.parametrize("buffers", LENGTHS, indirect=True)
def test_encrypt_many(
    threads: int | None,
    buffers: list[bytes],
    plaintext: Any,
    room: Any,
    loops: dict[str, Floors],
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    count, length = len(buffers), len(buffers[0])
    crew = threads or settings.cpus()
    data, offsets = plaintext[: count * length], np.arange(0, count * length + 1, length, dtype=np.int64)
    array = pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    reserved = ags1.Batch.reserve(ags1.encrypted_length(length) * count, count)
    subjects: dict[str, Callable[[], object]] = {
        "Arrow": lambda: ags1.encrypt_many(array, KEY, threads=threads),
        "(data, offsets)": lambda: ags1.encrypt_many((data, offsets), KEY, threads=threads),
        "list": lambda: ags1.encrypt_many(buffers, KEY, threads=threads),
        "reserved": lambda: ags1.encrypt_many(array, KEY, threads=threads, out=reserved),
        "AESGCM.encrypt": lambda: peer.seal_each(buffers, KEY),
    }
    for library, each in loops.items():
        subjects[f"C loop, {library}"] = lambda each=each: each.many(data, offsets, KEY, 1 << 20, crew)
        subjects[f"C loop, memory reused, {library}"] = lambda each=each: each.many(
            data, offsets, KEY, 1 << 20, crew, room
        )
    floors = loops["OpenSSL"]
    if floors.has_ipsec_mb:
        subjects["ipsec-mb"] = lambda: floors.many(data, offsets, KEY, 1 << 20, crew, ipsec_mb=True)
    run = interleave(subjects, fresh=2 * ags1.encrypted_length(length) * count)
    note, reused = best_loop(run), best_loop(run, "C loop, memory reused")
    question = f"encrypt_many, {count} items of {name_of(length)}, {crew} thread{'s' * (crew > 1)}"
    nbytes = count * length
    figures = [
        figure(
            run, f"{question}, from Arrow", "C loop", subject="Arrow", target=PACKED_TARGET, nbytes=nbytes, note=note
        ),
        figure(
            run,
            f"{question}, from (data, offsets)",
            "C loop",
            subject="(data, offsets)",
            target=PACKED_TARGET,
            nbytes=nbytes,
            note=note,
        ),
        figure(
            run,
            f"{question}, from a list",
            "C loop",
            subject="list",
            target=LIST_TARGET,
            nbytes=nbytes,
            note=note,
        ),
        figure(
            run,
            f"{question}, into a reserved batch",
            "C loop, memory reused",
            subject="reserved",
            target=PACKED_TARGET,
            nbytes=nbytes,
            note=reused,
        ),
        figure(run, f"{question}, from a list", "AESGCM.encrypt", subject="list", kind="peer", nbytes=nbytes),
    ]
    if floors.has_ipsec_mb:
        arrow = f"{question}, from Arrow"
        figures.append(figure(run, arrow, "ipsec-mb", subject="Arrow", kind="reference", nbytes=nbytes, note=IPSEC_MB))
    record(run, *figures, subject="Arrow")


_PEAK = """
import sys
import numpy as np
import ags1
from tests import peak_memory
count, length = int(sys.argv[1]), int(sys.argv[2])
data, offsets = np.ones(count * length, np.uint8), np.arange(0, count * length + 1, length, dtype=np.int64)
items = (data, offsets) if sys.argv[3] == "packed" else [bytes(length) for _ in range(count)]
before = peak_memory.begin()
batch = ags1.encrypt_many(items, bytes(32))
print(peak_memory.grown(before), batch.nbytes + batch.offsets.nbytes)
"""


@pytest.mark.parametrize("form", ["packed", "list"])
def test_peak_memory_of_a_batch(form: str, sizes: settings.Settings, record: Record) -> None:
    count = min(sizes.batch_count, sizes.nbytes // 1024)
    command = [sys.executable, "-c", _PEAK, str(count), "1024", form]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=processes.environment()).stdout
    peak, result = map(int, said.split())
    question = f"peak memory of encrypt_many, {count} items of 1 KiB, from {form}"
    record(None, memory_figure(question, "arena and offsets", peak, result, target=16))


@pytest.mark.parametrize("buffers", LENGTHS[:1], indirect=True)
def test_decrypt_many(buffers: list[bytes], interleave: Callable[..., Run], record: Record) -> None:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    streams = [bytes(view) for view in ags1.encrypt_many(buffers, KEY)]
    sealed = [(stream[8:20], stream[20:]) for stream in streams]
    aad = bytes(4)

    def each() -> list[bytes]:
        decrypt = AESGCM(KEY).decrypt
        return [decrypt(nonce, message, aad) for nonce, message in sealed]

    nbytes = len(buffers) * len(buffers[0])
    run = interleave({"ags1": lambda: ags1.decrypt_many(streams, KEY), "AESGCM.decrypt": each}, fresh=2 * nbytes)
    question = f"decrypt_many, {len(buffers)} buffers of {name_of(len(buffers[0]))}, {settings.cpus()} threads"
    record(run, figure(run, question, "AESGCM.decrypt", kind="peer", nbytes=nbytes))
