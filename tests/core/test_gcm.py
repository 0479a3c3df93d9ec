"""AES-GCM against NIST's known answers, and keys that do not leak."""

from __future__ import annotations

import copy
import json
import mmap
import pickle
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cryptography_vectors
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import ags1
from ags1.core import gcm
from tests.checks import BUFFER_KINDS, KEY, KEY_LENGTHS, KEYS, OTHER_KEY, BufferKind, flip, pattern

NONCE = bytes(range(12))


# -- known answers -------------------------------------------------------------------------------------------


def nist_cases(name: str) -> Iterator[dict[str, Any]]:
    """Cases of a CAVP response file with the nonce and tag lengths that AGS1 has."""
    sizes: dict[str, str] = {}
    case: dict[str, Any] = {}
    with cryptography_vectors.open_vector_file(f"ciphers/AES/GCM/{name}", "r") as lines:
        for line in [*lines, ""]:
            setting = re.fullmatch(r"\[(\w+) = (\d+)\]", line.strip())
            if setting:
                sizes[setting[1]] = setting[2]
            elif line.startswith("Count"):
                case = {"fails": False}
            elif line.strip() == "FAIL":
                case["fails"] = True
            elif "=" in line:
                field, _, value = line.partition("=")
                case[field.strip()] = bytes.fromhex(value.strip())
            elif not line.strip() and case:
                if sizes["IVlen"] == "96" and sizes["Taglen"] == "128":
                    yield case
                case = {}


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_nist_encryptions_are_reproduced(bits: int) -> None:
    cases = list(nist_cases(f"gcmEncryptExtIV{bits}.rsp"))
    assert len(cases) >= 300
    for case in cases:
        sealed = gcm.seal_message(case["PT"], case["Key"], case["IV"], case["AAD"])
        assert sealed == case["CT"] + case["Tag"]
        assert gcm.open_message(sealed, case["Key"], case["IV"], case["AAD"]) == case["PT"]


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_nist_decryptions_succeed_or_fail_as_they_should(bits: int) -> None:
    cases = list(nist_cases(f"gcmDecrypt{bits}.rsp"))
    assert len(cases) >= 300
    assert {case["fails"] for case in cases} == {True, False}
    for case in cases:
        plaintext = gcm.open_message(case["CT"] + case["Tag"], case["Key"], case["IV"], case["AAD"])
        assert plaintext == (None if case["fails"] else case["PT"])


def test_the_cases_of_wycheproof_come_out_as_it_says() -> None:
    found = json.loads(Path(__file__).with_name("wycheproof_aes_gcm.json").read_text())
    outcomes = Counter[str]()
    for number, *octets, result in found["cases"]:
        key, nonce, aad, message, ciphertext, tag = map(bytes.fromhex, octets)
        outcomes[result] += 1
        if result == "valid":
            assert gcm.seal_message(message, key, nonce, aad) == ciphertext + tag, number
            assert gcm.open_message(ciphertext + tag, key, nonce, aad) == message, number
        else:
            assert gcm.open_message(ciphertext + tag, key, nonce, aad) is None, number
    assert outcomes == {"valid": 116, "invalid": 81}


@pytest.mark.parametrize("key_length", KEY_LENGTHS)
@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 31, 255, 256, 1023, 4096, 100_003])
def test_messages_of_any_length_agree_with_another_library(key_length: int, length: int) -> None:
    key, data, aad = KEYS[key_length], pattern(length), pattern(length % 37, seed=1)
    sealed = gcm.seal_message(data, key, NONCE, aad)
    assert sealed == AESGCM(key).encrypt(NONCE, data, aad)
    assert gcm.open_message(sealed, key, NONCE, aad) == data


def test_messages_that_the_cipher_gets_in_pieces_agree_with_another_library() -> None:
    """Every remainder by 768 on both sides of each length at which the pieces change (include/ags1/core/pieces.h)."""
    chooser = random.Random(768)
    lengths = {*range(2560 - 8, 2560 + 768, 7), 4096, 16 << 10, 64 << 10}
    for middle in (32 << 10, 64 << 10, 96 << 10, 128 << 10):
        lengths.update(chooser.randrange(middle - 800, middle + 800) for _ in range(40))
    data = memoryview(chooser.randbytes(max(lengths)))
    key, nonce = chooser.randbytes(32), chooser.randbytes(12)
    other = AESGCM(key)
    for length in sorted(lengths):
        sealed = other.encrypt(nonce, data[:length], b"aad")
        assert gcm.seal_message(data[:length], key, nonce, b"aad") == sealed, length
        assert gcm.open_message(sealed, key, nonce, b"aad") == data[:length], length


@pytest.mark.parametrize("where", ["ciphertext", "tag", "aad", "nonce", "key", "missing-tag-byte"])
def test_a_changed_bit_anywhere_opens_nothing(where: str) -> None:
    parts = {
        "data": gcm.seal_message(b"plaintext", KEY, NONCE, b"aad"),
        "key": KEY,
        "nonce": NONCE,
        "aad": b"aad",
    }
    assert gcm.open_message(**parts) == b"plaintext"
    if where == "ciphertext":
        parts["data"] = flip(parts["data"], 0)
    elif where == "tag":
        parts["data"] = flip(parts["data"], -1)
    elif where == "missing-tag-byte":
        parts["data"] = parts["data"][:-1]
    else:
        parts[where] = flip(parts[where], -1)
    assert gcm.open_message(**parts) is None


