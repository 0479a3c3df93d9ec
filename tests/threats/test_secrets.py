"""Keys stay where they belong: not in what is printed, logged, raised, pickled or named, nor in memory after use."""

from __future__ import annotations

import base64
import copy
import io
import json
import logging
import multiprocessing.reduction
import os
import pickle
import re
import stat
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.cli import main
from ags1.core import gcm
from ags1.storage import atomic
from tests.checks import PREFIX, damage, pattern
from tests.threats import memory

# Every four bytes of it are to be found nowhere, in no spelling.
SECRET = bytes.fromhex("d1e5a7c3f90b64823b7dce1f2a98e4567c0db3f1a6587e9943c28fb5e06d174a")
PLAIN = pattern(300)
STREAM = ags1.encrypt(PLAIN, SECRET, block_length=100)


def spellings(key: bytes, size: int) -> list[str]:
    """Pieces of a key, of so many bytes, in the ways in which programs print bytes."""
    found = []
    for start in range(len(key) - size + 1):
        piece = key[start : start + size]
        found += [
            piece.hex(), piece.hex(" "), piece.hex(":"), piece.hex(","), repr(piece)[2:-1], str(list(piece))[1:-1],
            str(int.from_bytes(piece, "big")), str(int.from_bytes(piece, "little")), piece.decode("latin-1"),
        ]  # fmt: skip
    whole = -(-size // 3) * 3
    for start in range(0, len(key) - whole + 1, 3):
        found.append(base64.b64encode(key[start : start + whole]).decode())
    return found


def assert_silent(text: str, key: bytes = SECRET) -> None:
    folded = text.lower()
    # Four bytes of a key that is another in each run are somewhere in a long text by chance, once in a hundred runs.
    size = 4 if key in 2 * SECRET else 8
    assert not [each for each in spellings(key, size) if each in text or each.lower() in folded]


def test_the_check_itself_finds_keys() -> None:
    for text in (SECRET.hex(), f"{SECRET!r}", str(list(SECRET)), base64.b64encode(SECRET).decode(), SECRET[9:14].hex()):
        with pytest.raises(AssertionError):
            assert_silent(f"key {text}!")


def owners(key: Any, directory: Path) -> dict[str, Any]:
    """Everything that holds a key."""
    return {
        "Key": ags1.Key(key),
        "KeyMetadata": ags1.KeyMetadata(key, PREFIX, 100),
        "Reader": ags1.Reader(STREAM, key),
        "Reader of a path": ags1.Reader(_written(directory), key),
        "Reader of a pipe": ags1.Reader(os.fdopen(_pipe_of(STREAM), "rb"), key),
        "Writer": ags1.Writer(io.BytesIO(), key),
        "Writer to a path": ags1.Writer(directory / "target", key),
    }


def _written(directory: Path, data: bytes = STREAM) -> Path:
    path = directory / "stream.ags1"
    path.write_bytes(data)
    return path


def _pipe_of(data: bytes) -> int:
    receive, send = os.pipe()
    os.write(send, data)
    os.close(send)
    return receive


def close(owner: Any) -> None:
    if hasattr(owner, "abort"):
        owner.abort()
    elif hasattr(owner, "close"):
        owner.close()


# -- what is printed -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_no_repr_str_format_or_attribute_shows_a_key(tmp_path: Path) -> None:
    for name, owner in owners(SECRET, tmp_path).items():
        shown = [repr(owner), str(owner), f"{owner}", f"{owner!a}", repr([owner]), repr({name: owner})]
        for attribute in dir(owner):
            # Whoever asks for the key itself gets it: that is encode(), and a Key as a buffer.
            if attribute in ("__getstate__", "__reduce__", "__reduce_ex__"):
                continue
            try:
                shown.append(repr(getattr(owner, attribute)))
            except (ValueError, OSError, AttributeError):
                continue
        shown.append(repr(getattr(owner, "__dict__", "")))
        for text in shown:
            assert_silent(text)
        close(owner)


def test_no_hash_of_a_key_is_given_away() -> None:
    for owner in (ags1.Key(SECRET), ags1.KeyMetadata(SECRET)):
        with pytest.raises(TypeError, match="unhashable type"):
            hash(owner)


def failing(directory: Path, key: Any) -> dict[str, Callable[[], object]]:
    """Calls that raise with a key in their hands."""
    bad = damage(STREAM, 100, 1)
    path = directory / "bad.ags1"
    metadata = ags1.KeyMetadata(key, PREFIX, 99)
    return {
        "decrypt": lambda: ags1.decrypt(bad, key),
        "decrypt_many": lambda: ags1.decrypt_many([bad], [key]),
        "decrypt truncated": lambda: ags1.decrypt(bad, key, length=10_000),
        "decrypt of plaintext": lambda: ags1.decrypt(PLAIN, key),
        "decrypt_file": lambda: ags1.decrypt_file(path, directory / "out", key),
        "decrypt_file by metadata": lambda: ags1.decrypt_file(path, directory / "out", key_metadata=metadata),
        "open": lambda: ags1.open(path, key=key).read(),
        "open by encoded metadata": lambda: ags1.open(path, key_metadata=metadata.encode()),
        "open of a missing file": lambda: ags1.open(directory / "missing", key=key),
        "two keys": lambda: ags1.open(path, key=key, key_metadata=metadata),
        "Writer to nowhere": lambda: ags1.Writer(directory / "no" / "where", key),
        "bad block length": lambda: ags1.encrypt(b"", key, block_length=0),
        "bad threads": lambda: ags1.encrypt(b"", key, threads=0),
        "long key": lambda: ags1.Key(bytes(key) + b"\0"),
        "short key": lambda: ags1.Key(bytes(key)[:31]),
        "keys of a batch": lambda: ags1.encrypt_many([b""], [key, key]),
        "long key of a batch": lambda: ags1.encrypt_many([b""], [bytes(key) + b"\0"]),
        "text for a key": lambda: ags1.Key(bytes(key).hex()),
        "a list for a key": lambda: ags1.Key(list(bytes(key))),
        "an int for a key": lambda: ags1.Key(int.from_bytes(key, "big")),
        "a set for a key": lambda: ags1.encrypt(b"", {bytes(key)}),  # type: ignore[arg-type]
        "text as metadata": lambda: ags1.KeyMetadata.decode(bytes(key).hex()),  # type: ignore[arg-type]
        "metadata of text": lambda: ags1.KeyMetadata(bytes(key).hex()),  # type: ignore[arg-type]
        "a key as a length": lambda: ags1.KeyMetadata(key, PREFIX, bytes(key)),  # type: ignore[arg-type]
        "seal_message": lambda: gcm.seal_message(b"", key, bytes(13)),
    }


FAILING = tuple(failing(Path(), SECRET))
# These are given the bytes of the key themselves, in one form or another.
GIVEN_BYTES = {name for name in FAILING if name.split()[0] in ("long", "short", "text", "a", "an", "metadata")}
GIVEN_BYTES |= {"open by encoded metadata"}


@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("kind", ["bytes", "Key"])
def test_no_exception_shows_a_key(name: str, kind: str, tmp_path: Path) -> None:
    key = ags1.Key(SECRET) if kind == "Key" else SECRET
    (tmp_path / "bad.ags1").write_bytes(damage(STREAM, 100, 1))
    with pytest.raises((ags1.Ags1Error, ValueError, TypeError, OSError)) as caught:
        failing(tmp_path, key)[name]()
    error: BaseException | None = caught.value
    while error is not None:
        assert_silent(f"{error} {error!r} {error.args} {vars(error)}")
        error = error.__cause__ or error.__context__
    if kind == "Key" and name not in GIVEN_BYTES:
        # Tools that print local variables of every frame (pytest -l, rich, sentry) see the frames of ags1 too.
        trace = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
        for frame in trace.stack:
            if f"{os.sep}ags1{os.sep}" in frame.filename:
                assert_silent(str(frame.locals))


def key_metadata_with_damage() -> list[bytes]:
    """Key metadata in which one byte was changed to any other, and in which one was lost or doubled."""
    whole = ags1.KeyMetadata(SECRET, PREFIX, 1234).encode()
    short = ags1.KeyMetadata(SECRET[:16], PREFIX, 1234).encode()
    found = [whole[:at] + bytes([value]) + whole[at + 1 :] for at in (0, 1, 2, 3, 34, 35) for value in range(256)]
    found += [short[:1] + bytes([value]) + SECRET + short[18:] for value in range(256)]
    found += [whole[:at] + whole[at + 1 :] for at in range(len(whole))]
    found += [whole[:at] + whole[at : at + 1] + whole[at:] for at in range(len(whole))]
    found += [SECRET[at:] for at in range(32)] + [b"\x01" + SECRET[at:] for at in range(32)]
    return found + [b"\x01\x20" + SECRET[at:] + SECRET for at in range(32)]


def test_damaged_key_metadata_tells_nothing_of_the_key() -> None:
    # A wrong length moves the following fields onto the key's bytes: their values must not be shown.
    messages: list[str] = []
    for data in key_metadata_with_damage():
        try:
            ags1.KeyMetadata.decode(data)
        except ags1.FormatError as error:
            messages.append(str(error))
    assert len(messages) > 500
    for message in messages:
        assert_silent(message)
        # A version, a length, a count of bytes: nothing that has more than a byte of information.
        assert all(int(number) < 256 for number in re.findall(r"\d+", message)), message


def test_nothing_is_logged_or_warned_with_a_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "bad.ags1").write_bytes(damage(STREAM, 100, 1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for call in failing(tmp_path, ags1.Key(SECRET)).values():
            with pytest.raises(Exception):  # noqa: B017
                call()
        writer = ags1.Writer(tmp_path / "dropped", SECRET)
        del writer
        ags1.encrypt_file(_written(tmp_path), tmp_path / "out", SECRET)
    assert any("was dropped" in str(each.message) for each in caught)
    assert_silent(caplog.text + " ".join(f"{each.message} {each.source}" for each in caught))


def test_no_file_is_named_after_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    names: set[str] = set()
    source = _written(tmp_path, PLAIN)
    look = lambda done, total: names.update(os.listdir(tmp_path))  # noqa: E731
    ags1.encrypt_file(source, tmp_path / "target", SECRET, progress=look)
    with ags1.Writer(tmp_path / "other", SECRET) as writer:
        writer.write(PLAIN)
        look(0, 0)
    assert any(name.endswith(atomic.TEMPORARY_SUFFIX) for name in names), "the temporary files were not seen"
    assert_silent(" ".join(names))


# -- what leaves the process ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
def test_nothing_that_holds_a_key_is_pickled_or_copied(tmp_path: Path) -> None:
    for owner in owners(SECRET, tmp_path).values():
        attempts: list[Callable[[Any], object]] = [copy.copy, copy.deepcopy]
        attempts += [lambda each, number=number: pickle.dumps(each, number) for number in range(6)]  # type: ignore[misc]
        attempts += [lambda each: multiprocessing.reduction.ForkingPickler.dumps(each)]
        for attempt in attempts:
            with pytest.raises(TypeError, match=r"cannot be pickled|cannot pickle"):
                attempt(owner)
        with pytest.raises(TypeError):
            json.dumps(owner)
        close(owner)


def test_a_key_is_no_state_of_an_exception_that_is_sent_on() -> None:
    with pytest.raises(ags1.AuthenticationError) as caught:
        ags1.decrypt(damage(STREAM, 100, 1), ags1.Key(SECRET))
    sent = pickle.dumps(caught.value)
    assert SECRET[:4] not in sent
    assert pickle.loads(sent).block_index == 1


# -- the command line ----------------------------------------------------------------------------------------


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    root = str(memory.ROOT)
    return subprocess.run(
        [sys.executable, "-m", "ags1", *arguments],
        capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYTHONPATH": root, "COLUMNS": "200", **variables},
    )  # fmt: skip


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "raw.key").write_bytes(SECRET)
    (tmp_path / "hex.key").write_text(SECRET.hex() + "\n")
    (tmp_path / "base64.key").write_bytes(base64.b64encode(SECRET))
    (tmp_path / "short.key").write_bytes(SECRET[:31])
    (tmp_path / "metadata").write_bytes(ags1.KeyMetadata(SECRET, None, len(STREAM)).encode())
    (tmp_path / "broken.metadata").write_bytes(ags1.KeyMetadata(SECRET, None).encode()[:-12])
    for path in tmp_path.iterdir():
        path.chmod(0o600)
    (tmp_path / "plain").write_bytes(PLAIN)
    (tmp_path / "good.ags1").write_bytes(STREAM)
    (tmp_path / "bad.ags1").write_bytes(damage(STREAM, 100, 1))
    monkeypatch.setenv("LAKE_KEY", SECRET.hex())
    monkeypatch.setenv("SHORT_KEY", SECRET.hex()[:-2])
    monkeypatch.chdir(tmp_path)
    return tmp_path


KEY_OPTIONS = [
    ["--key-file", "raw.key"], ["--key-file", "hex.key"], ["--key-file", "base64.key"], ["--key-file", "short.key"],
    ["--key-env", "LAKE_KEY"], ["--key-env", "SHORT_KEY"], ["--key-metadata", "metadata"],
    ["--key-metadata", "broken.metadata"], ["--key-metadata", "raw.key"], ["--key-metadata", "hex.key"],
    # What people try although no help says so, and what then lands in the log of a job.
    ["--key", SECRET.hex()], [f"--key={SECRET.hex()}"], ["--key-env", SECRET.hex()], [f"--key-env={SECRET.hex()}"],
    ["--key-file", SECRET.hex()], ["--key-file", base64.b64encode(SECRET).decode()], ["--key-metadata", SECRET.hex()],
    [f"--key-hex={SECRET.hex()}"],
]  # fmt: skip
COMMANDS = [
    ["encrypt", "plain", "made.ags1"], ["encrypt", "plain", "made.ags1", "--json"], ["encrypt", "missing", "made.ags1"],
    ["decrypt", "good.ags1", "made", "--any-length"], ["decrypt", "bad.ags1", "made", "--any-length"],
    ["decrypt", "bad.ags1", "made", "--any-length", "--json"], ["verify", "good.ags1", "--any-length", "--json"],
    ["verify", "bad.ags1", "--any-length"], ["cat", "bad.ags1", "--any-length"], ["cat", "good.ags1"],
    ["encrypt", "plain", "made.ags1", "--key-metadata-out", "made.metadata", "--json"],
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.usefixtures("files")
def test_no_command_says_a_key(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    for options in KEY_OPTIONS:
        # Not a set-up that never works: it is the messages that matter.
        main([*command, *options])
        said = capfd.readouterr()
        assert_silent(said.out + said.err)


def test_no_help_names_an_option_that_takes_a_key() -> None:
    for command in ("encrypt", "decrypt", "cat", "verify", "keygen", "inspect", "info", "bench"):
        text = run(command, "--help").stdout
        assert not re.search(r"--key(?!-file|-env|-metadata|gen)\b", text), text
        assert_silent(text)


def test_keygen_shows_the_key_only_where_it_was_told_to(files: Path) -> None:
    done = run("keygen", str(files / "new.key"))
    assert done.returncode == 0
    assert_silent(done.stdout + done.stderr, (files / "new.key").read_bytes())


@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("existing", [None, 0o644, 0o666])
def test_a_key_file_is_private_from_its_first_moment(
    unnamed: bool, existing: int | None, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    real_write, real_open = os.write, os.open

    def opening(path: Any, flags: int, *more: Any, **others: Any) -> int:
        descriptor = real_open(path, flags, *more, **others)
        if flags & os.O_CREAT or flags & 0o20000000:
            modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    def writing(descriptor: int, data: Any) -> int:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return real_write(descriptor, data)

    if existing is not None:
        (files / "new.key").write_bytes(b"old")
        (files / "new.key").chmod(existing)
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "write", writing)
    assert main(["keygen", str(files / "new.key"), "--force"]) == 0
    modes.append(stat.S_IMODE((files / "new.key").stat().st_mode))
    assert len(modes) >= 3
    assert set(modes) == {0o600}


def test_key_metadata_out_is_private(files: Path) -> None:
    old = os.umask(0)
    try:
        done = run("encrypt", "plain", "made.ags1", "--key-metadata-out", "made.metadata")
    finally:
        os.umask(old)
    assert done.returncode == 0, done.stderr
    assert stat.S_IMODE((files / "made.metadata").stat().st_mode) == 0o600


# -- memory --------------------------------------------------------------------------------------------------


USES = """
import ags1
raw, kept = expect({bits} // 8), expect({bits} // 8)
key, other = ags1.Key(raw), ags1.Key(kept)
raw[:] = bytes(len(raw))
kept[:] = bytes(len(kept))
"""
AFTERWARDS = {
    "nothing": "",
    "one thread": "assert ags1.decrypt(ags1.encrypt(bytes(10_000), key, block_length=100), key, threads=1)",
    "many threads": """
        data = bytes(5 << 20)
        assert ags1.decrypt(ags1.encrypt(data, key, block_length=4096, threads=5), key, threads=5) == data
        del data
    """,
    "a batch": """
        made = ags1.encrypt_many([bytes(3000)] * 900, [key] * 900, threads=3)
        assert ags1.decrypt_many(made, key, threads=3)
        del made
    """,
    "files": """
        import io, tempfile
        with tempfile.TemporaryDirectory() as directory:
            path = directory + "/x"
            with open(path, "wb") as file:
                file.write(bytes(3 << 20))
            ags1.encrypt_file(path, path + ".ags1", key, threads=3)
            ags1.decrypt_file(path + ".ags1", path + ".plain", key, threads=3)
            assert ags1.verify_file(path + ".ags1", key).ok
    """,
    "streams": """
        import io
        file = io.BytesIO()
        with ags1.Writer(file, key, block_length=1000) as writer:
            writer.write(bytes(100_000))
        with ags1.Reader(file.getvalue(), key) as reader:
            assert reader.read(10) and reader.pread(50_000, 10)
        del writer, reader
    """,
    "failures": """
        stream = bytearray(ags1.encrypt(bytes(10_000), key, block_length=100))
        stream[5000] ^= 1
        for threads in (1, 3):
            try:
                ags1.decrypt(stream, key, threads=threads)
            except ags1.AuthenticationError:
                continue
            raise SystemExit("accepted")
    """,
    "comparison": "assert key == ags1.Key(key) and key != other and not key == b'short'",
}


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize("use", AFTERWARDS)
def test_a_key_is_gone_from_memory_once_its_object_is(use: str, bits: int) -> None:
    gone, kept = os.urandom(bits // 8), os.urandom(bits // 8)
    lines = [line[8:] if line.startswith(8 * " ") else line for line in AFTERWARDS[use].splitlines()]
    code = "\n".join([USES.format(bits=bits), *lines, "del key", "import gc", "gc.collect()"])
    hits = memory.count_after(code, gone + kept, [gone, kept, gone[:12], gone[-12:]])
    assert hits[1] == 1, "the search finds nothing, or a second copy of the key that is still in use"
    assert hits[0] == hits[2] == hits[3] == 0
