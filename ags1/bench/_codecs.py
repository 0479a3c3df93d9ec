"""Anybody's encryption functions, asked what ags1 is asked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial

from ags1.bench._rounds import Comparison, compare
from ags1.codec import decrypt, decrypt_into, decrypt_many, encrypt, encrypt_into, encrypt_many
from ags1.layout import encrypted_length

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Work = Callable[[], object]

_NAMES = {1 << 20: "1 MiB", 64 << 10: "64 KiB", 4096: "4 KiB", 1024: "1 KiB", 256: "256 B"}
_MESSAGES = (256, 4096, 64 << 10)
_BLOCKS = (4096, 64 << 10, 1 << 20)
_KEY = bytes(range(32))


class CodecError(Exception):
    """A codec is none: it does not give back what it was given, or takes damaged data for whole."""


@dataclass(frozen=True)
class Codec:
    """Encryption and decryption by somebody's code. What is None is not asked.

    Attributes
    ----------
    name
        For the names of questions.
    encrypt, decrypt
        ``encrypt(data, key) -> stream`` and ``decrypt(stream, key) -> data``: new objects that have a buffer.
    encrypt_into
        ``encrypt_into(data, out, key, block_length) -> length of the stream``. `out` has `room` bytes.
    decrypt_into
        ``decrypt_into(stream, out, key) -> length of the data``, of a stream of `encrypt_into`.
    encrypt_many, decrypt_many
        ``encrypt_many(buffers, key) -> streams``, one each, and the way back.
    room
        ``room(length, block_length)``: bytes that `encrypt_into` may need.
    """

    name: str
    encrypt: Callable[[Any, bytes], Any]
    decrypt: Callable[[Any, bytes], Any]
    encrypt_into: Callable[[Any, Any, bytes, int], int] | None = None
    decrypt_into: Callable[[Any, Any, bytes], int] | None = None
    encrypt_many: Callable[[Sequence[bytes], bytes], Sequence[Any]] | None = None
    decrypt_many: Callable[[Sequence[Any], bytes], Sequence[Any]] | None = None
    room: Callable[[int, int], int] = field(default=encrypted_length)

    def check(self) -> None:
        """Encrypt, decrypt, damage: what does not notice a flipped bit is no authenticated encryption.

        Raises
        ------
        CodecError
            What came back differs, or damage was not noticed.
        """
        data = os.urandom(10_001)
        stream = bytes(self.encrypt(data, _KEY))
        if bytes(self.decrypt(stream, _KEY)) != data:
            raise CodecError(f"{self.name}: decrypt does not return what encrypt was given")
        self._check_damage(stream, self.decrypt)
        if self.encrypt_into is not None:
            out, back = bytearray(self.room(len(data), 4096)), bytearray(len(data))
            stream = bytes(out[: self.encrypt_into(data, out, _KEY, 4096)])
            if self.decrypt_into is not None:
                if self.decrypt_into(stream, back, _KEY) != len(data) or back != data:
                    raise CodecError(f"{self.name}: decrypt_into does not return what encrypt_into was given")
                self._check_damage(stream, lambda damaged, key: self.decrypt_into(damaged, back, key))
        if self.encrypt_many is not None:
            buffers = [data[:size] for size in (1, 100, 5000)]
            streams = [bytes(each) for each in self.encrypt_many(buffers, _KEY)]
            if self.decrypt_many is not None:
                if [bytes(each) for each in self.decrypt_many(streams, _KEY)] != buffers:
                    raise CodecError(f"{self.name}: decrypt_many does not return what encrypt_many was given")
                self._check_damage(streams[2], lambda damaged, key: self.decrypt_many([damaged], key))

    def _check_damage(self, stream: bytes, work: Any) -> None:
        damaged = bytearray(stream)
        damaged[len(damaged) // 2] ^= 1
        try:
            work(bytes(damaged), _KEY)
        except Exception:
            return
        raise CodecError(f"{self.name}: a flipped bit in the middle of a stream was not noticed")


@dataclass(frozen=True)
class Question:
    """One question to a codec, beside another codec.

    Attributes
    ----------
    name
        What is asked, such as "encrypt 64 KiB".
    mine, other
        The work of each.
    nbytes
        Bytes of plaintext that a call works on.
    """

    name: str
    mine: Callable[[], object]
    other: Callable[[], object]
    nbytes: int

    def ask(self, **options: Any) -> Comparison:
        """Compare the two; `options` are those of `ags1.bench.compare`."""
        return compare(self.mine, self.other, **options)


AGS1 = Codec(
    "ags1",
    encrypt,
    decrypt,
    lambda data, out, key, block_length: encrypt_into(data, out, key, block_length=block_length, threads=1),
    lambda stream, out, key: decrypt_into(stream, out, key, threads=1),
    encrypt_many,
    decrypt_many,
)
"""ags1 itself, on one thread where a codec can say how many."""

_registered: dict[str, Codec] = {}


def register(codec: Codec) -> Codec:
    """Make a codec known to `codecs`, after checking that it is one.

    Raises
    ------
    CodecError
        See `Codec.check`.
    ValueError
        Another codec has the name.
    """
    codec.check()
    if codec.name == AGS1.name or _registered.setdefault(codec.name, codec) is not codec:
        raise ValueError(f"there is another codec {codec.name!r}: choose another name")
    return codec


def codecs() -> list[Codec]:
    """The codecs that were registered, ags1's first."""
    return [AGS1, *_registered.values()]


