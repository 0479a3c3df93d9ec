"""One call to the KMS per key encryption key, for every thread and not for ever; forks and threads do no harm."""

from __future__ import annotations

import base64
import gc
import os
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import ags1
from ags1.iceberg import EncryptionKeys
from ags1.kms import KeyCache, MemoryKms, key_cache_of
from ags1.parquet.keys.kms_keys import DataKeyUnwrapper, as_key_service
from ags1.parquet.keys.material import KeyMaterial, wrap_locally
from tests.checks import in_child
from tests.iceberg.key_lists import (
    KEK,
    MASTERS,
    OTHER_KEK,
    CountingKms,
    kek_entry,
    key_metadata,
    keys_of,
    list_entry,
    table,
)

pytestmark = pytest.mark.timeout(60)

THREADS = 16


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def many(count: int = 50) -> list[dict[str, Any]]:
    """One key encryption key, and entries below it."""
    return [kek_entry(), *(list_entry(f"list-{number}", number) for number in range(count))]


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """What each of many threads answers, started at the same moment."""
    barrier = threading.Barrier(THREADS, timeout=600)

    def run(number: int) -> Any:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS), timeout=600))


def test_many_entries_cost_one_call() -> None:
    keys, kms = keys_of(*many()), CountingKms()
    for number in range(50):
        assert keys.unwrap(f"list-{number}", kms) == key_metadata(number)
    assert kms.calls == {"unwrap": 1}


def test_another_list_of_the_same_process_costs_no_further_call() -> None:
    kms, metadata = CountingKms(), table(many(2))
    for _ in range(3):
        assert EncryptionKeys.from_table_metadata(metadata).unwrap("list-1", kms) == key_metadata(1)
    assert kms.calls == {"unwrap": 1}


def test_threads_that_ask_at_once_share_one_call() -> None:
    class Gathering(CountingKms):
        """Gives a second call the time to arrive while the first is under way."""

        second = threading.Event()

        def unwrap_key(self, wrapped_key: Any, wrapping_key_id: str) -> bytes:
            key = super().unwrap_key(wrapped_key, wrapping_key_id)
            if self.calls["unwrap"] > 1:
                self.second.set()
            self.second.wait(0.3)
            return key

    keys, kms = keys_of(*many()), Gathering()
    assert at_once(lambda number: keys.unwrap(f"list-{number}", kms)) == [key_metadata(n) for n in range(THREADS)]
    assert kms.calls == {"unwrap": 1}


def test_threads_that_add_at_once_share_one_key_encryption_key() -> None:
    keys, kms = keys_of(), CountingKms()
    ids = at_once(lambda number: keys.add_manifest_list_key(key_metadata(number), kms, "lake"))
    # The unwrapping is the check of the new key.
    assert kms.calls == {"wrap": 1, "unwrap": 1}
    assert len(keys) == THREADS + 1
    assert [keys.unwrap(key_id, kms) for key_id in ids] == [key_metadata(number) for number in range(THREADS)]


def test_threads_may_read_and_change_while_others_add() -> None:
    keys, kms = keys_of(*many(3)), CountingKms()
    metadata = table([], {1: "list-1"})

    def work(number: int) -> None:
        for _ in range(20):
            if number % 4 == 0:
                keys.add_manifest_list_key(key_metadata(number), kms, "lake")
            elif number % 4 == 1:
                assert keys.unwrap("list-1", kms) == key_metadata(1)
            elif number % 4 == 2:
                assert "list-1" in keys.prune(metadata).merge(keys).key_ids
            else:
                assert EncryptionKeys.from_table_metadata({"encryption-keys": keys.to_list()})["kek"]

    at_once(work)
    assert len(keys) == 4 + 20 * THREADS // 4


def test_a_key_is_unwrapped_again_after_an_hour() -> None:
    clock = Clock()
    kms = CountingKms(clock=clock)
    keys = keys_of(*many())
    keys.unwrap("list-1", kms)
    clock.now += 3599
    keys.unwrap("list-2", kms)
    assert kms.calls == {"unwrap": 1}
    clock.now += 1
    keys.unwrap("list-3", kms)
    keys.unwrap("list-4", kms)
    assert kms.calls == {"unwrap": 2}


