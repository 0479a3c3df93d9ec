"""Anybody's encryption functions are asked what ags1 is asked."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest

from ags1 import bench

pytest.importorskip("cryptography")

QUICK: dict[str, Any] = {"seconds": 0.0, "limit": 0.0, "min_rounds": 3}
ALL = {
    *(f"{verb}, one object" for verb in ("encrypt", "decrypt")),
    *(f"{verb}_into, {size} blocks" for verb in ("encrypt", "decrypt") for size in ("4 KiB", "64 KiB", "1 MiB")),
    *(f"{verb}, {size} a call" for verb in ("encrypt", "decrypt") for size in ("256 B", "4 KiB", "64 KiB")),
    *(f"{verb}_many, {size}" for verb in ("encrypt", "decrypt") for size in ("256 B", "4 KiB", "64 KiB")),
}


def _encrypt(data: Any, key: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(12)
    return nonce + AESGCM(key).encrypt(nonce, data, None)


def _decrypt(stream: Any, key: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    view = memoryview(stream)
    return AESGCM(key).decrypt(view[:12], view[12:], None)


CRYPTOGRAPHY = bench.Codec(
    "cryptography",
    _encrypt,
    _decrypt,
    encrypt_many=lambda buffers, key: [_encrypt(each, key) for each in buffers],
    decrypt_many=lambda streams, key: [_decrypt(each, key) for each in streams],
)


def test_ags1_and_a_loop_on_cryptography_are_asked_all_that_they_can() -> None:
    ours = bench.codec_questions(bench.AGS1, CRYPTOGRAPHY, nbytes=70_000)
    assert {each.name for each in ours} == {name for name in ALL if "into" not in name}
    found = {each.name for each in bench.codec_questions(bench.AGS1, nbytes=70_000)}
    assert found == ALL
    for each in ours:
        done = each.ask(**QUICK)
        assert done.run.rounds >= 3
        assert 0 < each.nbytes <= 70_000


def test_a_deliberately_slow_codec_is_slower_in_each_question_and_no_other() -> None:
    """The cost of a call is a fixed amount of work in a fake clock: what is proven is that each function is asked."""
    for name in ("encrypt", "decrypt", "encrypt_into", "decrypt_into", "encrypt_many", "decrypt_many"):
        now = [0.0]
        plain = getattr(bench.AGS1, name)

        def slow(*arguments: Any, plain: Any = plain, now: list[float] = now) -> Any:
            now[0] += 1.0
            return plain(*arguments)

        codec = dataclasses.replace(bench.AGS1, name="slow", **{name: slow})
        slower = set()
        for each in bench.codec_questions(codec, nbytes=1000):
            before = now[0]
            each.mine()
            if now[0] > before:
                slower.add(each.name)
            before = now[0]
            each.other()
            assert now[0] == before
        assert slower == {each for each in ALL if each.split(",")[0] == name}


def test_what_is_no_authenticated_encryption_is_refused() -> None:
    for change, said in (
        ({"decrypt": lambda stream, key: b""}, "decrypt does not return what encrypt was given"),
        ({"decrypt": lambda stream, key: bytes(stream), "encrypt": lambda data, key: data}, "a flipped bit"),
        ({"decrypt_into": lambda stream, out, key: 0}, "decrypt_into does not return"),
        ({"decrypt_many": lambda streams, key: [b""] * len(streams)}, "decrypt_many does not return"),
    ):
        codec = dataclasses.replace(bench.AGS1, name="other", **change)
        for ask in (bench.codec_questions, bench.register):
            with pytest.raises(bench.CodecError, match=f"other: {said}"):
                ask(codec)


def test_codecs_are_registered_once_for_each_name() -> None:
    assert bench.register(CRYPTOGRAPHY) is bench.register(CRYPTOGRAPHY)
    assert bench.codecs()[0] is bench.AGS1
    assert CRYPTOGRAPHY in bench.codecs()
    with pytest.raises(ValueError, match="another codec 'ags1'"):
        bench.register(bench.AGS1)
    with pytest.raises(ValueError, match="another codec 'cryptography'"):
        bench.register(dataclasses.replace(CRYPTOGRAPHY))
