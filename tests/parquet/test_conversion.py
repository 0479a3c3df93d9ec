"""Pages from one protection to another: every byte of them, both V2 forms, checksums, and misuse."""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import itertools
import os
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import ags1
from ags1.parquet.native import modules
from ags1.parquet.native.conversion import Conversion
from ags1.parquet.native.page_conversion import crc32
from ags1.parquet.native.pages import AES_CTR, AES_GCM, PLAINTEXT, Chunk, PageList, PageSource
from tests.checks import every, flip, os_threads, pattern, run_python
from tests.parquet import reference_writer
from tests.parquet.page_chunks import KEY, MODES, NEW_KEY, PAGES, SOURCE_AAD, TARGET_AAD, THREADS, chunk_of, found_in
from tests.parquet.pages import ALL, DATA, DATA_V2, DICTIONARY, header, page, source_of
from tests.parquet.reference_thrift import decode, encode


def taken_apart(data: bytes, mode: int, form: str, key: bytes = NEW_KEY) -> list[tuple[Any, bytes]]:
    """Header and plaintext of each page of a converted chunk, opened one by one."""
    found, at, ordinal = [], 0, 0
    while at < len(data):
        if mode == PLAINTEXT:
            structure, end = decode(data, at)
        else:
            end = at + 4 + int.from_bytes(data[at : at + 4], "little")
            for module_type, place in (
                (modules.DATA_PAGE_HEADER, (3, 4, ordinal)),
                (modules.DICTIONARY_PAGE_HEADER, (3, 4)),
            ):
                with contextlib.suppress(ags1.AuthenticationError):
                    plain = modules.open_module(data[at:end], key, modules.module_aad(TARGET_AAD, module_type, *place))
            structure, used = decode(plain, 0)
            assert used == len(plain), "something is behind the header"
        stored = data[end : end + structure[3]]
        assert len(stored) == structure[3]
        if 4 in structure:
            assert structure[4] & 0xFFFFFFFF == zlib.crc32(stored)
        levels = structure[8][5] + structure[8][6] if 8 in structure else 0
        before = levels if form == "java" else 0
        body = stored
        if mode != PLAINTEXT:
            dictionary = structure[1] == DICTIONARY
            module_type = modules.DICTIONARY_PAGE if dictionary else modules.DATA_PAGE
            place = (3, 4) if dictionary else (3, 4, ordinal)
            aad = modules.module_aad(TARGET_AAD, module_type, *place)
            body = stored[:before] + modules.open_module(stored[before:], key, aad, mode == AES_CTR)
        found.append((structure, body))
        ordinal += structure[1] != DICTIONARY
        at = end + structure[3]
    return found


# -- conversion ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("checksum", [False, True], ids=["", "CRC"])
@pytest.mark.parametrize("forms", list(itertools.product(["java", "arrow"], repeat=2)), ids="-".join)
@pytest.mark.parametrize("target", MODES)
@pytest.mark.parametrize("source", MODES)
@THREADS
def test_every_protection_to_every_other(
    threads: int, source: str, target: str, forms: tuple[str, str], checksum: bool
) -> None:
    data = chunk_of(PAGES, MODES[source], forms[0], checksum=checksum)
    pages, whole = found_in(data, MODES[source], MODES[target])
    conversion = Conversion(SOURCE_AAD, TARGET_AAD, levels_inside=forms[1] == "arrow", threads=threads)
    made = bytes(conversion.convert(pages, PageSource(data), 1000))
    again = taken_apart(made, MODES[target], forms[1])
    assert [body for _, body in again] == [body for _, body, _, _ in PAGES]
    overhead = {PLAINTEXT: 0, AES_GCM: 32, AES_CTR: 16}[MODES[target]]
    for (structure, body), (kind, _, repetition, definition) in zip(again, PAGES, strict=True):
        expected = header(
            len(body) + overhead, kind, repetition=repetition, definition=definition, uncompressed=len(body),
            crc=structure[4] & 0xFFFFFFFF if checksum else None,
        )  # fmt: skip
        assert structure == expected
    assert whole.total_compressed == len(made)
    headers = len(made) - sum(structure[3] for structure, _ in again)
    assert whole.total_uncompressed == headers + sum(len(body) for _, body in again)
    assert whole.dictionary_page_offset == whole.first_offset == 1000
    assert whole.data_page_offset == whole.page_locations()[0][1]
    assert len(whole.page_locations()) == len(PAGES) - 1
    before = [each["offset"] for each in pages.details()[1:]]
    assert [location[0] for location in whole.page_locations()] == before
    at = whole.data_page_offset
    for _, place, size in whole.page_locations():
        assert place == at
        at += size
    assert at == 1000 + len(made)


