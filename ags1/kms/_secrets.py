"""Finding a key in a text, in the ways in which programs write bytes."""

from __future__ import annotations

import base64

__all__ = ["says_secret"]

# Fewer bytes than this occur by chance; more would let half of a key pass.
_PIECE = 8


def says_secret(text: str, secret: bytes) -> bool:
    """Whether the text shows a piece of the secret: as hexadecimal, base64, a literal or numbers."""
    folded = text.lower()
    pieces = [secret[start : start + _PIECE] for start in range(max(1, len(secret) - _PIECE + 1))]
    for piece in pieces:
        if piece.hex() in folded or piece.hex(" ") in folded or repr(piece)[2:-1].lower() in folded:
            return True
        if str(list(piece))[1:-1] in text or piece.decode("latin-1") in text:
            return True
    for start in range(3):
        # Base64 looks different at each of three offsets; its ends depend on what stands beside.
        whole = secret[start : start + (len(secret) - start) // 3 * 3]
        for variant in (base64.b64encode(whole), base64.urlsafe_b64encode(whole)):
            encoded = variant.decode()
            if any(encoded[at : at + 12] in text for at in range(max(1, len(encoded) - 11)) if encoded):
                return True
    return False
