"""Keep secrets out of output: bytes with a redacted repr, and a search for a key in a text."""

from __future__ import annotations

import base64

from ags1.support.typing import NoReturn

# Fewer bytes would match by chance; more would miss half of a key.
_PIECE = 8


class Secret:
    """Bytes with a redacted repr: some tools print the local variables of a traceback.

    An AES key is better held as an :class:`ags1.Key`, which is wiped as well.
    """

    __slots__ = ("_octets",)

    def __init__(self, octets: bytes) -> None:
        self._octets = octets

    def __bytes__(self) -> bytes:
        return self._octets

    def __len__(self) -> int:
        return len(self._octets)

    def __repr__(self) -> str:
        return "<redacted>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied")


def shows_secret(text: str | bytes, secret: bytes) -> bool:
    """Whether the text shows a piece of the secret: as raw bytes, hexadecimal, base64, a literal or numbers."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    folded = text.lower()
    pieces = [secret[start : start + _PIECE] for start in range(max(1, len(secret) - _PIECE + 1))]
    for piece in pieces:
        if piece.hex() in folded or piece.hex(" ") in folded or repr(piece)[2:-1].lower() in folded:
            return True
        if str(list(piece))[1:-1] in text or piece.decode("latin-1") in text:
            return True
    for start in range(3):
        # Base64 differs at each of three offsets; its ends depend on the neighbouring bytes.
        whole = secret[start : start + (len(secret) - start) // 3 * 3]
        for variant in (base64.b64encode(whole), base64.urlsafe_b64encode(whole)):
            encoded = variant.decode()
            if any(encoded[at : at + 12] in text for at in range(max(1, len(encoded) - 11)) if encoded):
                return True
    return False