@THREADS
def test_launched_conversions_write_the_same(threads: int, tmp_path: Path) -> None:
    data = chunk_of(PAGES, PLAINTEXT, "java", checksum=True)
    with source_of(data, "file") as source, open(tmp_path / "out", "w+b") as target:
        conversion = Conversion(b"", TARGET_AAD, threads=threads)
        offset, bodies = 100, []
        for _ in range(3):
            pages, _ = found_in(data, PLAINTEXT, AES_GCM, source)
            conversion.start(pages, source, target.fileno(), offset, target_name="out")
            end = conversion.wait()
            target.seek(offset)
            bodies.append([body for _, body in taken_apart(target.read(end - offset), AES_GCM, "java")])
            offset = end
    assert bodies == [[body for _, body, _, _ in PAGES]] * 3
    assert (tmp_path / "out").stat().st_size == offset


def test_no_nonce_comes_twice() -> None:
    data = chunk_of(PAGES, PLAINTEXT, "java", checksum=False)
    nonces: list[bytes] = []
    for threads in (1, 8):
        pages, _ = found_in(data, PLAINTEXT, AES_GCM)
        made = bytes(
            Conversion(b"", TARGET_AAD, levels_inside=True, threads=threads).convert(pages, PageSource(data), 0)
        )
        at = 0
        while at < len(made):
            nonces.append(made[at + 4 : at + 16])
            at += 4 + int.from_bytes(made[at : at + 4], "little")
    assert len(nonces) == 4 * len(PAGES)
    assert len(set(nonces)) == len(nonces)


