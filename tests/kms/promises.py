"""What the client of every service promises; each test of a service derives its tests from these."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import ags1
from tests.checks import KEY, KEYS, in_child, in_threads
from tests.kms.loopback import Answer, FakeTime, LoopbackServer


class Caching:
    """Promises about keys; the module has fixtures `client`, `server` and `key_id`."""

    def asked(self, server: Any) -> int:
        """How often the service was asked."""
        return len(server.requests)

    def test_what_is_wrapped_is_unwrapped(self, client: Any, key_id: str) -> None:
        for key in KEYS.values():
            wrapped = client.wrap_key(key, key_id)
            assert key not in wrapped
            assert client.unwrap_key(wrapped, key_id) == key

    def test_a_hit_makes_no_call(self, client: Any, server: LoopbackServer, key_id: str, time: FakeTime) -> None:
        wrapped = client.wrap_key(KEY, key_id)
        before = self.asked(server)
        for _ in range(10):
            assert client.unwrap_key(wrapped, key_id) == KEY
        assert self.asked(server) == before + 1
        time.now += 3600
        client.unwrap_key(wrapped, key_id)
        assert self.asked(server) == before + 2

    def test_threads_share_one(self, client: Any, server: LoopbackServer, key_id: str) -> None:
        wrapped = [client.wrap_key(bytes([number]) * 32, key_id) for number in range(4)]
        before = self.asked(server)

        def work() -> list[bytes]:
            return [client.unwrap_key(each, key_id) for each in wrapped]

        assert in_threads([work] * 8) == [[bytes([number]) * 32 for number in range(4)]] * 8
        assert self.asked(server) == before + 4

    def test_a_forked_child_asks_on_a_connection_of_its_own(
        self, client: Any, server: LoopbackServer, key_id: str
    ) -> None:
        wrapped = client.wrap_key(KEY, key_id)
        client.unwrap_key(wrapped, key_id)
        before = self.asked(server)
        assert in_child(lambda: client.unwrap_key(wrapped, key_id)) == KEY
        assert self.asked(server) == before + 1


class Failing:
    """Promises about faults of services that take one request for each call."""

    service: ClassVar[str]
    passing: ClassVar[dict[str, Answer]]
    garbage: ClassVar[tuple[bytes, ...]]
    wrapped: ClassVar[bytes] = KEY
    secrets: ClassVar[tuple[str, ...]] = ()

    def refusal(self, text: str) -> Answer:
        """An answer of the service that has a text."""
        raise NotImplementedError

    def test_a_passing_fault_is_survived_without_the_sdks_own_retries(
        self, client: Any, server: LoopbackServer, key_id: str, time: FakeTime
    ) -> None:
        # Vault is asked once whether the key exists.
        client.wrap_key(KEY, key_id)
        for name, fault in self.passing.items():
            server.script.extend([fault] * 4)
            server.requests.clear()
            time.pauses.clear()
            assert client.wrap_key(KEY, key_id), name
            assert (len(server.requests), len(time.pauses)) == (5, 4), name

    def test_a_service_that_is_down_is_an_error(
        self, client: Any, server: LoopbackServer, key_id: str, time: FakeTime
    ) -> None:
        server.stop()
        message = rf"{self.service} could not wrap a key with '{key_id}': .*\(tried 5 times\)"
        with pytest.raises(ags1.KeyAccessError, match=message):
            client.wrap_key(KEY, key_id)
        assert len(time.pauses) == 4

    def test_garbage_is_an_error(self, client: Any, server: LoopbackServer, key_id: str) -> None:
        calls: list[Callable[[], Any]] = [
            lambda: client.wrap_key(KEY, key_id),
            lambda: client.unwrap_key(self.wrapped, key_id),
        ]
        if client.supports_key_generation():
            calls.append(lambda: client.generate_key(key_id))
        for body in self.garbage:
            for call in calls:
                server.script.extend([Answer(200, body)] * 5)
                with pytest.raises(ags1.KeyAccessError, match=f"{self.service} could not"):
                    call()
                server.script.clear()

    def test_no_text_shows_a_key(self, client: Any, server: LoopbackServer, key_id: str) -> None:
        encoded = base64.b64encode(KEY).decode()
        server.script.append(self.refusal(f"cannot take {encoded}"))
        with pytest.raises(ags1.KeyAccessError) as caught:
            client.wrap_key(KEY, key_id)
        said = str(caught.value) + repr(client)
        assert not any(each in said for each in (encoded, *self.secrets))
        assert (caught.value.__cause__, caught.value.__context__) == (None, None)
