"""Speed as a test: your functions beside a floor that runs in the same rounds."""

import os

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from mycodec import decrypt, encrypt

from ags1 import bench

KEY, NONCE, DATA = os.urandom(32), os.urandom(12), os.urandom(1 << 20)
# Any codec can be asked what ags1 is asked; more of its functions, more questions.
MINE = bench.Codec("mycodec", encrypt, decrypt)
QUESTIONS = {each.name: each for each in bench.codec_questions(MINE, nbytes=1 << 18)}


def test_encrypt_is_as_fast_as_its_cipher(paired) -> None:
    """A promise beside the best that can be."""
    cipher = AESGCM(KEY)
    # The share of the floor's speed that you promise.
    paired(lambda: encrypt(DATA, KEY), lambda: cipher.encrypt(NONCE, DATA, None), at_least=0.5, nbytes=len(DATA))


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_question_beside_ags1(paired, name: str) -> None:
    """Raise 0.02 to what you promise."""
    question = QUESTIONS[name]
    paired(question.mine, question.other, at_least=0.02, nbytes=question.nbytes)