@pytest.mark.parametrize("value", [0, 1, 63, 64, 8191, 8192, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
def test_checksums_of_any_length_as_a_varint(value: int) -> None:
    # The new CRC cannot be chosen; the old one can, with the bytes that lead to it.
    prefix = b"page"
    body = prefix + tail_for(prefix, value)
    assert zlib.crc32(body) == value == crc32(body)
    plain = page(body, checksum=True)
    made = taken_apart(converted(b"PAR1" + plain, AES_GCM), AES_GCM, "java")
    assert [each for _, each in made] == [body]


def tail_for(prefix: bytes, wanted: int) -> bytes:
    """Four bytes that give the data a CRC: the register is run backwards."""
    table = []
    for number in range(256):
        value = number
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        table.append(value)
    state = wanted ^ 0xFFFFFFFF
    for _ in range(4):
        index = next(number for number in range(256) if table[number] >> 24 == state >> 24)
        state = ((state ^ table[index]) << 8 | index) & 0xFFFFFFFF
    return (state ^ zlib.crc32(prefix) ^ 0xFFFFFFFF).to_bytes(4, "little")


def converted(data: bytes, target: int, mode: int = PLAINTEXT, threads: int = 1) -> bytes:
    pages, _ = found_in(data, mode, target)
    return bytes(Conversion(SOURCE_AAD, TARGET_AAD, threads=threads).convert(pages, PageSource(data), 0))


@every("length", [*range(200), 255, 256, 1000, 4095, 65_537, *random.Random(6).sample(range(500, 5000), 200)])
def test_crc32_is_zlibs_by_registers_of_any_width(length: int) -> None:
    data = pattern(length + 3)
    for start in range(3):
        for bits in (0, 128, 256, 512):
            found = crc32(memoryview(data)[start : start + length], bits)
            assert found == zlib.crc32(data[start : start + length])


def test_nothing_to_convert() -> None:
    pages = PageList(SOURCE_AAD)
    for threads in (1, 8):
        assert Conversion(threads=threads).convert(pages, PageSource(b""), 77) == b""
        assert Conversion(threads=threads).verify(pages, PageSource(b"")) == []
        Conversion(threads=threads).view(pages, PageSource(b""), bytearray(), 0)


# -- both forms of V2 ----------------------------------------------------------------------------------------


def v2_page(stored: bytes, levels: int, length: int) -> bytes:
    plain = encode(header(len(stored), DATA_V2, repetition=levels, uncompressed=length))
    aad = modules.module_aad(SOURCE_AAD, modules.DATA_PAGE_HEADER, 1, 2, 0)
    return b"PARE" + bytes(modules.seal_module(plain, KEY, aad)) + stored


PAGE_AAD = modules.module_aad(SOURCE_AAD, modules.DATA_PAGE, 1, 2, 0)


def test_levels_that_look_like_a_length_word() -> None:
    values = pattern(100)
    for levels in (4, 5, 20):
        total = levels + len(values) + 32
        looks = struct.pack("<I", total - 4) + pattern(levels - 4)
        data = v2_page(looks + modules.seal_module(values, KEY, PAGE_AAD), levels, levels + 100)
        assert taken_apart(converted(data, PLAINTEXT, AES_GCM), PLAINTEXT, "java")[0][1] == looks + values
        # The same where the levels are encrypted: they are not looked at.
        data = v2_page(modules.seal_module(looks + values, KEY, PAGE_AAD), levels, levels + 100)
        assert taken_apart(converted(data, PLAINTEXT, AES_GCM), PLAINTEXT, "java")[0][1] == looks + values


@pytest.mark.parametrize("mode", [AES_GCM, AES_CTR])
def test_ciphertext_that_looks_like_a_length_word_behind_levels(mode: int) -> None:
    # Levels of 4 bytes: where the module of the other form would begin, this one has its nonce.
    plain = b"lvls" + pattern(60)
    overhead = 32 if mode == AES_GCM else 16
    nonce = struct.pack("<I", len(plain) + overhead - 8) + b"nonce..."
    if mode == AES_GCM:
        body = AESGCM(KEY).encrypt(nonce, plain, PAGE_AAD)
    else:
        module = modules.seal_module(bytes(len(plain)), KEY, b"", True)
        body = reference_ctr(nonce, plain)
        assert len(module) == 16 + len(body)
    stored = struct.pack("<I", 12 + len(body)) + nonce + body
    data = v2_page(stored, 4, len(plain))
    assert taken_apart(converted(data, PLAINTEXT, mode), PLAINTEXT, "java")[0][1] == plain


def reference_ctr(nonce: bytes, plain: bytes) -> bytes:
    made = reference_writer.Cipher(reference_writer.AES(KEY), reference_writer.CTR(nonce + b"\0\0\0\1")).encryptor()
    return bytes(made.update(plain) + made.finalize())


@pytest.mark.parametrize("levels", [1, 4, 31, 32, 33, 100])
def test_pages_that_are_too_short_for_a_module(levels: int) -> None:
    for length in range(levels, levels + 32):
        data = v2_page(bytes(length), levels, length)
        with pytest.raises((ags1.FormatError, ags1.AuthenticationError), match=r"data page 0 of column 'a.b' in row"):
            converted(data, PLAINTEXT, AES_GCM)


# -- damage --------------------------------------------------------------------------------------------------


@THREADS
def test_the_first_page_that_fails_is_named_and_nothing_comes_of_it(threads: int, tmp_path: Path) -> None:
    data = chunk_of([(DATA, pattern(3000, number), 0, 0) for number in range(60)], AES_GCM, "java", checksum=False)
    good, _ = found_in(data, AES_GCM)
    details = good.details()
    bad = data
    for number in (55, 41, 17):
        bad = flip(bad, details[number]["offset"] + details[number]["header_length"] + 100)
    expected = r"^lake.parquet: data page 17 of column 'a.b' in row group 1: wrong key, wrong AAD prefix, or damaged"
    for where in ("memory", "file"):
        with source_of(bad, where) as source:
            pages, whole = found_in(bad, AES_GCM, AES_GCM, source)
            conversion = Conversion(SOURCE_AAD, TARGET_AAD, threads=threads)
            with pytest.raises(ags1.AuthenticationError, match=expected):
                conversion.convert(pages, source, 0)
            out = bytearray(b"x" * len(bad))
            with pytest.raises(ags1.AuthenticationError, match=expected):
                conversion.view(pages, source, out, 0)
            assert not any(out), "unverified plaintext in the caller's memory"
            with open(tmp_path / "out", "wb") as target:
                conversion.start(pages, source, target.fileno(), 0)
                with pytest.raises(ags1.AuthenticationError, match=expected):
                    conversion.wait()
            assert whole.page_locations() == []
            # And the conversion can be used on.
            assert len(conversion.convert(good, PageSource(data), 0)) > 0


@THREADS
def test_verify_goes_on_behind_what_failed(threads: int) -> None:
    pages_ = [(DICTIONARY, pattern(50), 0, 0), *((DATA, pattern(3000, number), 0, 0) for number in range(40))]
    data = chunk_of(pages_, AES_GCM, "java", checksum=True)
    good, _ = found_in(data, AES_GCM)
    details = good.details()
    assert Conversion(SOURCE_AAD, threads=threads).verify(good, PageSource(data)) == []
    bad, wrong = data, [0, 3, 4, 39]
    for number in wrong:
        bad = flip(bad, details[number]["offset"] + details[number]["header_length"] + 40)
    failures = Conversion(SOURCE_AAD, threads=threads).verify(good, PageSource(bad))
    assert [ordinal for _, ordinal, _ in failures] == [None, 2, 3, 38]
    assert {type(error) for _, _, error in failures} == {ags1.AuthenticationError}
    assert "dictionary page of column 'a.b' in row group 1: wrong key" in str(failures[0][2])
    without = chunk_of(pages_, AES_GCM, "java", checksum=False)
    good, whole = found_in(without, AES_GCM)
    details = good.details()
    bad = flip(without, details[5]["offset"] + details[5]["header_length"] + 40)
    ((failed, ordinal, error),) = Conversion(SOURCE_AAD, threads=threads).verify(good, PageSource(bad))
    assert failed is whole
    assert ordinal == 4
    assert type(error) is ags1.AuthenticationError
    # Nothing of one run is left in the next.
    assert Conversion(SOURCE_AAD, threads=threads).verify(good, PageSource(without)) == []


@pytest.mark.parametrize("task", ["convert", "view", "verify"])
def test_a_wrong_checksum_is_found_where_no_tag_is(task: str) -> None:
    # The last are levels in front of a module: no tag covers them, but the checksum does, whose header has one.
    for mode, kind, levels, at in (
        (PLAINTEXT, DATA, 0, -1),
        (AES_CTR, DATA, 0, -1),
        (AES_GCM, DATA_V2, 5, -137),
        (AES_GCM, DATA_V2, 5, -133),
        (AES_CTR, DATA_V2, 5, -121),
    ):
        data = bytearray(chunk_of([(kind, pattern(105), levels, 0)], mode, "java", checksum=True))
        pages, _ = found_in(bytes(data), mode)
        data[at] ^= 1
        source, conversion = PageSource(bytes(data)), Conversion(SOURCE_AAD)
        out = bytearray(len(data))
        call = functools.partial(conversion.convert, pages, source, 0)
        if task == "view":
            call = functools.partial(conversion.view, pages, source, out, 0)
        if task == "verify":
            assert "its CRC does not match its bytes" in str(conversion.verify(pages, source)[0][2])
            continue
        with pytest.raises(ags1.FormatError, match=r"data page 0 .*: its CRC does not match its bytes: damaged data"):
            call()


# -- misuse --------------------------------------------------------------------------------------------------


def test_sources_that_do_not_have_the_pages() -> None:
    data = chunk_of([(DATA, pattern(5000), 0, 0)] * 3, AES_GCM, "java", checksum=False)
    pages, _ = found_in(data, AES_GCM)
    for source in (PageSource(data[:-1]), PageSource(b""), PageSource(data[5:], base=5)):
        for call in (
            lambda s=source: Conversion(SOURCE_AAD).convert(pages, s, 0),
            lambda s=source: Conversion(SOURCE_AAD).verify(pages, s),
            lambda s=source: Conversion(SOURCE_AAD).view(pages, s, bytearray(len(data)), 0),
            lambda s=source: Conversion(SOURCE_AAD).start(pages, s, 1, 0),
        ):
            with pytest.raises(ValueError, match="the source does not have all of the pages"):
                call()


def test_landing_without_a_launch() -> None:
    conversion = Conversion()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="nothing was started"):
            conversion.wait()
        conversion.stop()
    conversion.convert(PageList(), PageSource(b""), 0)
    with pytest.raises(RuntimeError, match="nothing was started"):
        conversion.wait()


def test_wrong_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="target must be a descriptor, got -1"):
        Conversion().start(PageList(), PageSource(b""), -1, 0)
    for call in (Conversion().convert, Conversion().verify):
        with pytest.raises(TypeError):
            call(None, PageSource(b""), *([0] if call.__name__ == "convert" else []))  # type: ignore[operator]
        with pytest.raises(TypeError):
            call(PageList(), None, *([0] if call.__name__ == "convert" else []))  # type: ignore[operator]
    with pytest.raises(ValueError, match="threads"):
        Conversion(threads=0).convert(PageList(), PageSource(b""), 0)


