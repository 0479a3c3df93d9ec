"""Views of other people's memory: counted in bytes, held while they are used, refused with a cure."""

from __future__ import annotations

import array
import gc
import mmap
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ags1.core.buffer import BufferView
from tests.checks import BUFFER_KINDS, NON_CONTIGUOUS, NOT_BUFFERS, READ_ONLY_KINDS, WRITABLE_KINDS, BufferKind, pattern


@pytest.mark.parametrize("kind", BUFFER_KINDS, ids=str)
def test_every_kind_is_viewed_and_counted_in_bytes(kind: BufferKind) -> None:
    for length in map(kind.rounded, (0, 1, 48)):
        view = BufferView(kind.make(pattern(length)))
        assert view.nbytes == length
        assert view.readonly is not kind.writable


@pytest.mark.parametrize("kind", WRITABLE_KINDS, ids=str)
def test_writable_memory_can_be_viewed_for_writing(kind: BufferKind) -> None:
    view = BufferView(kind.make(bytes(48)), True)
    assert (view.nbytes, view.readonly) == (48, False)


@pytest.mark.parametrize("kind", READ_ONLY_KINDS, ids=str)
def test_read_only_memory_is_refused_for_writing_and_named(kind: BufferKind) -> None:
    buffer = kind.make(bytes(48))
    with pytest.raises(TypeError, match=f"must be writable, but this {type(buffer).__name__} is read-only"):
        BufferView(buffer, writable=True)


@pytest.mark.parametrize("make", NON_CONTIGUOUS.values(), ids=NON_CONTIGUOUS)
@pytest.mark.parametrize("writable", [False, True])
def test_memory_with_gaps_is_refused_and_the_cure_named(make: Callable[[], Any], writable: bool) -> None:
    with pytest.raises(ValueError, match=r"must be C-contiguous: pass a contiguous copy, e\.g\. numpy\.ascontig"):
        BufferView(make(), writable)


@pytest.mark.parametrize("wrong", NOT_BUFFERS)
def test_what_is_no_buffer_is_refused_and_its_type_named(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"must be a bytes-like object .*, not {type(wrong).__name__}$"):
        BufferView(wrong)


def test_text_is_refused_with_the_hint_to_encode_it() -> None:
    with pytest.raises(TypeError, match=r"not str; encode it first, e\.g\. data\.encode\(\)$"):
        BufferView("text")


@pytest.mark.parametrize(
    "pointers",
    [
        np.array(["a", "b"], object),
        memoryview(np.array([object()])),
        np.zeros(3, [("number", "i4"), ("text", object)]),
    ],
    ids=["array", "memoryview", "field"],
)
def test_an_array_of_objects_is_refused_because_pointers_are_no_data(pointers: Any) -> None:
    with pytest.raises(TypeError, match=r"is an array of Python objects \(dtype object\)"):
        BufferView(pointers)
    with pytest.raises(TypeError, match=r"is an array of Python objects"):
        BufferView(pointers, writable=True)


def test_dtypes_that_have_no_buffer_format_are_still_bytes() -> None:
    times = np.array(["2024-01-01", "2025-01-01"], "M8[s]")
    assert BufferView(times).nbytes == times.nbytes
    assert BufferView(np.zeros(3, [("Other", "i4"), ("O", "f8")])).nbytes == 36


def test_a_closed_mmap_and_a_released_memoryview_are_refused() -> None:
    mapped = mmap.mmap(-1, 16)
    mapped.close()
    with pytest.raises(ValueError, match="gives no access to its memory"):
        BufferView(mapped)
    view = memoryview(b"abc")
    view.release()
    with pytest.raises(ValueError, match="gives no access to its memory"):
        BufferView(view)


@pytest.mark.parametrize(
    ("make", "grow"),
    [
        (lambda: bytearray(b"abc"), lambda owner: owner.append(1)),
        (lambda: array.array("B", b"abc"), lambda owner: owner.append(1)),
        (lambda: mmap.mmap(-1, 16), lambda owner: owner.close()),
    ],
    ids=["bytearray", "array", "mmap"],
)
def test_memory_cannot_move_while_it_is_viewed(make: Callable[[], Any], grow: Callable[[Any], None]) -> None:
    owner = make()
    view = BufferView(owner)
    with pytest.raises(BufferError):
        grow(owner)
    view.release()
    grow(owner)


def test_a_view_lets_go_when_it_dies() -> None:
    owner = bytearray(b"abc")
    view = BufferView(owner)
    del view
    gc.collect()
    owner.append(1)


def test_a_view_that_could_not_be_made_holds_nothing() -> None:
    owner = bytearray(64)
    with pytest.raises(ValueError, match="C-contiguous"):
        BufferView(memoryview(owner)[::2])
    gc.collect()
    owner.append(1)


def test_a_view_keeps_its_owner_alive() -> None:
    owner = np.zeros(10, np.uint8)
    alive = weakref.ref(owner)
    view = BufferView(owner)
    del owner
    gc.collect()
    assert alive() is not None
    view.release()
    gc.collect()
    assert alive() is None


def test_releasing_twice_does_nothing() -> None:
    owner = bytearray(b"abc")
    other = memoryview(owner)
    view = BufferView(owner)
    view.release()
    view.release()
    # A second release of the export would have freed the memoryview's too.
    with pytest.raises(BufferError):
        owner.append(1)
    assert other.tobytes() == b"abc"


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ((0, 10), (0, 10), True),
        ((0, 10), (9, 20), True),
        ((9, 20), (0, 10), True),
        ((0, 30), (10, 11), True),
        ((0, 10), (10, 20), False),
        ((10, 20), (0, 10), False),
        ((5, 5), (0, 10), False),
        ((0, 10), (5, 5), False),
    ],
)
def test_overlap_is_a_shared_byte(first: tuple[int, int], second: tuple[int, int], shared: bool) -> None:
    memory = memoryview(bytearray(30))
    left, right = BufferView(memory[slice(*first)]), BufferView(memory[slice(*second)])
    assert left.overlaps(right) is shared
    assert right.overlaps(left) is shared


def test_what_a_view_says_cannot_be_changed() -> None:
    view = BufferView(b"abc")
    with pytest.raises(AttributeError):
        view.nbytes = 1000  # type: ignore[misc]
    with pytest.raises(AttributeError):
        view.readonly = False  # type: ignore[misc]
