"""How fast encrypt_many is, beside one `AESGCM.encrypt` a buffer and a C loop that makes no Python objects."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ags1
from bench import peer, settings
from bench.bench_memory import name_of
from bench.conftest import KEY, Record
from bench.floors import Floors
from bench.measure import Run, figure

TARGET = {1024: 8.0}
LENGTHS = [
    pytest.param(1024, id="1KiB"),
    pytest.param(256, id="256B"),
    pytest.param(64 << 10, id="64KiB"),
]


@pytest.fixture
def buffers(request: pytest.FixtureRequest, sizes: settings.Settings, plaintext: Any) -> Iterator[list[bytes]]:
    """As many buffers of one length as a batch has, no two at the same place."""
    length: int = request.param
    count = min(sizes.batch_count, plaintext.nbytes // length)
    data = memoryview(plaintext)
    yield [bytes(data[length * i : length * (i + 1)]) for i in range(count)]
    gc.collect()


def _views(arena: bytes, length: int, count: int) -> list[memoryview]:
    """What the list of results costs by itself, made in Python."""
    view = memoryview(arena)
    return [view[start : start + length] for start in range(0, length * count, length)]


@pytest.mark.parametrize("threads", [1, None], ids=["one", "all"])
@pytest.mark.parametrize("buffers", LENGTHS, indirect=True)
def test_encrypt_many(
    threads: int | None,
    buffers: list[bytes],
    room: Any,
    floors: Floors,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    count, length = len(buffers), len(buffers[0])
    crew = threads or settings.cpus()
    batch, reusing = floors.batch(buffers), floors.batch(buffers, room)
    stored = ags1.encrypted_length(length)
    arena = bytes(stored * count)
    run = interleave(
        {
            "ags1": lambda: ags1.encrypt_many(buffers, KEY, threads=threads),
            "C loop": lambda: batch.seal(KEY, 1 << 20, crew),
            "AESGCM.encrypt": lambda: peer.seal_each(buffers, KEY),
            "C loop, memory reused": lambda: reusing.seal(KEY, 1 << 20, crew),
            "views alone": lambda: _views(arena, stored, count),
        },
        fresh=2 * stored * count,
    )
    question = f"encrypt_many, {count} buffers of {name_of(length)}, {crew} thread{'s' * (crew > 1)}"
    note = (
        f"of {run.median('ags1') * 1e3:.3g} ms; the C loop takes {run.median('C loop, memory reused') * 1e3:.3g} ms "
        f"where it reuses its memory, a list of as many views made in Python {run.median('views alone') * 1e3:.3g} ms"
    )
    target = TARGET.get(length) if threads is None else None
    record(
        run,
        figure(run, question, "AESGCM.encrypt", kind="peer", target=target, nbytes=count * length, note=note),
        figure(run, question, "C loop", kind="floor", nbytes=count * length, note=note),
    )


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
