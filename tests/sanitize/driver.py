"""Takes the native code through its paths with nothing but ags1 loaded: for sanitizers and valgrind.

The one argument scales the sizes: 100 for instrumented code, less for an emulator.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import io
import os
import pickle
import random
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import ags1
from ags1.core import blocks, buffer, gcm, layout
from ags1.streams import files, stream, verify
from tests.sanitize import parquet_steps

SCALE = int(sys.argv[1]) if len(sys.argv) > 1 else 100
KEYS = [bytes(range(length)) for length in (16, 24, 32)]
PREFIXES = [b"", b"1234567890123456", bytes(2000)]


def data(length: int) -> bytes:
    return random.Random(length).randbytes(length)


def refused(call: Callable[[], object]) -> None:
    try:
        call()
    except (ags1.Ags1Error, ValueError, TypeError, OSError):
        return
    raise SystemExit("a call that must fail did not")


def exact(size: int) -> memoryview:
    """Memory of its own, with nothing behind it: one byte too many is seen by the sanitizer."""
    return memoryview((ctypes.c_char * max(size, 1))()).cast("B")[:size]


def one_shot() -> None:
    for block_length in (1, 15, 16, 17, 1000, 1 << 20):
        for length in (0, 1, block_length - 1, block_length, block_length + 1, 3 * block_length + 5, 20 * SCALE):
            if length // block_length > 30 * SCALE:
                continue
            for threads in (1, 3):
                plain, key, prefix = data(length), KEYS[length % 3], PREFIXES[length % 3]
                options = {"aad_prefix": prefix, "threads": threads}
                sealed = exact(ags1.encrypted_length(length, block_length))
                assert ags1.encrypt_into(plain, sealed, key, block_length=block_length, **options) == len(sealed)
                assert ags1.decrypt(sealed, key, **options) == plain
                out = exact(length)
                assert ags1.decrypt_into(sealed, out, key, **options) == length
                assert out == plain
                refused(lambda o=options, s=sealed, k=key: ags1.decrypt_into(s, exact(0), k, **o, length=1))
                damaged = bytearray(sealed)
                damaged[-1] ^= 1
                refused(lambda o=options, s=damaged, k=key: ags1.decrypt(s, k, **o))
                for cut in (0, 7, 8, 35, len(sealed) - 1):
                    part = exact(cut)
                    part[:] = sealed[:cut]
                    refused(lambda o=options, s=part, k=key, n=sealed.nbytes: ags1.decrypt(s, k, length=n, **o))


def hostile() -> None:
    chance = random.Random(5)
    stream = bytearray(ags1.encrypt(data(300), KEYS[2], block_length=50))
    for _ in range(30 * SCALE):
        part = bytearray(stream[: chance.choice([len(stream), chance.randrange(len(stream) + 1)])])
        for _ in range(chance.randrange(3)):
            if part:
                position = chance.randrange(min(chance.choice([8, len(part)]), len(part)))
                part[position] = chance.randrange(256)
        memory = exact(len(part))
        memory[:] = part
        for call in (
            lambda m=memory: ags1.decrypt(m, KEYS[2]),
            lambda m=memory: ags1.decrypt_many([m, m], KEYS[2], threads=2),
            lambda m=memory: ags1.Reader(m, KEYS[2]).read(),
            lambda m=memory: ags1.KeyMetadata.decode(m),
        ):
            with contextlib.suppress(ags1.Ags1Error):
                call()


def batches() -> None:
    for threads in (1, 3):
        for sizes in ([], [0], [5] * 3, list(range(60)), [100] * (200 * SCALE), [3, 20 * SCALE, 0, 7]):
            plain = [data(size) for size in sizes]
            keys, prefixes = [KEYS[size % 3] for size in sizes], [PREFIXES[size % 3] for size in sizes]
            made = ags1.encrypt_many(plain, keys, aad_prefixes=prefixes, block_length=16, threads=threads)
            again = ags1.decrypt_many(made, keys, aad_prefixes=prefixes, threads=threads)
            assert [bytes(each) for each in again] == plain
            for batch in (made, made[1:-1], pickle.loads(pickle.dumps(made, 4))):
                assert len(list(batch)) == len(batch)
            offsets = array.array("q", [0])
            for each in plain:
                offsets.append(offsets[-1] + len(each))
            joined = exact(offsets[-1])
            joined[:] = b"".join(plain)
            out = exact(made.nbytes)
            numbered = ags1.NumberedPrefixes(b"n")
            again = ags1.encrypt_many((joined, offsets), KEYS[1], aad_prefixes=numbered, threads=threads, out=out)
            assert ags1.decrypt_many(again, KEYS[1], aad_prefixes=numbered) == plain
            for number in range(0, len(sizes), max(1, len(sizes) // 4)):
                damaged = [
                    *made[:number],
                    bytes(made[number])[:-1] + bytes([made[number][-1] ^ 1]),
                    *made[number + 1 :],
                ]
                if bytes(damaged[number]) != bytes(made[number]):
                    options = {"aad_prefixes": prefixes, "threads": threads}
                    refused(lambda d=damaged, k=keys, o=options: ags1.decrypt_many(d, k, **o))


def paths_and_streams() -> None:
    # Windows that are small beside the data: a Writer's threads work behind it, and those of several are under way.
    stream.GATHERED, stream.WINDOW = 1 << 13, 1 << 16
    with tempfile.TemporaryDirectory() as directory:
        plain, sealed, out = (Path(directory, name) for name in ("plain", "sealed", "out"))
        for length, block_length in ((0, 10), (1, 1), (40 * SCALE, 7), (3000 * SCALE, 4096), (3000 * SCALE, 1 << 20)):
            content = data(length)
            plain.write_bytes(content)
            for threads in (1, 3):
                files.encrypt_file(plain, sealed, KEYS[0], block_length=block_length, threads=threads)
                assert files.decrypt_file(sealed, out, KEYS[0], threads=threads) == length
                assert out.read_bytes() == content
                assert verify.verify_file(sealed, KEYS[0], threads=threads).ok
                with ags1.Writer(out, KEYS[1], block_length=block_length, threads=threads) as writer:
                    for start in range(0, length, 1 + length // 7):
                        writer.write(memoryview(content)[start : start + 1 + length // 7])
                for source in (out, out.read_bytes(), io.BytesIO(out.read_bytes())):
                    with ags1.Reader(source, KEYS[1], threads=threads) as reader:
                        for offset in range(0, length, 1 + length // 9):
                            piece = exact(length // 5 + 3)
                            count = reader.pread_into(offset, piece)
                            assert piece[:count] == content[offset : offset + len(piece)]
                        assert reader.read() == content
                damaged = bytearray(sealed.read_bytes())
                damaged[len(damaged) // 2] ^= 4
                sealed.write_bytes(damaged)
                refused(lambda t=threads: files.decrypt_file(sealed, out, KEYS[0], threads=t))
                sealed.write_bytes(damaged[:-1])
                refused(lambda t=threads, n=length: files.decrypt_file(sealed, out, KEYS[0], threads=t, length=n + 1))


def together() -> None:
    content = data(1000 * SCALE)
    key = ags1.Key(KEYS[2])
    stream = ags1.encrypt(content, key, block_length=1024)
    bad = bytearray(stream)
    bad[len(bad) // 2] ^= 1
    reader = ags1.Reader(stream, key, threads=2)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(8):
                out = exact(len(content))
                assert ags1.decrypt_into(stream, out, key, threads=2) == len(content)
                refused(lambda: ags1.decrypt(bad, key, threads=3))
                made = ags1.encrypt_many([content[:700]] * SCALE, key, threads=2)
                assert len(ags1.decrypt_many(made, key, threads=2)) == SCALE
                start = (number * 7919 + turn * 104_729) % len(content)
                assert reader.pread(start, 5000) == content[start : start + 5000]
                assert key == KEYS[2]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def small_things() -> None:
    for key in KEYS:
        one, other = ags1.Key(key), ags1.Key(memoryview(key))
        assert one == other
        assert one == key
        assert one != key[:-1]
        assert bytes(one) == key
        sealed = gcm.seal_message(b"message", one, bytes(12), b"aad")
        assert gcm.open_message(sealed, one, bytes(12), b"aad") == b"message"
        assert gcm.open_message(sealed[:-1], one, bytes(12), b"aad") is None
        assert gcm.open_message(sealed[:9], one, bytes(12), b"aad") is None
        refused(lambda k=one: gcm.seal_message(b"", k, bytes(11)))
    for bits in (128, 192, 256):
        assert ags1.Key.generate(bits).bits == bits
    for wrong in (b"", bytes(15), bytes(33), "text", None, 5):
        refused(lambda w=wrong: ags1.Key(w))
    view = buffer.BufferView(bytearray(10), writable=True)
    assert view.overlaps(view)
    view.release()
    view.release()
    for first in (0, (1 << 31) - 3):
        out = exact(3 * 28 + 50)
        if first:
            refused(lambda o=out, f=first: blocks.seal_blocks(bytes(50), o, KEYS[0], b"", 20, f, 1))
        else:
            blocks.seal_blocks(bytes(50), out, KEYS[0], b"", 20, first, 2)
            assert blocks.open_blocks(out, exact(50), KEYS[0], b"", 20, first, 2) == 50
            refused(lambda o=out: blocks.open_blocks(o, o, KEYS[0], b"", 20, 0, 2))
    for length in (0, 1, 8, 35, 36, 37, 1 << 40, (1 << 63) - 1):
        for block_length in (1, 20, 1 << 20, (1 << 31) - 1):
            with contextlib.suppress(ags1.Ags1Error):
                layout.plaintext_length(length, block_length)
            with contextlib.suppress(ags1.Ags1Error):
                layout.encrypted_length(length, block_length)
            with contextlib.suppress(ags1.Ags1Error, ValueError):
                layout.ciphertext_to_plaintext(length, block_length)
            with contextlib.suppress(ags1.Ags1Error):
                layout.block_to_ciphertext(min(length, 1 << 32), block_length)
    for head in (b"", b"A", b"AGS1", b"AGS1\0\0\0\0", b"AGS1\xff\xff\xff\xff", b"PAR1", b"\xff" * 16, bytes(7)):
        refused(lambda h=head: layout.read_header(h))


def forked() -> None:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert ags1.decrypt(ags1.encrypt(data(5000), KEYS[0], block_length=100, threads=2), KEYS[0], threads=2)
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def parquet() -> None:
    parquet_steps.parquet(SCALE)


if __name__ == "__main__":
    for step in (small_things, one_shot, hostile, batches, paths_and_streams, together, forked, parquet):
        if len(sys.argv) < 3 or step.__name__ in sys.argv[2:]:
            step()
            gc.collect()
    print("the driver went through")