@pytest.mark.parametrize("length", [0, 1, 15])
def test_a_message_shorter_than_its_tag_opens_nothing(length: int) -> None:
    assert gcm.open_message(bytes(length), KEY, NONCE) is None


@pytest.mark.parametrize("length", [0, 11, 13, 16])
@pytest.mark.parametrize("function", [gcm.seal_message, gcm.open_message])
def test_nonces_of_other_lengths_are_refused(function: Callable[..., Any], length: int) -> None:
    with pytest.raises(ValueError, match=f"nonce must be 12 bytes, got {length}"):
        function(bytes(32), KEY, bytes(length))


@pytest.mark.slow
def test_all_of_an_aad_beyond_4_gib_is_authenticated() -> None:
    # A length that went through a C int would leave 5 bytes of it. Untouched private memory takes no room.
    with mmap.mmap(-1, (1 << 32) + 5, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as huge:
        assert gcm.seal_message(b"", KEY, NONCE, huge) != gcm.seal_message(b"", KEY, NONCE, bytes(5))


def test_random_bytes_come_in_the_length_asked_for_and_never_twice() -> None:
    drawn = [gcm.random_bytes(16) for _ in range(1000)]
    assert {len(each) for each in drawn} == {16}
    assert len(set(drawn)) == len(drawn)
    assert gcm.random_bytes(0) == b""


def test_library_says_which_openssl_it_is() -> None:
    library = gcm.library()
    assert re.match(r"OpenSSL \d+\.\d+\.\d+", library["version"])
    assert library["number"] >= 0x30000000
    assert library["linkage"] in {"bundled-static", "system-shared", "prefix-static", "prefix-shared"}
    assert isinstance(library["cpu_settings"], str)


# -- keys ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", KEY_LENGTHS)
def test_a_key_has_the_bytes_it_was_made_of(length: int) -> None:
    key = ags1.Key(KEYS[length])
    assert bytes(key) == KEYS[length]
    assert memoryview(key).tobytes() == KEYS[length]
    assert (len(key), key.bits) == (length, 8 * length)
    assert bytes(ags1.Key(key)) == KEYS[length]


@pytest.mark.parametrize("kind", [kind for kind in BUFFER_KINDS if 32 % kind.itemsize == 0], ids=str)
def test_a_key_is_made_of_any_buffer(kind: BufferKind) -> None:
    assert bytes(ags1.Key(kind.make(KEY))) == KEY


@pytest.mark.parametrize("length", [0, 1, 8, 15, 17, 23, 25, 31, 33, 64, 128, 256])
def test_keys_of_other_sizes_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match=rf"^key must be 16, 24 or 32 bytes \(AES-128.*\), got {length}$"):
        ags1.Key(bytes(length))


def test_a_key_of_16_items_but_64_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="got 64"):
        ags1.Key(np.zeros(16, np.int32))


def test_text_is_no_key() -> None:
    with pytest.raises(TypeError, match=r"key must be a bytes-like object .* not str"):
        ags1.Key("0123456789012345")
    with pytest.raises(TypeError, match=r"key must be a bytes-like object .* not NoneType"):
        ags1.Key(None)


