"""The exception family: its tree, what it catches, and what is none of its business."""

from __future__ import annotations

import copy
import pickle
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import errors
from tests.checks import KEY, damage, run_python

TREE = {
    "Ags1Error": (Exception,),
    "FormatError": (ags1.Ags1Error, ValueError),
    "TruncatedError": (ags1.FormatError, EOFError),
    "UnsupportedError": (ags1.FormatError,),
    "AlreadyEncryptedError": (ags1.FormatError,),
    "ConflictError": (ags1.Ags1Error,),
    "AuthenticationError": (ags1.Ags1Error,),
    "LimitError": (ags1.Ags1Error, OverflowError),
    "BackendError": (ags1.Ags1Error, RuntimeError),
    "KeyAccessError": (ags1.Ags1Error,),
}


@pytest.mark.parametrize("name", TREE)
def test_each_error_has_exactly_these_parents(name: str) -> None:
    assert getattr(errors, name).__bases__ == TREE[name]
    assert getattr(ags1, name) is getattr(errors, name)


def test_the_family_has_no_other_members() -> None:
    defined = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert defined == set(errors.__all__) == set(TREE)


def test_a_failed_tag_is_not_taken_for_a_wrong_argument_or_a_system_fault() -> None:
    assert not issubclass(ags1.AuthenticationError, (ValueError, OSError, EOFError, RuntimeError))


def test_no_member_is_an_os_error() -> None:
    # An `except OSError` that retries must not retry damaged data.
    assert not [name for name in TREE if issubclass(getattr(ags1, name), OSError)]


@pytest.mark.parametrize("duplicate", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_survives_the_way_back_from_another_process(duplicate: Callable[[Any], Any]) -> None:
    error = ags1.AuthenticationError.for_block(7, "a.avro", 3)
    again = duplicate(error)
    assert type(again) is ags1.AuthenticationError
    assert (str(again), again.block_index, again.item_index) == (str(error), 7, 3)
    for name in TREE:
        error = getattr(ags1, name)("why")
        assert (type(duplicate(error)), str(duplicate(error))) == (type(error), "why")


def test_an_authentication_error_knows_its_block_if_there_is_one() -> None:
    assert ags1.AuthenticationError("no block").block_index is None
    stream = damage(ags1.encrypt(bytes(50), KEY, block_length=10), 10, 3)
    with pytest.raises(ags1.AuthenticationError, match=r"^block 3 failed authentication: wrong key,") as caught:
        ags1.decrypt(stream, KEY)
    assert caught.value.block_index == 3
    named = ags1.AuthenticationError.for_block(0, "s3://bucket/a.avro")
    assert str(named).startswith("s3://bucket/a.avro: block 0 failed authentication")


def test_faults_of_the_system_stay_os_errors(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for call in (
        lambda: ags1.open(missing, key=KEY),
        lambda: ags1.open(missing / "below", "wb", key=KEY),
        lambda: ags1.encrypt_file(missing, tmp_path / "out", KEY),
        lambda: ags1.decrypt_file(missing, tmp_path / "out", KEY),
    ):
        with pytest.raises(FileNotFoundError, match="missing") as caught:
            call()
        assert not isinstance(caught.value, ags1.Ags1Error)


# Takes getrandom and every new file, so also /dev/urandom, from the process: OpenSSL then has no randomness.
WITHOUT_RANDOMNESS = """
    import ctypes, io, platform, resource, struct
    import ags1, ags1.streams.stream

    number = {"x86_64": 318, "aarch64": 278}[platform.machine()]
    program = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in [
            (0x20, 0, 0, 0),                 # load the number of the system call
            (0x15, 0, 1, number),            # getrandom?
            (0x06, 0, 0, 0x00050000 | 38),   # then ENOSYS
            (0x06, 0, 0, 0x7FFF0000),        # else go on
        ]
    )
    memory = ctypes.create_string_buffer(program)
    argument = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(memory)))
    system = ctypes.CDLL(None, use_errno=True)
    if system.prctl(38, 1, 0, 0, 0) or system.prctl(22, 2, argument):
        print("errno", ctypes.get_errno())
        raise SystemExit
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))

    def write_stream():
        with ags1.Writer(sink, bytes(16)) as writer:
            writer.write(b"data")

    out, sink = bytearray(1000), io.BytesIO()
    for call in (
        lambda: ags1.Key.generate(),
        lambda: ags1.KeyMetadata.generate(),
        lambda: ags1.encrypt(b"data", bytes(16)),
        lambda: ags1.encrypt(bytes(100), bytes(16), block_length=1),
        lambda: ags1.encrypt_into(b"data", out, bytes(16)),
        lambda: ags1.encrypt_many([b"data"], bytes(16)),
        write_stream,
    ):
        try:
            call()
        except ags1.BackendError as error:
            print(error)
    print(any(out[8:]), len(sink.getvalue()) >= 36)
"""


@pytest.mark.timeout(60)
def test_a_random_generator_that_fails_is_an_error_and_not_a_zero_nonce() -> None:
    *messages, written = run_python(WITHOUT_RANDOMNESS).splitlines()
    if written == "errno 22" and platform.machine() != "x86_64":
        pytest.skip("no system call can be taken away here: QEMU emulates none of that")
    assert len(messages) == 7
    assert all("the random generator failed while drawing" in message for message in messages)
    assert written == "False False"
