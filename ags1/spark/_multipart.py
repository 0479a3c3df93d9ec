"""A big object of S3, written by many tasks as one multipart upload.

Range i has the parts i * K + 1 to i * K + K at most, however many of them it needs: S3 wants ascending numbers, not
successive ones. A part ends where a block ends, and an attempt that uploads it again replaces it as a whole, so any
mixture of the attempts at a range is a valid range. S3 itself keeps the parts; a task waits for nobody.

The calls go through s3fs's `call_s3`: its own files upload their parts from one process only, and this one method
brings the retries, the credentials and the settings (encryption at rest, who pays) that all its requests have. boto3,
which would be the other way, would have to be installed and configured beside it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from ags1.errors import Ags1Error
from ags1.spark._assembly import Assembly, Layout, Range
from ags1.spark._storage import Storage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["MultipartUpload"]

_MOST_PARTS = 10_000
_SMALLEST_PART = 5 << 20
_LARGEST_PART = 5 << 30
_PART = 32 << 20


class MultipartUpload(Assembly):
    """See :class:`Assembly`.

    Parameters
    ----------
    upload_id : str
        S3's name of the upload.
    """

    def __init__(self, storage: Storage, path: str, layout: Layout, upload_id: str) -> None:
        super().__init__(storage, path, layout)
        self.upload_id = upload_id
        self._is_complete = False

    # -- driver ----------------------------------------------------------------------------------------------------

    @classmethod
    def prepare(cls, storage: Storage, path: str, layout: Layout) -> MultipartUpload | None:
        """Begin an upload, if S3's limits allow one of these ranges."""
        if layout.count > _MOST_PARTS:
            return None
        last = layout.count - 1
        seen: set[tuple[int, int]] = set()
        for index, offset, length in layout.ranges():
            # The first range has a header, the last one may end in a short part; those between are alike.
            kind = (length, (index == 0) + 2 * (index == last))
            if kind in seen:
                continue
            seen.add(kind)
            sizes = _part_sizes(layout, offset, length)
            if min(sizes[:-1] if index == last else sizes, default=_SMALLEST_PART) < _SMALLEST_PART:
                return None
            if max(sizes) > _LARGEST_PART or len(sizes) > _parts_of_a_range(layout):
                return None
        made = cls(storage, path, layout, "")
        made.upload_id = made._call("create_multipart_upload")["UploadId"]
        return made

    def complete(self) -> None:
        attempts = 0
        while not self._is_complete:
            attempts += 1
            try:
                parts = self._parts()
            except FileNotFoundError:
                raise Ags1Error(
                    f"{self._url}: its upload is gone, and what was written with it: S3 or somebody else has removed it"
                ) from None
            self._check(parts)
            chosen = [_reference(parts[number]) for number in sorted(parts)]
            try:
                self._call("complete_multipart_upload", UploadId=self.upload_id, MultipartUpload={"Parts": chosen})
                self._is_complete = True
            except FileNotFoundError:
                # It was there a moment ago: s3fs has repeated a request whose answer was lost.
                if self.storage.stat(self.path).size != self.layout.length:
                    raise
                self._is_complete = True
            except OSError as error:
                # A zombie has replaced a part since the parts were listed. The new one is as good.
                if attempts == 2 or _code(error) != "InvalidPart":
                    raise

    def _parts(self) -> dict[int, dict[str, Any]]:
        """The parts that S3 has now, by their numbers."""
        found: dict[int, dict[str, Any]] = {}
        marker: dict[str, int] = {}
        while True:
            answer = self._call("list_parts", UploadId=self.upload_id, **marker)
            found.update((part["PartNumber"], part) for part in answer.get("Parts", ()))
            if not answer.get("IsTruncated"):
                return found
            marker = {"PartNumberMarker": int(answer["NextPartNumberMarker"])}

    def _check(self, parts: dict[int, dict[str, Any]]) -> None:
        count = _parts_of_a_range(self.layout)
        expected = 0
        for index, offset, length in self.layout.ranges():
            for number, size in enumerate(_part_sizes(self.layout, offset, length), index * count + 1):
                expected += 1
                if number not in parts:
                    raise Ags1Error(f"{self._url}: range {index} of {self.layout.count} was not written")
                if parts[number]["Size"] != size:
                    raise Ags1Error(
                        f"{self._url}: part {number}, of range {index}, has {parts[number]['Size']} bytes instead of "
                        f"{size}"
                    )
        if len(parts) != expected:
            raise Ags1Error(f"{self._url}: there are {len(parts)} parts instead of {expected}")

    def abort(self) -> None:
        # A part that was under way may arrive after the first.
        for _ in range(3):
            try:
                self._call("abort_multipart_upload", UploadId=self.upload_id)
                self._call("list_parts", UploadId=self.upload_id, MaxParts=1)
            except FileNotFoundError:
                return

    # -- tasks -----------------------------------------------------------------------------------------------------

    @contextmanager
    def claim(self, index: int, offset: int, length: int) -> Iterator[Range | None]:
        self.layout.check(index, offset, length)
        first = index * _parts_of_a_range(self.layout) + 1
        part = _UploadedRange(self, first, offset, _part_sizes(self.layout, offset, length))
        try:
            yield part
        except BaseException:
            part.close()
            raise
        part.finish()

    def upload(self, number: int, data: bytearray) -> None:
        """Upload one part."""
        try:
            # Bytes, though aiohttp would rather have a file (a ResourceWarning for developers says so): s3fs repeats
            # the call with the same body, and does not rewind one.
            self._call("upload_part", UploadId=self.upload_id, PartNumber=number, Body=data)
        except FileNotFoundError:
            raise FileNotFoundError(
                errno.ENOENT, "its upload is gone: it has been completed or given up meanwhile", self._url
            ) from None

    @property
    def _url(self) -> str:
        return self.storage.location.url(self.path)

    def _call(self, method: str, **arguments: Any) -> dict[str, Any]:
        file_system = self.storage.location.file_system()
        bucket, key, _ = file_system.split_path(self.storage.location.join(self.path))
        answer: dict[str, Any] = file_system.call_s3(method, Bucket=bucket, Key=key, **arguments)
        return answer