def started(directory: Path, size: int = 40_000) -> tuple[Conversion, PageList, Any, Any]:
    """A conversion that has pages of 40 MB to write, with the file objects that it needs."""
    data = b"PAR1" + page(pattern(size)) * 1000
    path = directory / "source"
    path.write_bytes(data)
    file, target = path.open("rb"), (directory / "out").open("wb")
    source = PageSource(file.fileno())
    pages, _ = found_in(data, PLAINTEXT, AES_GCM, source)
    conversion = Conversion(b"", TARGET_AAD, threads=2)
    conversion.start(pages, source, target.fileno(), 0)
    return conversion, pages, file, target


def test_what_is_in_use_is_not_taken_away(tmp_path: Path) -> None:
    conversion, pages, file, target = started(tmp_path)
    with file, target:
        source = PageSource(file.fileno())
        for call in (
            lambda: conversion.start(pages, source, target.fileno(), 0),
            lambda: conversion.convert(pages, source, 0),
            lambda: conversion.verify(pages, source),
            lambda: conversion.view(pages, source, bytearray(50_000_000), 0),
        ):
            with pytest.raises(RuntimeError, match="this conversion, or the list of pages, is in use"):
                call()
        for change in (pages.clear, lambda: pages.add(Chunk(4, 100, 0, "a"), source, ALL)):
            with pytest.raises(RuntimeError, match="the pages of this list are being converted"):
                change()
        assert conversion.wait() == (tmp_path / "out").stat().st_size
        pages.clear()