def test_access_that_was_taken_away_ends_with_the_cache() -> None:
    class Revoked(CountingKms):
        revoked = False

        def unwrap_key(self, wrapped_key: Any, wrapping_key_id: str) -> bytes:
            if self.revoked:
                raise PermissionError("revoked")
            return super().unwrap_key(wrapped_key, wrapping_key_id)

    clock = Clock()
    kms = Revoked(clock=clock)
    keys = keys_of(*many())
    keys.unwrap("list-1", kms)
    kms.revoked = True
    keys.unwrap("list-1", kms)
    clock.now += 3600
    with pytest.raises(ags1.KeyAccessError, match="PermissionError: revoked"):
        keys.unwrap("list-1", kms)
    assert len(key_cache_of(kms)) == 0


def test_a_client_that_keeps_nothing_is_asked_every_time() -> None:
    kms = CountingKms(cache_seconds=0)
    keys = keys_of(*many())
    keys.unwrap("list-1", kms)
    keys.unwrap("list-1", kms)
    added = keys.add_manifest_list_key(key_metadata(), kms, "lake-2")
    keys.unwrap(added, kms)
    assert kms.calls == {"unwrap": 4, "wrap": 1}
    assert len(key_cache_of(kms)) == 0


def test_a_failed_call_is_not_remembered() -> None:
    class Flaky(CountingKms):
        def unwrap_key(self, wrapped_key: Any, wrapping_key_id: str) -> bytes:
            key = super().unwrap_key(wrapped_key, wrapping_key_id)
            if self.calls["unwrap"] == 1:
                raise TimeoutError("slow")
            return key

    keys, kms = keys_of(*many()), Flaky()
    with pytest.raises(ags1.KeyAccessError, match="TimeoutError: slow"):
        keys.unwrap("list-1", kms)
    assert keys.unwrap("list-1", kms) == key_metadata(1)
    assert kms.calls == {"unwrap": 2}


def test_a_client_gets_nothing_that_another_one_unwrapped() -> None:
    allowed, denied = CountingKms(), MemoryKms({})
    keys = keys_of(*many())
    keys.unwrap("list-1", allowed)
    with pytest.raises(ags1.KeyAccessError, match="MemoryKms did not unwrap key encryption key 'kek'"):
        keys.unwrap("list-1", denied)


def test_an_id_that_was_given_to_another_key_gets_that_key() -> None:
    kms = CountingKms()
    keys_of(*many()).unwrap("list-1", kms)
    other = keys_of(kek_entry(kek=OTHER_KEK), list_entry(kek=OTHER_KEK))
    assert other.unwrap("list", kms) == key_metadata()
    with pytest.raises(ags1.AuthenticationError, match="'list' does not open"):
        keys_of(kek_entry(kek=OTHER_KEK), list_entry(kek=KEK)).unwrap("list", kms)


class Foreign:
    """A client that is none of ags1's, as PyIceberg's or one's own."""

    def __init__(self) -> None:
        self.kms = MemoryKms(MASTERS, cache_seconds=0)
        self.asked = 0

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        return self.kms.wrap_key(key, wrapping_key_id)

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        self.asked += 1
        return self.kms.unwrap_key(wrapped_key, wrapping_key_id)


def test_keys_are_gone_with_their_client() -> None:
    kms = Foreign()
    keys = keys_of(*many())
    keys.unwrap("list-1", kms)
    keys.unwrap("list-2", kms)
    assert kms.asked == 1
    cache = weakref.ref(key_cache_of(kms))
    del kms
    gc.collect()
    assert cache() is None


def test_a_foreign_client_that_keeps_nothing_is_asked_every_time() -> None:
    class Careful(Foreign):
        cache_seconds = 0

    kms = Careful()
    for _ in range(3):
        keys_of(*many()).unwrap("list-1", kms)
    assert kms.asked == 3


def test_a_foreign_client_without_weak_references_is_asked_every_time() -> None:
    class Slotted:
        __slots__ = ("asked",)

        def __init__(self) -> None:
            self.asked = 0

        def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
            raise NotImplementedError

        def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
            self.asked += 1
            return MemoryKms(MASTERS).unwrap_key(wrapped_key, wrapping_key_id)

    kms = Slotted()
    for _ in range(3):
        keys_of(*many()).unwrap("list-1", kms)
    assert kms.asked == 3


