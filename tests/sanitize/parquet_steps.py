"""The native code of ags1.parquet for the driver: modules, walks, conversions of every kind, hostile pages, files."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import json
import random
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ags1
from ags1.parquet import (
    DecryptionConfig,
    EncryptionConfig,
    ParquetView,
    decrypt_file,
    encrypt_file,
    rekey_file,
    verify_file,
)
from ags1.parquet.native import modules as native_modules
from ags1.parquet.native import thrift
from ags1.parquet.native.conversion import Conversion
from ags1.parquet.native.page_conversion import crc32, stretch
from ags1.parquet.native.pages import AES_CTR, AES_GCM, PLAINTEXT, Chunk, PageList, PageSource
from tests.parquet.pages import DATA, DATA_V2, DICTIONARY, header, page
from tests.parquet.reference_thrift import encode

KEYS = [bytes(range(length)) for length in (16, 24, 32)]
SOURCE_AAD, TARGET_AAD = b"source", bytes(700)
ALL = 1 << 40
MODES = (PLAINTEXT, AES_GCM, AES_CTR)
VECTORS = Path(__file__).parents[1] / "vectors"


def data(length: int) -> bytes:
    return random.Random(length).randbytes(length)


def exact(content: bytes) -> memoryview:
    """Memory of its own, with nothing behind it."""
    memory = memoryview((ctypes.c_char * max(len(content), 1))()).cast("B")[: len(content)]
    memory[:] = content
    return memory


def modules(scale: int) -> None:
    for length in (0, 1, 15, 16, 17, 1000, 100 * scale):
        for key in KEYS:
            for ctr in (False, True):
                made = native_modules.seal_module(data(length), key, b"aad", ctr)
                assert native_modules.open_module(exact(made), key, b"aad", ctr) == data(length)
                for cut in (0, 3, 4, 15, 16, 31, len(made) - 1):
                    with contextlib.suppress(ags1.Ags1Error):
                        native_modules.open_module(exact(made[:cut]), key, b"aad", ctr)
            wanted = [(exact(data(length)), ags1.Key(key), 1, 2, 3), (b"", None, 1, 2, 3)]
            sealed = native_modules.seal_modules(exact(b"file"), wanted)
            opened = native_modules.open_module(sealed[0], key, native_modules.module_aad(b"file", 1, 2, 3))
            assert [opened, sealed[1]] == [data(length), b""]
            signature = exact(native_modules.sign_footer(data(length), key, b"aad"))
            native_modules.verify_footer(exact(data(length)), signature, key, b"aad")
    for length in range(300):
        for bits in (0, 128, 256, 512):
            crc32(exact(data(5 * length)), bits)
        if length > 5:
            stretch(b"\x15\x02\x00", length + 3)


def chunk_bytes(scale: int, checksum: bool) -> bytes:
    made = [page(data(50), DICTIONARY, checksum=checksum), page(b"", values=0, checksum=checksum)]
    for number in range(3 * scale):
        levels = {"repetition": number % 3, "definition": number % 5} if number % 2 else {}
        length = (number * 37) % 500 + 10
        kind = DATA_V2 if number % 2 else DATA
        made.append(page(data(length), kind, checksum=checksum, statistic=bytes(number % 7), **levels))
    return b"".join([*made, page(data(20_000 * scale), checksum=checksum)])


def walked(
    content: Any, mode: int, target: int, aad: bytes, key: bytes, other: bytes
) -> tuple[PageList, Chunk, PageSource]:
    source = PageSource(content, base=4)
    chunk = Chunk(
        4, len(content), 0, "a", source_protection=mode, source_key=key, target_protection=target, target_key=other
    )
    pages = PageList(aad)
    pages.add(chunk, source, ALL, ALL)
    return pages, chunk, source


def conversions(scale: int) -> None:
    for checksum in (False, True):
        plain = chunk_bytes(scale, checksum)
        for mode in MODES:
            for inside in (False, True):
                for threads in (1, 3):
                    key, other = KEYS[threads % 3], KEYS[2]
                    pages, _, source = walked(exact(plain), PLAINTEXT, mode, b"", key, key)
                    made = Conversion(b"", SOURCE_AAD, levels_inside=inside, threads=threads).convert(pages, source, 4)
                    for target in MODES:
                        pages, chunk, source = walked(exact(bytes(made)), mode, target, SOURCE_AAD, key, other)
                        conversion = Conversion(SOURCE_AAD, TARGET_AAD, threads=threads)
                        again = conversion.convert(pages, source, 4)
                        assert len(chunk.page_locations()) == 3 * scale + 2
                        assert conversion.verify(pages, source) == []
                        with contextlib.suppress(ags1.LimitError):
                            conversion.view(pages, source, exact(bytes(made)), 4)
                        if target == PLAINTEXT:
                            assert bytes(again) == plain
                        to_file(bytes(made), pages, threads)


def to_file(content: bytes, pages: PageList, threads: int) -> None:
    """The same from one file to another; every other time the crew is sent home before it is done."""
    with tempfile.TemporaryFile() as file, tempfile.TemporaryFile() as target:
        file.write(b"PAR1" + content)
        file.flush()
        conversion = Conversion(SOURCE_AAD, TARGET_AAD, threads=threads)
        source = PageSource(file.fileno())
        conversion.start(pages, source, target.fileno(), 4)
        refused(pages.clear)
        refused(functools.partial(conversion.start, pages, source, target.fileno(), 4))
        if len(content) % 2:
            assert conversion.wait() > 4
        else:
            conversion.stop()
        conversion.start(pages, source, target.fileno(), 4)
        del conversion


def refused(call: Callable[[], object]) -> None:
    try:
        call()
    except (ags1.Ags1Error, RuntimeError, ValueError):
        return
    raise SystemExit("a call that must fail did not")


def hostile(scale: int) -> None:
    chance = random.Random(11)
    plain = chunk_bytes(2, True)[:3000]
    pages, _, source = walked(exact(chunk_bytes(2, True)), PLAINTEXT, AES_GCM, b"", KEYS[0], KEYS[0])
    sealed = bytes(Conversion(b"", SOURCE_AAD, threads=1).convert(pages, source, 4))[:3000]
    trees = encode(header(5, DATA_V2, crc=7, statistic=b"x" * 20))
    for _ in range(20 * scale):
        for whole, mode in ((plain, PLAINTEXT), (sealed, AES_GCM), (sealed, AES_CTR)):
            part = bytearray(whole[: chance.choice([len(whole), chance.randrange(len(whole) + 1)])])
            for _ in range(chance.randrange(4)):
                if part:
                    part[chance.randrange(min(chance.choice([40, len(part)]), len(part)))] = chance.randrange(256)
            memory = exact(bytes(part))
            found = PageList(SOURCE_AAD)
            where = PageSource(memory, base=4)
            options: dict[str, Any] = {"source_protection": mode, "source_key": KEYS[0]}
            chunk = Chunk(4, chance.choice([len(part), 3000]), 0, "a", **options)
            with contextlib.suppress(ags1.Ags1Error):
                found.add(chunk, where, ALL)
            conversion = Conversion(SOURCE_AAD, TARGET_AAD, threads=chance.choice([1, 2]))
            for call in (
                lambda c=conversion, f=found, w=where: c.convert(f, w, 0),
                lambda c=conversion, f=found, w=where: c.verify(f, w),
                lambda c=conversion, f=found, w=where, m=part: c.view(f, w, exact(bytes(m)), 4),
            ):
                with contextlib.suppress(ags1.Ags1Error):
                    call()
        tree = bytearray(trees)
        tree[chance.randrange(len(tree))] = chance.randrange(256)
        with contextlib.suppress(ags1.Ags1Error):
            parsed = thrift.Struct.parse(exact(bytes(tree)))
            parsed.set(chance.randrange(1, 12), thrift.I64, chance.getrandbits(60))
            parsed.encode()


def together(scale: int) -> None:
    """One list of pages that many threads look at."""
    plain = chunk_bytes(scale, True)
    pages, _, source = walked(exact(plain), PLAINTEXT, AES_GCM, b"", KEYS[0], KEYS[0])
    made = bytes(Conversion(b"", SOURCE_AAD, threads=2).convert(pages, source, 4))
    pages, _, source = walked(made, AES_GCM, PLAINTEXT, SOURCE_AAD, KEYS[0], KEYS[0])
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                out = exact(made)
                Conversion(SOURCE_AAD, threads=2).view(pages, source, out, 4)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def written(call: Callable[..., object], source: Any, *arguments: Any, **options: Any) -> memoryview:
    """What a conversion writes."""
    target = io.BytesIO()
    call(source, target, *arguments, **options)
    return exact(target.getvalue())


def whole_files(scale: int) -> None:
    """Files with every protection that the vectors have: re-keyed, decrypted, encrypted, looked at, and damaged."""
    chance = random.Random(13)
    cases = [
        each for each in json.loads((VECTORS / "parquet.json").read_text())["cases"] if each["expect"] == "success"
    ]
    # An emulator takes a second for each.
    for case in cases[:: 1 if scale > 10 else 6]:
        keys = {name: bytes.fromhex(key) for name, key in case["column_keys"].items()}
        prefix = None if case["aad_prefix"] is None else bytes.fromhex(case["aad_prefix"])
        reading = DecryptionConfig(bytes.fromhex(case["footer_key"]), column_keys=keys, aad_prefix=prefix)
        sealed = exact((VECTORS / case["file"]).read_bytes())
        plain = written(decrypt_file, sealed, reading)
        for algorithm in ("AES_GCM_V1", "AES_GCM_CTR_V1"):
            own = {"name": KEYS[1]} if algorithm == "AES_GCM_V1" else None
            signed = chance.random() < 0.5
            writing = EncryptionConfig(
                KEYS[0], column_keys=own, encrypt_all=True, plaintext_footer=signed, algorithm=algorithm
            )
            opening = DecryptionConfig(KEYS[0], column_keys=own)
            made = written(encrypt_file, plain, writing, threads=2)
            assert verify_file(made, opening, allow_unauthenticated_pages=True).ok
            again = written(rekey_file, sealed, reading, writing, drop_bloom_filters=True)
            written(decrypt_file, again, opening.with_aad_prefix(prefix))
            with ParquetView(made, opening) as view:
                view.read()
        for _ in range(max(1, scale // 10)):
            damaged = bytearray(sealed)
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
            memory = exact(bytes(damaged))
            with contextlib.suppress(ags1.Ags1Error, ValueError):
                verify_file(memory, reading, threads=1)
            with contextlib.suppress(ags1.Ags1Error, ValueError):
                written(decrypt_file, memory, reading)


def parquet(scale: int) -> None:
    """All of it."""
    whole_files(scale)
    modules(scale)
    conversions(max(1, scale // 10))
    hostile(scale)
    together(max(1, scale // 10))