class _UploadedRange(Range):
    """Gathers bytes into parts; one is uploaded while the next is gathered."""

    def __init__(self, upload: MultipartUpload, first: int, offset: int, sizes: list[int]) -> None:
        super().__init__(offset, sum(sizes))
        self._upload = upload
        self._number = first
        self._sizes = sizes
        self._next = offset
        self._part = bytearray()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ags1-upload")
        self._under_way: Future[None] | None = None

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        with memoryview(data) as view, view.cast("B") as octets:
            if offset != self._next or offset + len(octets) > self.offset + self.length:
                raise ValueError(f"{len(octets)} bytes at {offset} are not the next of this range")
            self._next += len(octets)
            done = 0
            while done < len(octets):
                count = min(self._sizes[0] - len(self._part), len(octets) - done)
                self._part += octets[done : done + count]
                done += count
                if len(self._part) == self._sizes[0]:
                    self._send()

    def _send(self) -> None:
        # Never more than two parts in memory.
        self._wait()
        self._under_way = self._thread.submit(self._upload.upload, self._number, self._part)
        self._part = bytearray()
        self._sizes = self._sizes[1:]
        self._number += 1

    def _wait(self) -> None:
        if self._under_way is not None:
            waiting, self._under_way = self._under_way, None
            waiting.result()

    def finish(self) -> None:
        try:
            if self._sizes:
                missing = self.offset + self.length - self._next
                raise ValueError(f"the last {missing} bytes of this range were not written")
            self._wait()
        finally:
            self.close()

    def close(self) -> None:
        self._thread.shutdown(wait=True)


def _parts_of_a_range(layout: Layout) -> int:
    return _MOST_PARTS // layout.count


def _part_sizes(layout: Layout, offset: int, length: int) -> list[int]:
    """How a range is cut: in parts of whole units, all about equal. The same for every attempt."""
    header = max(0, min(length, layout.origin - offset))
    units = -(-(length - header) // layout.unit)
    if units == 0:
        return [length]
    most = max(1, _PART // layout.unit, -(-units // _parts_of_a_range(layout)))
    count = -(-units // most)
    ends = [header + (units * part // count) * layout.unit for part in range(1, count)] + [length]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _reference(part: dict[str, Any]) -> dict[str, Any]:
    """How a part is named to complete the upload; where S3 keeps checksums, it wants them back."""
    names = ("PartNumber", "ETag", *(name for name in part if name.startswith("Checksum")))
    return {name: part[name] for name in names}


def _code(error: BaseException | None) -> str | None:
    """S3's name of an error, which s3fs hides behind an OSError."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            code = response.get("Error", {}).get("Code")
            return None if code is None else str(code)
        error = error.__cause__ or error.__context__
    return None
