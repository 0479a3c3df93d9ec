"""Sessions of requests that read each answer under rules of their owner."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from ags1.support.typing import Any


def answer_by(session: Any, body_of: Callable[[Any], bytes]) -> Any:
    """Have a session take the body of each response from a function, and return the session.

    The function gets the response with an unread body, and raises for what must not be taken, such as a redirect.
    """
    from requests.adapters import HTTPAdapter

    class Answers(HTTPAdapter):
        def send(self, request: Any, *arguments: Any, **options: Any) -> Any:
            response = super().send(request, *arguments, **{**options, "stream": True})
            try:
                response._content = body_of(response)
            except BaseException:
                response.close()
                raise
            response._content_consumed = True
            return response

    for scheme in ("https://", "http://"):
        session.mount(scheme, Answers())
    return session