@pytest.mark.parametrize("end", ["close", "initialize"])
def test_a_client_that_was_closed_or_set_up_anew_gives_no_key_any_more(end: str) -> None:
    kms = CountingKms()
    keys = keys_of(*many())
    keys.unwrap("list-1", kms)
    if end == "close":
        kms.close()
        for _ in range(2):
            with pytest.raises(ags1.KeyAccessError, match="this CountingKms is closed"):
                keys.unwrap("list-1", kms)
    else:
        kms.initialize({})
        keys.unwrap("list-1", kms)
        assert kms.calls == {"unwrap": 2}


def test_a_key_that_arrives_after_the_client_was_closed_is_not_kept() -> None:
    class Closing(CountingKms):
        def unwrap_key(self, wrapped_key: Any, wrapping_key_id: str) -> bytes:
            key = super().unwrap_key(wrapped_key, wrapping_key_id)
            self.close()
            return key

    kms = Closing()
    keys = keys_of(*many())
    keys.unwrap("list-1", kms)
    assert len(key_cache_of(kms)) == 0
    with pytest.raises(ags1.KeyAccessError, match="is closed"):
        keys.unwrap("list-1", kms)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("make", [CountingKms, Foreign])
def test_a_forked_child_has_no_key_of_its_parent(make: Callable[[], Any]) -> None:
    kms = make()
    keys_of(*many()).unwrap("list-1", kms)
    assert len(key_cache_of(kms)) == 1
    assert in_child(lambda: str(len(key_cache_of(kms))).encode()) == b"0"
    assert len(key_cache_of(kms)) == 1


def test_all_rooms_share_the_clients_cache() -> None:
    kms = CountingKms()
    keys = keys_of(*many())
    keys.unwrap("list-1", kms)
    entry = keys["kek"]
    assert kms.unwrap_key(entry.encrypted_key_metadata, "lake") == KEK
    material = KeyMaterial(
        is_footer_key=True, master_key_id="lake", kek_id=b"k", wrapped_dek=wrap_locally(bytes(16), ags1.Key(KEK), b"k"),
        wrapped_kek=base64.b64encode(entry.encrypted_key_metadata).decode(),
    )  # fmt: skip
    assert bytes(DataKeyUnwrapper(as_key_service(kms)).unwrap(material)) == bytes(16)
    assert len(key_cache_of(kms)) == 1


def test_a_cache_has_an_upper_bound() -> None:
    cache = KeyCache()
    for number in range(10_500):
        cache.put(number, ags1.Key(KEK))
    assert len(cache) == 10_000


def test_a_cache_shows_and_sends_no_key() -> None:
    keys_of(*many()).unwrap("list-1", kms := CountingKms())
    cache = key_cache_of(kms)
    assert repr(cache) == "<ags1.kms.KeyCache: 1 keys, kept for 3600 s>"
    with pytest.raises(TypeError, match="cannot be pickled or copied: it holds keys"):
        pickle.dumps(cache)
    assert kms.calls == {"unwrap": 1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_while_a_thread_waits_for_the_kms_does_not_hang() -> None:
    asked, answer = threading.Event(), threading.Event()

    class Slow(CountingKms):
        slow = True

        def _pause(self) -> None:
            if self.slow:
                asked.set()
                assert answer.wait(600)

        def unwrap_key(self, wrapped_key: Any, wrapping_key_id: str) -> bytes:
            self._pause()
            return super().unwrap_key(wrapped_key, wrapping_key_id)

        def wrap_key(self, key: Any, wrapping_key_id: str) -> bytes:
            self._pause()
            return super().wrap_key(key, wrapping_key_id)

    kms = Slow()
    reading, adding = keys_of(*many()), keys_of()
    for work in (
        lambda: reading.unwrap("list-1", kms),
        lambda: adding.add_manifest_list_key(key_metadata(), kms, "lake"),
    ):
        asked.clear()
        answer.clear()
        thread = threading.Thread(target=work)
        thread.start()
        assert asked.wait(600)
        child = os.fork()
        if child == 0:
            kms.slow = False
            kms._count = threading.Lock()
            try:
                work()
                os._exit(0)
            finally:
                os._exit(1)
        try:
            assert _exit_status(child) == 0
        finally:
            answer.set()
            thread.join(600)


def _exit_status(child: int) -> int | None:
    """How a child ended; a child that hangs is ended, and None."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        threading.Event().wait(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None
