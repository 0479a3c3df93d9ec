"""Text modes of ags1.open, each compared with the builtin's own; and what a stream of text must never do."""

from __future__ import annotations

import itertools
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

import ags1
from tests.checks import KEY

ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf_16", "U16", "latin-1", "cp1252")
NEWLINES = (None, "", "\n", "\r", "\r\n")
TEXT = "first\nsecond\r\nthird\rüß€\n\nlast"


def plain_of(path: Path) -> bytes:
    return ags1.decrypt(path.read_bytes(), KEY)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("newline", NEWLINES)
def test_text_is_written_and_read_as_the_builtin_does(encoding: str, newline: str | None, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    options: dict[str, Any] = {"encoding": encoding, "errors": "replace", "newline": newline}
    pieces = [TEXT[at : at + 3] for at in range(0, len(TEXT), 3)]
    for mode in ("w", "wt", "tw"):
        with ags1.open(ours, mode, key=KEY, block_length=7, **options) as made, open(theirs, mode, **options) as file:
            for piece in pieces:
                assert made.write(piece) == file.write(piece)
            made.writelines(["one\n", "two\r"])
            file.writelines(["one\n", "two\r"])
            print("printed", 5, file=made)
            print("printed", 5, file=file)
        assert plain_of(ours) == theirs.read_bytes()
    for mode in ("r", "rt", "tr"):
        with ags1.open(ours, mode, key=KEY, **options) as text, open(theirs, mode, **options) as file:
            assert text.readline() == file.readline()
            assert text.tell() == file.tell()
            assert list(text) == list(file)
            assert (text.seek(0), text.read()) == (file.seek(0), file.read())
            assert (text.encoding, text.errors, text.newlines) == (file.encoding, file.errors, file.newlines)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_nothing_written_is_nothing_and_the_mark_comes_once(encoding: str, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for texts in ([], [""], ["", "x"], ["x", "", "y"]):
        with ags1.open(ours, "w", key=KEY, encoding=encoding) as made, open(theirs, "w", encoding=encoding) as file:
            for text in texts:
                made.write(text)
                made.flush()
                file.write(text)
                file.flush()
        assert plain_of(ours) == theirs.read_bytes()


def test_without_options_text_is_what_it_is_for_the_builtin(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    with ags1.open(ours, "w", key=KEY) as made, open(theirs, "w") as file:
        assert (made.encoding, made.errors) == (file.encoding, file.errors)
        made.write("text\n")
        file.write("text\n")
    assert plain_of(ours) == theirs.read_bytes()
    with ags1.open(ours, "r", key=KEY) as text, open(theirs) as file:
        assert (text.encoding, text.errors) == (file.encoding, file.errors)


def test_random_access_to_text(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    generator = random.Random(7)
    whole = "".join(generator.choice("aüß€\n\U0001f600") for _ in range(5000))
    theirs.write_text(whole, encoding="utf-8")
    ours.write_bytes(ags1.encrypt(theirs.read_bytes(), KEY, block_length=100))
    with ags1.open(ours, "r", key=KEY, encoding="utf-8") as text, open(theirs, encoding="utf-8") as file:
        cookies = []
        for _ in range(50):
            size = generator.randrange(200)
            assert text.read(size) == file.read(size)
            assert text.tell() == file.tell()
            cookies.append(file.tell())
        for cookie in generator.sample(cookies, len(cookies)):
            assert (text.seek(cookie), text.read(20)) == (file.seek(cookie), file.read(20))


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"encoding": "no-such"}, LookupError),
        ({"errors": "no-such"}, LookupError),
        ({"newline": "\n\n"}, ValueError),
        ({"newline": "x"}, ValueError),
    ],
)
@pytest.mark.parametrize("mode", ["r", "w"])
def test_bad_options_are_refused_before_anything_is_opened(
    mode: str, options: dict[str, Any], kind: type[Exception], tmp_path: Path
) -> None:
    path = tmp_path / "stream"
    with pytest.raises(kind):
        ags1.open(path, mode, key=KEY, **options)
    assert not path.exists()


@pytest.mark.parametrize(
    ("mode", "option"), list(itertools.product(["rb", "br", "wb", "bw"], ["encoding", "errors", "newline"]))
)
def test_binary_modes_take_no_options_of_text(mode: str, option: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"binary mode doesn't take an {option} argument"):
        ags1.open(tmp_path / "stream", mode, key=KEY, **{option: "utf-8"})


def test_the_binary_stream_is_under_the_text(tmp_path: Path) -> None:
    with ags1.open(tmp_path / "stream", "w", key=KEY, encoding="utf-8") as text:
        assert isinstance(text.buffer, ags1.Writer)
        text.write("text")
    metadata = text.buffer.key_metadata
    assert metadata.file_length == (tmp_path / "stream").stat().st_size
    with ags1.open(tmp_path / "stream", "r", key_metadata=metadata, encoding="utf-8") as again:
        assert isinstance(again.buffer, ags1.Reader)
        assert again.buffer.length_trusted
        assert again.read() == "text"
    assert again.buffer.closed


@pytest.mark.parametrize("existed", [False, True])
def test_a_body_that_raises_publishes_nothing(existed: bool, tmp_path: Path) -> None:
    path = tmp_path / "stream"
    if existed:
        path.write_bytes(b"what was there")

    def body() -> None:
        with ags1.open(path, "w", key=KEY, block_length=3, encoding="utf-16") as text:
            text.write("many words that fill some blocks")
            raise KeyError("in the body")

    with pytest.raises(KeyError, match="in the body"):
        body()
    assert os.listdir(tmp_path) == (["stream"] if existed else [])
    assert not existed or path.read_bytes() == b"what was there"


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="needs objects to die when nobody has them")
def test_a_text_stream_that_is_dropped_publishes_nothing_and_warns(tmp_path: Path) -> None:
    def drop() -> None:
        text = ags1.open(tmp_path / "stream", "w", key=KEY, encoding="utf-8")
        text.write("text")

    with pytest.warns(ResourceWarning, match=r"unclosed Writer .*stream was dropped"):
        drop()
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_encoded_leaves_the_stream_usable(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    with ags1.open(path, "w", key=KEY, encoding="ascii") as text:
        text.write("one")
        with pytest.raises(UnicodeEncodeError):
            text.write("ü")
        with pytest.raises(TypeError):
            text.write(b"bytes")
        text.write("two")
    assert plain_of(path) == b"onetwo"


def test_a_wrong_tag_is_an_error_of_reading_text(tmp_path: Path) -> None:
    stream = bytearray(ags1.encrypt(b"line\n" * 1000, KEY, block_length=100))
    stream[-1] ^= 1
    with (
        ags1.open(bytes(stream), "r", key=KEY, encoding="utf-8") as text,
        pytest.raises(ags1.AuthenticationError, match="block 49 failed"),
    ):
        text.read()
