"""How fast encrypt_into and decrypt_into are, beside the C loop and a loop on `cryptography`.

Encryption, by block length and threads, is also the data of the picture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ags1
from ags1.bench import Run
from bench import peer, settings
from bench.conftest import KEY, Record
from bench.floors import Floors, load_newer, openssl
from bench.measure import Figure, best_loop, figure

MIB = settings.MIB
THREADS = settings.load().threads
Bytes = Any

# Share of the faster C loop; block length, threads -> multiple of the `cryptography` loop, where one is promised.
FLOOR_TARGET = 0.97
PEER_TARGET = {(MIB, 1): 1.0, (MIB, 2): 1.0, (64 << 10, 1): 1.0, (64 << 10, 2): 1.0, (4096, 1): 3.0, (4096, 2): 8.0}
MOST_OVER_FLOOR = 1.02
NEWER = "C loop, OpenSSL 4"
LENGTHS = [MIB, 64 << 10, 4096, 1024, 256]
# The picture has more of them.
ENCRYPTED_LENGTHS = [4 * MIB, 256 << 10, 16 << 10, *LENGTHS]
PIECES_TARGET = 0.95


def name_of(block_length: int) -> str:
    """Name a block length: "1 MiB", "4 KiB", "256 B"."""
    for unit, size in (("MiB", MIB), ("KiB", 1024)):
        if block_length % size == 0:
            return f"{block_length // size} {unit}"
    return f"{block_length} B"


def _figures(run: Any, what: str, block_length: int, threads: int, nbytes: int) -> list[Figure]:
    where = f"{what}, {name_of(block_length)} blocks, {threads} thread{'s' * (threads > 1)}"
    note = best_loop(run)
    figures = [
        figure(run, where, "C loop", kind="floor", target=FLOOR_TARGET, nbytes=nbytes, note=note),
    ]
    if NEWER in run.seconds:
        figures.append(figure(run, where, NEWER, kind="peer", nbytes=nbytes))
    if "cryptography" in run.seconds:
        target = PEER_TARGET.get((block_length, threads))
        figures.append(figure(run, where, "cryptography", kind="peer", target=target, nbytes=nbytes))
    check_floor(run)
    return figures


def check_floor(run: Run) -> None:
    """Fail if the peer is faster than the C loops: then they are no floor, and "1.00 of the floor" hides a fault.

    `cryptography` carries an OpenSSL of its own, so the faster of the loops on ours and on the newer one counts.
    """
    if "cryptography" not in run.seconds:
        return
    floor = run.fastest("C loop", *({NEWER} & run.seconds.keys()))
    ratio = run.speed_ratio("cryptography", floor)
    assert ratio.low <= MOST_OVER_FLOOR, (
        f"`cryptography` has {ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] times the speed of {floor}: find "
        "what the loop in floors.c does worse, and look for the same in ags1"
    )


def _id_of(block_length: int) -> str:
    return name_of(block_length).replace(" ", "")


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("block_length", ENCRYPTED_LENGTHS, ids=_id_of)
def test_encrypt_into(
    block_length: int,
    threads: int,
    plaintext: Bytes,
    room: Bytes,
    loops: dict[str, Floors],
    interleave: Callable[..., Any],
    record: Record,
) -> None:
    # All write to the same memory: where it lies, and on what pages, is the same for all.
    subjects: dict[str, Callable[[], object]] = {
        "ags1": lambda: ags1.encrypt_into(plaintext, room, KEY, block_length=block_length, threads=threads),
        **{
            f"C loop, {library}": lambda each=each: each.seal(plaintext, room, KEY, block_length, threads)
            for library, each in loops.items()
        },
    }
    subjects["cryptography"] = lambda: peer.seal(plaintext, room, KEY, block_length, threads)
    if (newer := load_newer()) is not None:
        subjects[NEWER] = lambda: newer.seal(plaintext, room, KEY, block_length, threads)
    run = interleave(subjects)
    figures = _figures(run, "encrypt_into", block_length, threads, plaintext.nbytes)
    gbps = {name: plaintext.nbytes / run.median(name) / 1e9 for name in ("ags1", "C loop", "cryptography")}
    record(run, *figures, block_length=block_length, threads=threads, gbps=gbps)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("block_length", LENGTHS, ids=_id_of)
def test_decrypt_into(
    block_length: int,
    threads: int,
    plaintext: Bytes,
    room: Bytes,
    back: Bytes,
    loops: dict[str, Floors],
    interleave: Callable[..., Any],
    record: Record,
) -> None:
    size, key = plaintext.nbytes, KEY
    stream = room[: ags1.encrypt_into(plaintext, room, key, block_length=block_length)]
    subjects: dict[str, Callable[[], object]] = {
        "ags1": lambda: ags1.decrypt_into(stream, back, key, threads=threads),
        **{
            f"C loop, {library}": lambda each=each: each.open(stream, size, back, key, block_length, threads)
            for library, each in loops.items()
        },
    }
    # Below 4 KiB the loop on `cryptography` is slow, and shows nothing that encryption has not shown.
    if block_length >= 4096:
        subjects["cryptography"] = lambda: peer.open_(stream, size, back, key, block_length, threads)
    if (newer := load_newer()) is not None:
        subjects[NEWER] = lambda: newer.open(stream, size, back, key, block_length, threads)
    run = interleave(subjects)
    record(run, *_figures(run, "decrypt_into", block_length, threads, size))


@pytest.mark.parametrize("encrypt", [pytest.param(True, id="encrypt"), pytest.param(False, id="decrypt")])
@pytest.mark.parametrize("block_length", [4096, 4224, 8176, 8384, 18_688, 64 << 10, 65 << 10])
def test_pieces(
    block_length: int,
    encrypt: bool,
    plaintext: Bytes,
    room: Bytes,
    back: Bytes,
    interleave: Callable[..., Any],
    record: Record,
) -> None:
    """What the pieces of include/ags1/core/pieces.h are worth, beside one call of EVP for a message.

    The length modulo 768 decides: 8,384 leaves 704, and 65 KiB leaves 512; all others leave 256 to 511.
    """
    data = plaintext[: min(plaintext.nbytes, 64 * MIB)]
    size = data.nbytes
    whole = Floors(one_call=True)
    loops = {"pieces": openssl(), "one call": whole}
    stream = room[: ags1.encrypt_into(data, room, KEY, block_length=block_length)]

    def subject(loop: Floors) -> Callable[[], object]:
        if encrypt:
            return lambda: loop.seal(data, room, KEY, block_length, 1)
        return lambda: loop.open(stream, size, back, KEY, block_length, 1)

    run = interleave({name: subject(loop) for name, loop in loops.items()})
    what = "encrypt" if encrypt else "decrypt"
    question = f"C loop, {what}, blocks of {name_of(block_length)}, OpenSSL's calls in pieces, 1 thread"
    shown = figure(run, question, "one call", subject="pieces", kind="peer", target=PIECES_TARGET, nbytes=size)
    record(run, shown, subject="pieces")
