"""Your functions beside a floor, in the same rounds."""

import os

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from mycodec import decrypt, encrypt

from ags1 import bench

KEY, DATA = os.urandom(32), os.urandom(1 << 20)
QUESTIONS = bench.codec_questions(bench.Codec("mycodec", encrypt, decrypt), nbytes=1 << 18)


def test_encrypt_is_as_fast_as_its_cipher(paired) -> None:
    """At least half the speed of the cipher."""
    cipher = AESGCM(KEY)
    paired(lambda: encrypt(DATA, KEY), lambda: cipher.encrypt(bytes(12), DATA, None), at_least=0.5, nbytes=len(DATA))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.name)
def test_each_question_beside_ags1(paired, question) -> None:
    """A wide limit, for the first run."""
    paired(question.mine, question.other, at_least=0.02, nbytes=question.nbytes)
