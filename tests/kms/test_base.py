"""What every client promises: few calls, patience with passing faults, errors that name and do not leak."""

from __future__ import annotations

import base64
import copy
import functools
import itertools
import logging
import os
import pickle
import re
import threading
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

import ags1
from ags1 import kms
from ags1.kms import base, cache
from ags1.support.secrets import shows_secret
from tests.checks import KEY, KEYS, OTHER_KEY, in_child, in_threads, interrupted, pattern, run_python
from tests.kms.loopback import FakeTime

CommonArguments = dict[str, Any]


class Throttled(Exception):
    """A fault that passes."""


class Denied(Exception):
    """A fault that does not."""


class CountingKms(kms.KeyManagementClient):
    """Wraps by turning bytes around; raises what its script says first."""

    service = "CountingKms"

    def __init__(self, **common: Any) -> None:
        super().__init__(**common)
        self.calls: list[str] = []
        self.script: deque[Exception] = deque()
        self.connections = 0
        self.hung_up = 0
        self.answers: dict[str, Any] = {}
        self.before: Callable[[], None] = lambda: None

    def _call_of(self, name: str) -> None:
        assert self._connection is not None
        self.calls.append(name)
        self.before()
        if self.script:
            raise self.script.popleft()

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        self._call_of("wrap")
        return self.answers.get("wrap", key[::-1])

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        self._call_of("unwrap")
        return self.answers.get("unwrap", wrapped[::-1])

    def supports_key_generation(self) -> bool:
        return True

    def _generate(self, key_id: str) -> tuple[bytes, bytes]:
        self._call_of("generate")
        return self.answers.get("generate", (KEY, KEY[::-1]))

    def _connect(self) -> Any:
        self.connections += 1
        return object()

    def _hang_up(self, connection: Any) -> None:
        self.hung_up += 1
        raise OSError("the line is dead already")

    def _is_transient(self, error: Exception) -> bool:
        return isinstance(error, Throttled)


@pytest.fixture
def client(time: FakeTime) -> CountingKms:
    return CountingKms(**time.common)


# -- the protocol --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", KEYS)
def test_what_is_wrapped_is_unwrapped(client: CountingKms, length: int) -> None:
    wrapped = client.wrap_key(KEYS[length], "lake")
    assert (type(wrapped), client.unwrap_key(wrapped, "lake")) == (bytes, KEYS[length])


@pytest.mark.parametrize("kind", [bytearray, memoryview, ags1.Key])
def test_a_key_may_be_any_buffer(client: CountingKms, kind: Any) -> None:
    assert client.unwrap_key(memoryview(client.wrap_key(kind(KEY), "lake")), "lake") == KEY


def test_a_service_that_generates_answers_key_and_wrapped_key(client: CountingKms) -> None:
    made = client.generate_key("lake")
    assert (made.key, client.unwrap_key(made.wrapped_key, "lake")) == (KEY, KEY)


def test_a_service_that_does_not_generate_says_what_to_do_instead() -> None:
    client = kms.MemoryKms({"lake": KEY})
    assert not client.supports_key_generation()
    with pytest.raises(NotImplementedError, match=r"MemoryKms generates no keys: make one with ags1\.Key\.generate"):
        client.generate_key("lake")


