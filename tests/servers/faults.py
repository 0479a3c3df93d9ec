"""What the proxy can do to a request, which requests it does it to, and what it remembers of each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong between a client and a server."""


@dataclass(frozen=True)
class Answer(Fault):
    """Return this status with an error of S3's in its body.

    The server never sees the request, unless `carried_out`: then it carries it out, and its response is dropped.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    carried_out: bool = False


@dataclass(frozen=True)
class Cut(Fault):
    """Close the connection after `after` bytes of the response's body."""

    after: int


@dataclass(frozen=True)
class Reset(Fault):
    """Reset the connection after `after` bytes of the response's body, or before the server sees the request (None)."""

    after: int | None = None


@dataclass(frozen=True)
class Lost(Fault):
    """Let the server carry out the request, and reset the connection in place of the response."""


@dataclass(frozen=True)
class Stall(Fault):
    """Send no more after `after` bytes of the response's body, until :meth:`ShapingProxy.release` or the client leaves.

    With `after` None not even the head of the response is sent.
    """

    after: int | None = None


@dataclass(frozen=True)
class ShortBody(Fault):
    """Leave out the last `missing` bytes, in a response that is well formed: its Content-Length is less too."""

    missing: int = 1


@dataclass(frozen=True)
class LongBody(Fault):
    """Append `extra` zero bytes, in a response that is well formed: its Content-Length is more too."""

    extra: int = 1


@dataclass(frozen=True)
class FlipByte(Fault):
    """Change one bit of byte `at` of the response's body."""

    at: int = 0


@dataclass(frozen=True)
class HideHeaders(Fault):
    """Leave out headers of the response. Without Content-Length the body is sent in chunks."""

    names: tuple[str, ...] = ("content-length", "etag")


@dataclass(frozen=True)
class IgnoreRange(Fault):
    """Hide the Range header from the server, so that it returns 200 with all of the object.

    A request of S3's is signed anew, with the credentials that the proxy was started with.
    """


@dataclass(frozen=True)
class CutUpload(Fault):
    """Reset the connection after `after` bytes of the request's body. The server gets no more of it either."""

    after: int


@dataclass(frozen=True)
class Delay(Fault):
    """Pass the request on `seconds` later."""

    seconds: float


@dataclass(frozen=True)
class Rule:
    """A fault, and the requests that meet it.

    Attributes
    ----------
    fault
        What happens to them.
    method
        Their method, or None for any.
    path
        A regular expression that is searched in the path with its query, or None for any.
    offset
        A byte that the Range header must include, or None for any request with or without a range.
    skip
        How many of these requests pass unharmed before the first that does not.
    count
        How many meet the fault; later ones pass. None for all.
    """

    fault: Fault
    method: str | None = None
    path: str | None = None
    offset: int | None = None
    skip: int = 0
    count: int | None = 1

    def matches(self, method: str, path: str, range_: str | None) -> bool:
        """Return whether a request is one of those that the rule is about."""
        if self.method is not None and method != self.method:
            return False
        if self.path is not None and re.search(self.path, path) is None:
            return False
        if self.offset is None:
            return True
        if (found := re.fullmatch(r"bytes=(\d+)-(\d*)", range_ or "")) is None:
            return False
        return int(found[1]) <= self.offset and (not found[2] or self.offset <= int(found[2]))


@dataclass
class Request:
    """A request that the proxy saw.

    Attributes
    ----------
    connection
        Number of the client's connection, from 0.
    method, path
        As in the first line; the path has its query.
    range, if_match, if_none_match
        Headers, or None.
    started, ended
        Seconds on the proxy's monotonic clock: when its head had come, and when its response had been sent. `ended` is
        None while it is in flight.
    status
        What the client was told, or None if nothing.
    uploaded, downloaded
        Bytes of the request's and the response's body that were passed on.
    fault
        Name of the fault's class, or None.
    """

    connection: int
    method: str
    path: str
    range: str | None = None
    if_match: str | None = None
    if_none_match: str | None = None
    started: float = 0.0
    ended: float | None = None
    status: int | None = None
    uploaded: int = 0
    downloaded: int = 0
    fault: str | None = None


@dataclass(frozen=True)
class Log:
    """The requests that a proxy saw, in the order in which they came."""

    requests: tuple[Request, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.requests)

    def only(self, method: str | None = None, path: str | None = None) -> Log:
        """Return those with this method and with this regular expression in their path."""
        rule = Rule(Fault(), method, path)
        return Log(tuple(r for r in self.requests if rule.matches(r.method, r.path, r.range)))

    @property
    def downloaded(self) -> int:
        """Bytes of all responses' bodies."""
        return sum(request.downloaded for request in self.requests)

    @property
    def uploaded(self) -> int:
        """Bytes of all requests' bodies."""
        return sum(request.uploaded for request in self.requests)

    @property
    def in_flight(self) -> int:
        """How many have not ended."""
        return sum(request.ended is None for request in self.requests)

    @property
    def connections(self) -> int:
        """How many connections they came over."""
        return len({request.connection for request in self.requests})

    @property
    def most_in_flight(self) -> int:
        """How many were in flight at once, at most."""
        return _most_at_once((request.started, request.ended) for request in self.requests)


def _most_at_once(intervals: Iterable[tuple[float, float | None]]) -> int:
    changes = []
    for start, end in intervals:
        changes.append((start, 1))
        if end is not None:
            changes.append((end, -1))
    most = now = 0
    # One that ends at the moment at which another starts was not in flight together with it.
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most