def test_a_key_does_not_follow_what_becomes_of_its_source() -> None:
    source = bytearray(KEY)
    key = ags1.Key(source)
    source[:] = bytes(32)
    assert bytes(key) == KEY


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_generated_keys_have_their_size_and_are_never_the_same(bits: int) -> None:
    keys = [bytes(ags1.Key.generate(bits)) for _ in range(200)]
    assert {len(key) for key in keys} == {bits // 8}
    assert len(set(keys)) == len(keys)
    assert bytes(bits // 8) not in keys
    # No byte stays as it was before it was drawn.
    assert all(len({key[position] for key in keys}) > 1 for position in range(bits // 8))


def test_generate_makes_256_bits_unless_told_otherwise() -> None:
    assert ags1.Key.generate().bits == 256


@pytest.mark.parametrize("bits", [0, 16, 32, 64, 255, 257, 512, "256", None])
def test_keys_of_other_sizes_are_not_generated(bits: Any) -> None:
    with pytest.raises(ValueError, match="bits must be 128, 192 or 256, got"):
        ags1.Key.generate(bits)


@pytest.mark.parametrize(
    "show",
    [
        repr,
        str,
        ascii,
        "{}".format,
        "{!r}".format,
        "%s".__mod__,
        lambda key: f"{key:}",
        lambda key: repr([key]),
    ],
    ids=["repr", "str", "ascii", "format", "format-r", "percent", "f-string", "in-a-list"],
)
def test_a_key_shows_its_size_and_nothing_else(show: Callable[[Any], str]) -> None:
    key = ags1.Key(KEY)
    shown = show(key)
    assert "<ags1.Key AES-256 [redacted]>" in shown
    assert shown == show(ags1.Key(OTHER_KEY))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_key_cannot_be_pickled(protocol: int) -> None:
    with pytest.raises(TypeError, match="cannot be pickled or copied: send a wrapped key"):
        pickle.dumps(ags1.Key(KEY), protocol)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_a_key_cannot_be_copied_unnoticed(duplicate: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        duplicate(ags1.Key(KEY))


def test_keys_are_equal_if_their_bytes_are() -> None:
    key = ags1.Key(KEY)
    for same in (key, ags1.Key(KEY), KEY, bytearray(KEY), memoryview(KEY)):
        assert key == same
        assert same == key
        assert not key != same  # noqa: SIM202


@pytest.mark.parametrize(
    "other",
    [
        ags1.Key(OTHER_KEY),
        OTHER_KEY,
        ags1.Key(KEY[:16]),
        KEY[:16],
        KEY + b"\x00",
        b"",
        flip(KEY, 31, 7),
        flip(KEY, 0),
        KEY.hex(),
        None,
        0,
        memoryview(bytes(64))[::2],
    ],
)
def test_keys_differ_from_everything_else(other: Any) -> None:
    assert ags1.Key(KEY) != other
    assert other != ags1.Key(KEY)


def test_a_short_key_does_not_equal_its_zero_extension() -> None:
    # Both lie in 32 bytes of memory.
    assert ags1.Key(KEY[:16]) != ags1.Key(KEY[:16] + bytes(16))
    assert ags1.Key(bytes(16)) != ags1.Key(bytes(32))


def test_keys_have_no_hash_and_no_order() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(ags1.Key(KEY))
    with pytest.raises(TypeError, match="not supported between"):
        ags1.Key(KEY) < ags1.Key(OTHER_KEY)  # type: ignore[operator]  # noqa: B015


def test_a_key_cannot_be_written_through_its_buffer() -> None:
    key = ags1.Key(KEY)
    view = memoryview(key)
    assert (view.readonly, view.format, view.itemsize, view.shape, view.strides) == (
        True,
        "B",
        1,
        (32,),
        (1,),
    )
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 1
    with pytest.raises(TypeError, match="out must be writable, but this Key is read-only"):
        ags1.encrypt_into(b"", key, KEY)
    with pytest.raises(AttributeError):
        key.octets = b""  # type: ignore[attr-defined]
    assert bytes(key) == KEY


def test_the_bytes_of_a_key_outlive_the_name_of_the_key() -> None:
    view = memoryview(ags1.Key(KEY))
    assert view.tobytes() == KEY


# -- keys in memory ------------------------------------------------------------------------------------------

# The key travels masked and is unmasked in place, so that the only copies of it are the ones under test.
HOLDER = """
import os, sys
import ags1

MASK = 0x5A

def show(text):
    os.write(1, text.encode() + b"\\n")

def wait():
    os.read(0, 1)

def from_bytes():
    secret = bytearray.fromhex(sys.argv[2])
    for position in range(len(secret)):
        secret[position] ^= MASK
    key = ags1.Key(secret)
    for position in range(len(secret)):
        secret[position] = 0
    return key

def use(key):
    for threads in (1, 4):
        stream = ags1.encrypt(bytes(8 << 20), key, threads=threads)
        ags1.decrypt(stream, key, threads=threads)
    streams = ags1.encrypt_many([b"a", b"b"], key)
    ags1.decrypt_many(streams, key)

key = from_bytes() if sys.argv[1] != "generated" else ags1.Key.generate()
if sys.argv[1] == "used":
    use(key)
if sys.argv[1] == "copied":
    copy = ags1.Key(key)
    del copy
show(bytes(octet ^ MASK for octet in memoryview(key)).hex())
wait()
del key
show("gone")
wait()
"""


def occurrences(process: int, needle: bytes) -> int:
    """How often the bytes lie in the writable memory of a process."""
    found = 0
    regions = Path(f"/proc/{process}/maps").read_text().splitlines()
    with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        for region in regions:
            addresses, permissions, *_ = region.split()
            if "w" not in permissions:
                continue
            start, end = (int(address, 16) for address in addresses.split("-"))
            try:
                memory.seek(start)
                found += memory.read(end - start).count(needle)
            except OSError:
                continue
    return found


@pytest.mark.parametrize("how", ["made", "generated", "copied", "used"])
@pytest.mark.timeout(60)
def test_no_copy_of_a_key_is_left_in_memory_when_it_is_gone(how: str) -> None:
    masked = random.Random(how).randbytes(32).hex()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, how, masked], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        secret = bytes(octet ^ 0x5A for octet in bytes.fromhex(child.stdout.readline().decode()))
        assert len(secret) == 32
        while_alive = occurrences(child.pid, secret)
        child.stdin.write(b".")
        child.stdin.flush()
        assert child.stdout.readline() == b"gone\n"
        when_gone = occurrences(child.pid, secret)
        child.stdin.write(b".")
        child.stdin.flush()
    assert (while_alive, when_gone) == (1, 0)