def test_the_methods_are_those_of_icebergs_interface() -> None:
    wanted = {"initialize", "wrap_key", "unwrap_key", "supports_key_generation", "generate_key", "close"}
    public = {name for name in vars(kms.KeyManagementClient) if not name.startswith("_")}
    assert public == wanted | {"as_pyarrow", "checks_keys", "service"}


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda client: client.wrap_key("text", "lake"), TypeError, "key must be a bytes-like object, not str"),
        (lambda client: client.wrap_key(b"", "lake"), ValueError, "key must not be empty"),
        (lambda client: client.unwrap_key("text", "lake"), TypeError, "wrapped_key must be a bytes-like"),
        (lambda client: client.unwrap_key(b"", "lake"), ValueError, "wrapped_key must not be empty"),
        (lambda client: client.wrap_key(KEY, b"lake"), TypeError, "wrapping_key_id must be a str, not bytes"),
        (lambda client: client.unwrap_key(KEY, ""), ValueError, "wrapping_key_id must not be empty"),
        (lambda client: client.generate_key(None), TypeError, "wrapping_key_id must be a str, not NoneType"),
        (lambda _: CountingKms(attempts=0), ValueError, "attempts must be at least 1, got 0"),
        (lambda _: CountingKms(cache_seconds=-1), ValueError, "cache_seconds must not be negative, got -1"),
        (lambda _: CountingKms(cache_seconds=float("nan")), ValueError, "cache_seconds must not be negative"),
    ],
)
def test_wrong_arguments_make_no_call(
    client: CountingKms, call: Callable[[Any], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(client)
    assert client.calls == []


def test_a_closed_client_refuses_everything_and_closes_twice(client: CountingKms) -> None:
    with client:
        wrapped = client.wrap_key(KEY, "lake")
        client.unwrap_key(wrapped, "lake")
    client.close()
    calls: list[Callable[[], Any]] = [
        lambda: client.wrap_key(KEY, "lake"),
        lambda: client.unwrap_key(wrapped, "lake"),
        lambda: client.generate_key("lake"),
        lambda: client.initialize({}),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="this CountingKms is closed"):
            call()
    assert client.hung_up == 1
    assert repr(client) == "<ags1.kms.CountingKms, closed>"


def test_initialize_forgets_connection_and_cache(client: CountingKms) -> None:
    wrapped = client.wrap_key(KEY, "lake")
    client.unwrap_key(wrapped, "lake")
    client.initialize({"region": "elsewhere"})
    client.unwrap_key(wrapped, "lake")
    assert (client.connections, client.calls) == (2, ["wrap", "unwrap", "unwrap"])


# -- the cache -----------------------------------------------------------------------------------------------


def test_a_hit_makes_no_call(client: CountingKms) -> None:
    wrapped = client.wrap_key(KEY, "lake")
    assert [client.unwrap_key(wrapped, "lake") for _ in range(100)] == [KEY] * 100
    assert client.calls == ["wrap", "unwrap"]


def test_a_key_is_asked_for_again_when_it_expired(client: CountingKms, time: FakeTime) -> None:
    wrapped = client.wrap_key(KEY, "lake")
    client.unwrap_key(wrapped, "lake")
    time.now += kms.CACHE_SECONDS - 0.001
    client.unwrap_key(wrapped, "lake")
    assert client.calls.count("unwrap") == 1
    time.now += 0.001
    client.unwrap_key(wrapped, "lake")
    assert client.calls.count("unwrap") == 2


def test_the_cache_tells_key_ids_and_wrapped_bytes_apart(client: CountingKms) -> None:
    wrapped = client.wrap_key(KEY, "lake")
    for key_id, data in (("lake", wrapped), ("sea", wrapped), ("lake", OTHER_KEY), ("sea", OTHER_KEY)):
        assert client.unwrap_key(data, key_id) == data[::-1]
    assert client.calls.count("unwrap") == 4


def test_nothing_is_cached_where_the_user_wants_nothing_cached(time: FakeTime) -> None:
    client = CountingKms(cache_seconds=0, **time.common)
    for _ in range(3):
        client.unwrap_key(KEY, "lake")
    assert client.calls == ["unwrap"] * 3


def test_only_keys_are_cached(client: CountingKms) -> None:
    for _ in range(3):
        assert client.unwrap_key(b"cba", "lake") == b"abc"
    assert client.calls == ["unwrap"] * 3


def test_failures_are_not_cached(client: CountingKms) -> None:
    client.script.append(Denied("no"))
    with pytest.raises(ags1.KeyAccessError):
        client.unwrap_key(KEY, "lake")
    assert client.unwrap_key(KEY, "lake") == KEY[::-1]


def test_the_cache_does_not_grow_for_ever(client: CountingKms, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_ENTRIES", 10)
    for number in range(30):
        client.unwrap_key(number.to_bytes(16, "big"), "lake")
    assert len(client._key_cache) == 10
    client.unwrap_key((29).to_bytes(16, "big"), "lake")
    assert client.calls.count("unwrap") == 30


def test_expired_keys_are_dropped_when_others_come(client: CountingKms, time: FakeTime) -> None:
    for number in range(5):
        client.unwrap_key(number.to_bytes(16, "big"), "lake")
    time.now += kms.CACHE_SECONDS
    client.unwrap_key(KEY, "lake")
    assert len(client._key_cache) == 1


def test_cached_keys_are_keys_and_gone_after_close(client: CountingKms) -> None:
    client.unwrap_key(KEY, "lake")
    assert [type(key) for _, key in client._key_cache._kept.values()] == [ags1.Key]
    client.close()
    assert not client._key_cache


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_has_no_key_and_no_connection_of_its_parent(client: CountingKms) -> None:
    client.unwrap_key(KEY, "lake")

    def child() -> bytes:
        before = len(client._key_cache)
        client.unwrap_key(KEY, "lake")
        return f"{before} {client.calls.count('unwrap')} {client.connections} {client.hung_up}".encode()

    assert in_child(child) == b"0 2 2 0"
    client.unwrap_key(KEY, "lake")
    assert (client.calls.count("unwrap"), client.connections) == (1, 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_that_is_forked_during_a_call_does_not_wait_for_it(client: CountingKms) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        inside.set()
        assert go_on.wait(600)

    client.before = wait
    thread = threading.Thread(target=client.unwrap_key, args=(KEY, "lake"))
    thread.start()
    try:
        assert inside.wait(600)

        def child() -> bytes:
            client.before = lambda: None
            with client._lock:
                return client.unwrap_key(KEY, "lake")

        with client._lock:
            assert in_child(child) == KEY[::-1]
    finally:
        go_on.set()
        thread.join(600)


# -- threads -------------------------------------------------------------------------------------------------


def test_many_threads_that_want_one_key_make_one_call(client: CountingKms) -> None:
    assert in_threads([lambda: client.unwrap_key(KEY, "lake")] * 16) == [KEY[::-1]] * 16
    assert client.calls == ["unwrap"]


def test_threads_that_waited_for_a_failure_get_it_and_do_not_ask_again_one_by_one(client: CountingKms) -> None:
    arrived = threading.Barrier(8)
    waiting = threading.Event()

    def leader_waits() -> None:
        assert waiting.wait(600)

    client.before = leader_waits
    client.script.append(Denied("not you"))

    class Watched(cache._Flight):
        """Says when seven wait for it."""

        count = 0

        def __init__(self) -> None:
            super().__init__()
            self.own, self.lock = self.lock, self

        def __enter__(self) -> None:
            Watched.count += 1
            # The eighth is the one that asks.
            if Watched.count == 8:
                waiting.set()
            self.own.acquire()

        def __exit__(self, *_: object) -> None:
            self.own.release()

    def ask() -> str:
        arrived.wait(600)
        with pytest.raises(ags1.KeyAccessError) as caught:
            client.unwrap_key(KEY, "lake")
        return str(caught.value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "_Flight", Watched)
        texts = in_threads([ask] * 8)
    assert set(texts) == {"CountingKms could not unwrap a key with 'lake': Denied: not you"}
    assert client.calls == ["unwrap"]


def test_threads_with_different_keys_do_not_mix_them_up(client: CountingKms) -> None:
    def work(number: int) -> Callable[[], bool]:
        key = bytes([number]) * 32

        def run() -> bool:
            wrapped = [client.wrap_key(bytes([number, each]) * 16, "lake") for each in range(50)]
            found = [client.unwrap_key(each, "lake") for each in wrapped * 2]
            return found == [bytes([number, each]) * 16 for each in range(50)] * 2 and bool(key)

        return run

    assert all(in_threads([work(number) for number in range(8)]))
    assert client.connections == 1
    assert client.calls.count("unwrap") == 400


def test_an_interrupted_call_does_not_leave_others_waiting(client: CountingKms) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    client.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        client.unwrap_key(KEY, "lake")
    client.before = lambda: None
    assert in_threads([lambda: client.unwrap_key(KEY, "lake")] * 4) == [KEY[::-1]] * 4
    assert client.calls == ["unwrap"] * 2


@pytest.mark.parametrize("seconds", [0, 100])
def test_an_interrupt_anywhere_in_the_cache_does_not_leave_others_waiting(seconds: float) -> None:
    for moment in itertools.count():
        keys = cache.KeyCache(seconds)
        get = functools.partial(keys.get, "name", lambda: ags1.Key(KEY))
        was_interrupted = interrupted(get, moment, cache.__file__)
        assert all(isinstance(found, ags1.Key) for found in in_threads([get] * 3))
        assert (get() is get()) == (seconds > 0)
        if not was_interrupted:
            break
    assert moment > 5, "nothing was interrupted"


# -- faults --------------------------------------------------------------------------------------------------


def test_a_passing_fault_is_survived(client: CountingKms, time: FakeTime) -> None:
    client.script.extend([Throttled("slow down")] * 4)
    assert client.unwrap_key(KEY, "lake") == KEY[::-1]
    assert len(time.pauses) == 4


def test_pauses_double_and_differ_from_client_to_client(time: FakeTime) -> None:
    series = []
    for _ in range(20):
        client = CountingKms(attempts=9, **time.common)
        client.script.extend([Throttled("slow down")] * 8)
        time.pauses.clear()
        client.wrap_key(KEY, "lake")
        series.append(tuple(time.pauses))
        for attempt, pause in enumerate(time.pauses):
            longest = min(base._FIRST_PAUSE * 2**attempt, base._LONGEST_PAUSE)
            assert longest / 2 <= pause <= longest
    assert len(set(series)) > 1


def test_a_fault_that_stays_is_an_error_which_says_how_often_it_was_tried(client: CountingKms) -> None:
    client.script.extend([Throttled("slow down")] * 5)
    with pytest.raises(ags1.KeyAccessError) as caught:
        client.wrap_key(KEY, "lake")
    assert str(caught.value) == ("CountingKms could not wrap a key with 'lake': Throttled: slow down (tried 5 times)")
    assert client.calls == ["wrap"] * 5


def test_a_refusal_is_not_tried_again(client: CountingKms, time: FakeTime) -> None:
    client.script.append(Denied("not you"))
    with pytest.raises(ags1.KeyAccessError, match=r"could not generate a key with 'lake': Denied: not you$"):
        client.generate_key("lake")
    assert (client.calls, time.pauses) == (["generate"], [])


def test_one_attempt_is_one_attempt(time: FakeTime) -> None:
    client = CountingKms(attempts=1, **time.common)
    client.script.append(Throttled("slow down"))
    with pytest.raises(ags1.KeyAccessError, match=r"slow down$"):
        client.wrap_key(KEY, "lake")


def test_a_client_that_is_closed_while_it_waits_does_not_call_again(time: FakeTime) -> None:
    client = CountingKms(clock=time, sleep=lambda _: client.close())
    client.script.extend([Throttled("slow down")] * 2)
    with pytest.raises(ValueError, match="closed"):
        client.wrap_key(KEY, "lake")
    assert client.calls == ["wrap"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "the service returned nothing"),
        (b"", "the service returned nothing"),
        ("text", "the service returned str instead of bytes"),
        (KEY.hex(), "the service returned str instead of bytes"),
    ],
)
def test_nonsense_is_not_handed_on(client: CountingKms, answer: Any, message: str) -> None:
    client.answers = {"wrap": answer, "unwrap": answer, "generate": (answer, answer)}
    for call in (
        lambda: client.wrap_key(KEY, "k"),
        lambda: client.unwrap_key(KEY, "k"),
        lambda: client.generate_key("k"),
    ):
        with pytest.raises(ags1.KeyAccessError, match=message):
            call()


def test_a_generated_key_that_is_no_aes_key_is_refused(client: CountingKms) -> None:
    client.answers = {"generate": (b"short", b"wrapped")}
    with pytest.raises(ags1.KeyAccessError, match="the service returned a key of 5 bytes"):
        client.generate_key("lake")


def test_a_long_cause_is_cut_and_stays_on_one_line(client: CountingKms) -> None:
    client.script.append(Denied("line\nline\r\n" * 1000))
    with pytest.raises(ags1.KeyAccessError) as caught:
        client.wrap_key(KEY, "lake")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


# -- secrets -------------------------------------------------------------------------------------------------

SPELLINGS: dict[str, Callable[[bytes], str]] = {
    "hex": lambda key: key.hex(),
    "HEX": lambda key: key.hex().upper(),
    "hex with spaces": lambda key: key.hex(" "),
    "repr": repr,
    "list": lambda key: str(list(key)),
    "latin-1": lambda key: key.decode("latin-1"),
    "base64": lambda key: base64.b64encode(key).decode(),
    "base64, shifted by one": lambda key: base64.b64encode(b"x" + key).decode(),
    "base64, shifted by two": lambda key: base64.b64encode(b"xy" + key).decode(),
    "base64 for URLs": lambda key: base64.urlsafe_b64encode(key).decode(),
    "half of it": lambda key: key[8:20].hex(),
}


@pytest.mark.parametrize("length", KEYS)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_service_that_repeats_the_key_in_its_error_is_not_quoted(
    client: CountingKms, spelling: str, length: int
) -> None:
    # Some of them have line ends and spaces inside, which a message on one line has not.
    for key in (pattern(length, seed) for seed in range(100)):
        client.script.append(Denied(f"cannot wrap <{SPELLINGS[spelling](key)}>"))
        with pytest.raises(ags1.KeyAccessError) as caught:
            client.wrap_key(key, "lake")
        assert "Denied (its text is left out, because it contains the key)" in str(caught.value)


def test_an_error_that_shows_no_key_is_quoted_whatever_the_key(client: CountingKms) -> None:
    for key in (pattern(32, seed) for seed in range(100)):
        client.script.append(Denied("cannot wrap: 0123456789abcdef, request id 8c5f12ab-11, YWJjZGVm"))
        with pytest.raises(ags1.KeyAccessError, match="request id 8c5f12ab-11, YWJjZGVm"):
            client.wrap_key(key, "lake")


def test_no_exception_hangs_on_the_error(client: CountingKms) -> None:
    client.script.append(Denied(f"cannot wrap {KEY.hex()}"))
    with pytest.raises(ags1.KeyAccessError) as caught:
        client.wrap_key(KEY, "lake")
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert KEY.hex() not in "".join(traceback.format_exception(caught.value))


def test_reprs_show_no_key(client: CountingKms) -> None:
    made = client.generate_key("lake")
    client.unwrap_key(made.wrapped_key, "lake")
    assert repr(made) == "ags1.kms.GeneratedKey(key=<redacted>, wrapped_key=<...>)"
    assert repr(client) == "<ags1.kms.CountingKms>"


@pytest.mark.parametrize("copier", [pickle.dumps, copy.copy, copy.deepcopy])
def test_clients_and_generated_keys_are_neither_pickled_nor_copied(client: CountingKms, copier: Any) -> None:
    with pytest.raises(TypeError, match="CountingKms cannot be pickled or copied: it holds keys and connections"):
        copier(client)
    with pytest.raises(TypeError, match="GeneratedKey cannot be pickled or copied: it holds a key"):
        copier(client.generate_key("lake"))


# -- imports -------------------------------------------------------------------------------------------------

SDKS = {"boto3", "botocore", "google", "azure", "hvac", "requests", "cryptography", "pyasn1", "pyarrow", "grpc"}


@pytest.mark.timeout(60)
def test_importing_the_package_and_naming_every_client_imports_no_sdk() -> None:
    loaded = run_python(
        """
        import sys
        before = set(sys.modules)
        import ags1.kms
        for name in ags1.kms.__all__:
            getattr(ags1.kms, name)
        from ags1.kms.services import SERVICES
        for scheme in SERVICES:
            ags1.kms.load(f"{scheme}:")
        ags1.kms.LocalKms("x")
        print(*(set(sys.modules) - before))
        """
    ).split()
    assert "ags1.kms.aws" in loaded
    assert not {name for name in loaded if name.split(".")[0] in SDKS}


def test_the_names_are_listed_and_others_are_attribute_errors() -> None:
    assert dir(kms) == sorted(kms.__all__)
    with pytest.raises(AttributeError, match=r"module 'ags1\.kms' has no attribute 'OracleKms'"):
        kms.OracleKms  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("make", "absent", "extra"),
    [
        ("AwsKms(region='r')", "boto3", "aws"),
        ("GcpKms()", "google.cloud", "gcp"),
        ("AzureKms('https://v.vault.azure.net')", "azure.keyvault", "azure"),
        ("VaultKms('https://v', token='t')", "hvac", "vault"),
        ("LocalKms(FILE, password='p')", "pyasn1_modules", "kms"),
    ],
)
def test_a_missing_sdk_is_named_with_its_extra(make: str, absent: str, extra: str, tmp_path: Any) -> None:
    (tmp_path / "k.p12").write_bytes(b"\x30\x82")
    key_id = "projects/p/locations/l/keyRings/r/cryptoKeys/k" if extra == "gcp" else "key"
    code = f"""
        import sys
        sys.modules[{absent!r}] = None
        from ags1.kms import *
        FILE = {str(tmp_path / "k.p12")!r}
        for call in ("wrap_key", "unwrap_key"):
            try:
                getattr({make}, call)(b"wrapped:key", {key_id!r})
            except ImportError as error:
                print(error)
        """
    shown = run_python(code).splitlines()
    assert len(shown) == 2
    for line in shown:
        assert line.endswith(f"pip install 'ags1[{extra}]'")


# -- logs ----------------------------------------------------------------------------------------------------


def test_each_call_of_the_service_is_a_line_of_the_log_without_a_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ags1.kms")
    client = CountingKms(attempts=3, sleep=lambda seconds: None)
    wrapped = client.wrap_key(KEY, "lake")
    for _ in range(3):
        client.unwrap_key(wrapped, "lake")
    client.generate_key("lake")
    client.script.extend([Throttled("later"), Throttled("later")])
    client.wrap_key(KEY, "alias/a")
    client.script.append(Denied(f"no: {KEY.hex()}"))
    with pytest.raises(ags1.KeyAccessError):
        client.wrap_key(KEY, "lake\nINFO forged")
    client.script.extend([Throttled("later")] * 3)
    with pytest.raises(ags1.KeyAccessError):
        client.unwrap_key(b"other", "lake")
    shown = [re.sub(r"[0-9]+ ms", "N ms", record.getMessage()) for record in caplog.records]
    assert [(record.name, record.levelname) for record in caplog.records] == (
        [("ags1.kms", "INFO")] * 4 + [("ags1.kms", "WARNING")] * 2
    )
    assert shown[:4] == [
        "CountingKms: wrap a key with 'lake': done in N ms",
        # The key from the cache is no call.
        "CountingKms: unwrap a key with 'lake': done in N ms",
        "CountingKms: generate a key with 'lake': done in N ms",
        "CountingKms: wrap a key with 'alias/a': done in N ms, 3 attempts",
    ]
    assert shown[4].startswith("CountingKms: wrap a key with 'lake\\nINFO forged': failed in N ms: Denied (its text is")
    assert shown[5] == "CountingKms: unwrap a key with 'lake': failed in N ms, 3 attempts: Throttled: later"
    assert not any(shows_secret(each, KEY) for each in shown)


@pytest.mark.timeout(60)
def test_a_program_without_logging_loads_none_and_gets_no_line() -> None:
    shown = run_python(
        """
        import sys, contextlib, io
        from ags1.kms import MemoryKms
        client = MemoryKms({"lake": bytes(16)})
        assert client.unwrap_key(client.wrap_key(b"some key", "lake"), "lake") == b"some key"
        print("logging" in sys.modules)
        import logging
        with contextlib.redirect_stderr(io.StringIO()) as said:
            with contextlib.suppress(Exception):
                client.wrap_key(b"some key", "moon")
        print(repr(said.getvalue()))
        """
    )
    assert shown.split() == ["False", "''"]