@pytest.mark.parametrize("end", ["stop", "del", "cycle", "wait"])
def test_threads_end_with_their_conversion(end: str, tmp_path: Path) -> None:
    before = os_threads()
    for _ in range(2):
        conversion, pages, file, target = started(tmp_path)
        if end == "cycle":
            # Garbage that the collector takes apart in an order of its own.
            ring: list[Any] = [conversion]
            ring.append(ring)
            del ring
        elif end == "wait":
            conversion.wait()
        elif end == "stop":
            conversion.stop()
            conversion.stop()
        del conversion, pages
        gc.collect()
        file.close()
        target.close()
    assert not os_threads() - before


def test_an_exception_between_launch_and_landing(tmp_path: Path) -> None:
    before = os_threads()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            interrupted(tmp_path)
        gc.collect()
        assert not os_threads() - before


def interrupted(directory: Path) -> None:
    conversion, _, file, target = started(directory)
    with file, target:
        try:
            raise KeyboardInterrupt
        except BaseException:
            conversion.stop()
            raise


def test_a_child_forked_in_between_neither_waits_nor_crashes(tmp_path: Path) -> None:
    run_python(
        """
        import gc, os, select, signal, sys
        from pathlib import Path
        from tests.checks import HANG_SECONDS
        from tests.parquet.test_conversion import started
        conversion, pages, file, target = started(Path(sys.argv[1]))
        for kind in ("wait", "stop", "del", "use"):
            child = os.fork()
            if child == 0:
                status = 1
                signal.alarm(HANG_SECONDS)
                try:
                    if kind == "wait":
                        try:
                            conversion.wait()
                        except RuntimeError as error:
                            status = 0 if "in the parent process" in str(error) else 2
                    elif kind == "stop":
                        conversion.stop()
                        status = 0
                    elif kind == "del":
                        del conversion
                        gc.collect()
                        status = 0
                    else:
                        conversion.stop()
                        pages.clear()
                        own = Path(sys.argv[1], "child")
                        own.mkdir()
                        mine = started(own)
                        status = 0 if mine[0].wait() > 0 else 3
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, kind
        assert conversion.wait() > 0
        """,
        str(tmp_path),
    )