def codec_questions(codec: Codec, beside: Codec = AGS1, *, nbytes: int = 4 << 20) -> list[Question]:
    """Make every question that both codecs can be asked.

    Parameters
    ----------
    codec
        Whose work is `Question.mine`; it is checked first.
    beside
        Whose work is `Question.other`: ags1, unless another is given.
    nbytes
        Plaintext of a question.

    Raises
    ------
    CodecError
        See `Codec.check`.
    """
    codec.check()
    data = os.urandom(nbytes)
    found: list[Question] = []

    def ask(name: str, size: int, make: Callable[[Codec], Work | None]) -> None:
        mine, other = make(codec), make(beside)
        if mine is not None and other is not None:
            found.append(Question(name, mine, other, size))

    ask("encrypt, one object", nbytes, partial(_encrypting_each, [data]))
    ask("decrypt, one object", nbytes, partial(_decrypting_each, [data]))
    for size in _BLOCKS:
        ask(f"encrypt_into, {_NAMES[size]} blocks", nbytes, partial(_encrypting_into, data, size))
        ask(f"decrypt_into, {_NAMES[size]} blocks", nbytes, partial(_decrypting_into, data, size))
    for size in _MESSAGES:
        count = max(1, nbytes // size)
        pieces = [data[size * i : size * (i + 1)] for i in range(count)]
        ask(f"encrypt, {_NAMES[size]} a call", count * size, partial(_encrypting_each, pieces))
        ask(f"decrypt, {_NAMES[size]} a call", count * size, partial(_decrypting_each, pieces))
        ask(f"encrypt_many, {_NAMES[size]}", count * size, partial(_encrypting_many, pieces))
        ask(f"decrypt_many, {_NAMES[size]}", count * size, partial(_decrypting_many, pieces))
    return found


def _encrypting_each(pieces: Sequence[bytes], codec: Codec) -> Work:
    return lambda: [codec.encrypt(piece, _KEY) for piece in pieces]


def _decrypting_each(pieces: Sequence[bytes], codec: Codec) -> Work:
    streams = [codec.encrypt(piece, _KEY) for piece in pieces]
    return lambda: [codec.decrypt(stream, _KEY) for stream in streams]


def _encrypting_into(data: bytes, block_length: int, codec: Codec) -> Work | None:
    work = codec.encrypt_into
    if work is None:
        return None
    out = bytearray(b"\x01") * codec.room(len(data), block_length)
    return lambda: work(data, out, _KEY, block_length)


def _decrypting_into(data: bytes, block_length: int, codec: Codec) -> Work | None:
    work = codec.decrypt_into
    if work is None or codec.encrypt_into is None:
        return None
    room, out = bytearray(codec.room(len(data), block_length)), bytearray(b"\x01") * len(data)
    stream = bytes(room[: codec.encrypt_into(data, room, _KEY, block_length)])
    return lambda: work(stream, out, _KEY)


def _encrypting_many(pieces: Sequence[bytes], codec: Codec) -> Work | None:
    work = codec.encrypt_many
    return None if work is None else lambda: work(pieces, _KEY)


def _decrypting_many(pieces: Sequence[bytes], codec: Codec) -> Work | None:
    work = codec.decrypt_many
    if work is None or codec.encrypt_many is None:
        return None
    streams = [bytes(each) for each in codec.encrypt_many(pieces, _KEY)]
    return lambda: work(streams, _KEY)
