"""How many files are worked on at once: the one place that knows what each storage needs.

this machine     as many as there are CPUs: the work is the cost
a store          more: the wait for a response is the cost
  small files    a request each way: with 20 ms, 32 of them are 1,600 requests in a second. Files that are only read
                 are requested ahead, for few threads: many would hand Python's lock to each other after every native
                 call
  large files    fewer: each has several requests under way
"""

from __future__ import annotations

from collections.abc import Sequence

from ags1.storage.location import Location
from ags1.storage.sources import SMALL

REQUESTS_AT_ONCE = 32
"""Requests that have nearly no bytes, such as for the length of an object."""

SMALL_FILES_AT_ONCE = 16
"""Small files that are read whole and parsed, such as manifests."""

# Each has several requests under way.
_READ_AT_ONCE, _WRITTEN_AT_ONCE = 16, 12
# One that is written has up to 72 MiB of an upload in memory and 16 MiB before it: of files beyond this, half as many.
_LONG_UPLOAD = 40 << 20


def are_small_objects(place: Location, sizes: Sequence[int]) -> bool:
    """Whether these are several small objects of a store, each of which is one request."""
    return place.is_object and len(sizes) > 1 and sum(sizes) <= SMALL * len(sizes)


def files_at_once(place: Location, sizes: Sequence[int], cpus: int, *, written: bool = False) -> int:
    """Return how many files of these sizes, in bytes, are worked on at once where the storage is that of `place`.

    A local file keeps one of the CPUs busy. There may be fewer files than that. `written` says whether other files are
    made of them.
    """
    if place.is_local:
        return cpus
    if sum(sizes) <= SMALL * len(sizes):
        return max(cpus, REQUESTS_AT_ONCE)
    most = _WRITTEN_AT_ONCE if written else _READ_AT_ONCE
    return max(cpus, most // 2 if written and sum(sizes) > _LONG_UPLOAD * len(sizes) else most)