# -- what may fail beneath -----------------------------------------------------------------------------------


@THREADS
def test_a_file_that_shrinks_before_it_is_converted(threads: int, tmp_path: Path) -> None:
    data = b"PAR1" + page(pattern(40_000)) * 100
    with source_of(data, "file") as source, open(tmp_path / "lake.parquet", "w+b") as file:
        file.write(data)
        file.flush()
        source = PageSource(file.fileno(), name="lake.parquet")
        pages, _ = found_in(data, PLAINTEXT, AES_GCM, source)
        file.truncate(len(data) // 2)
        conversion = Conversion(b"", TARGET_AAD, threads=threads)
        expected = r"^lake.parquet: data page \d+ of column 'a.b' in row group 1: the file ends inside it$"
        with pytest.raises(ags1.TruncatedError, match=expected):
            conversion.convert(pages, source, 0)
        with pytest.raises(ags1.TruncatedError, match=expected):
            conversion.verify(pages, source)
        with open(tmp_path / "out", "wb") as target:
            conversion.start(pages, source, target.fileno(), 0)
            with pytest.raises(ags1.TruncatedError, match=expected):
                conversion.wait()


@THREADS
def test_a_target_that_is_full(threads: int, tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    data = b"PAR1" + page(pattern(40_000)) * 100
    with source_of(data, "file") as source, open("/dev/full", "wb", buffering=0) as target:
        pages, _ = found_in(data, PLAINTEXT, AES_GCM, source)
        conversion = Conversion(b"", TARGET_AAD, threads=threads)
        conversion.start(pages, source, target.fileno(), 0, target_name="target.parquet")
        with pytest.raises(OSError, match=r"No space left on device: 'target.parquet'") as caught:
            conversion.wait()
        assert caught.value.errno == errno.ENOSPC


def test_a_page_that_would_be_too_large() -> None:
    # A header may claim what no page can become: the body is not there, and nothing is read for it.
    with source_of(b"PAR1" + encode(header((1 << 31) - 1)) + b"x", "file") as source:
        whole = Chunk(4, (1 << 31) + 100, 0, "a", target_protection=AES_GCM, target_key=KEY)
        with pytest.raises(ags1.TruncatedError):
            PageList().add(whole, source, ALL)
