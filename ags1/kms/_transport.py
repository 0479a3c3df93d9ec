"""What all services over HTTP have in common: no redirect is followed, and an answer has a bounded size and time.

The SDKs send; their hooks bring each response here: a requests adapter (hvac, google-auth, Azure's transport) and
botocore's event before-send.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping

from ags1.errors import without_secrets
from ags1.kms.base import DEADLINE, TOO_SLOW, Unusable
from ags1.support.http import answer_by
from ags1.support.typing import Any

LARGEST = 1 << 20
_PIECE = 1 << 16
_TOKENS = ("authorization", "x-vault-token", "x-amz-security-token")


def body_of(raw: Any, status: int, sent: Mapping[str, Any]) -> bytes:
    """Read the body of a response of urllib3, decompressed; `sent` are the headers of the request.

    Raises
    ------
    Unusable
        It is a redirect, too large, in an unknown encoding, or not complete at the deadline.
    ConnectionError
        It broke off.
    """
    from urllib3.exceptions import HTTPError

    try:
        if 300 <= status < 400:
            target = without_secrets(raw.headers.get("Location") or "nowhere")
            raise Unusable(
                f"the server answers {status} and sends to {target}: no redirect is followed, because the token and "
                "the key would go there. If that is the right server (for Vault: the active node), give its address"
            )
        return _without_tokens(_read(raw), sent) if status >= 400 else _read(raw)
    except (HTTPError, zlib.error) as error:
        raise ConnectionError(f"the answer broke off: {error}") from None
    finally:
        # Nothing is left of a body that was read to its end; any other connection must not be used again.
        if not getattr(raw, "closed", True):
            raw.close()


def _read(raw: Any) -> bytes:
    encoding = (raw.headers.get("Content-Encoding") or "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise Unusable(f"the service returned a body in the encoding {encoding[:20]!r}, which it was not asked for")
    unpack = zlib.decompressobj(31) if encoding == "gzip" else None
    # One recv a call, where urllib3 can: a server that sends byte after byte does not get around the deadline.
    read = getattr(raw, "read1", raw.read)
    body = b""
    while piece := read(_PIECE, decode_content=False):
        body += piece if unpack is None else unpack.decompress(piece, LARGEST + 1 - len(body))
        if len(body) > LARGEST:
            raise Unusable(f"the service returned more than {LARGEST:,} bytes")
        deadline = DEADLINE.get()
        if deadline is not None and time.monotonic() > deadline:
            raise Unusable(TOO_SLOW)
    return body


def _without_tokens(body: bytes, sent: Mapping[str, Any]) -> bytes:
    """A body without the credentials of the request, which some servers repeat in their errors."""
    for name, value in sent.items():
        if name.lower() in _TOKENS:
            secret = (value if isinstance(value, bytes) else str(value).encode()).split()[-1:]
            body = body.replace(secret[0], b"<redacted>") if secret else body
    return body


def limit_session(session: Any) -> Any:
    """Make a session of requests obey."""
    # What it is sent is bounded as it is unpacked here.
    session.headers["Accept-Encoding"] = "gzip"
    return answer_by(session, _answer)


def _answer(response: Any) -> bytes:
    body = body_of(response.raw, response.status_code, response.request.headers)
    response.headers.pop("Content-Encoding", None)
    return body


def limit_botocore(client: Any) -> None:
    """Make a client of botocore obey."""

    def send(request: Any, **_: Any) -> Any:
        # Else the session reads the body, and urllib3 fails at a 303, where it joins the values of headers.
        request.stream_output = True
        for name, value in list(request.headers.items()):
            request.headers[name] = value.decode() if isinstance(value, bytes) else value
        response = client._endpoint.http_session.send(request)
        response._content = body_of(response.raw, response.status_code, request.headers)
        return response

    client.meta.events.register_last("before-send.kms", send)
