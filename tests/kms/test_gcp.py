"""GcpKms: Google's real SDK over REST, against a stand-in on loopback."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials

import ags1
from ags1.kms import GcpKms
from tests.checks import KEY
from tests.kms.loopback import PATIENCE, Answer, FakeTime, HangUp, Silence
from tests.kms.promises import Caching, Failing
from tests.kms.stand_ins import StandInGcp, as_json, checked, crc32c

LAKE = "projects/p/locations/europe-west3/keyRings/r/cryptoKeys/lake"
SEA = LAKE.replace("lake", "sea")


@pytest.fixture
def server() -> Iterator[StandInGcp]:
    with StandInGcp() as started:
        started.make_key(LAKE)
        started.make_key(SEA)
        yield started


def connected(server: StandInGcp, **common: Any) -> GcpKms:
    return GcpKms(endpoint=server.url, credentials=AnonymousCredentials(), **common)  # type: ignore[no-untyped-call]


@pytest.fixture
def key_id() -> str:
    return LAKE


@pytest.fixture
def client(server: StandInGcp, time: FakeTime) -> Iterator[GcpKms]:
    with connected(server, timeout=PATIENCE, **time.common) as made:
        yield made


# -- the calls -----------------------------------------------------------------------------------------------


def test_the_calls_are_those_of_iceberg_java(client: GcpKms, server: StandInGcp) -> None:
    wrapped = client.wrap_key(KEY, LAKE)
    client.unwrap_key(wrapped, LAKE)
    assert [each.path.partition("?")[0] for each in server.requests] == [f"/v1/{LAKE}:encrypt", f"/v1/{LAKE}:decrypt"]
    # No additional authenticated data, and the checksums of Google's guide.
    assert crc32c(b"123456789") == 0xE3069283
    assert json.loads(server.requests[0].body) == checked("plaintext", KEY)
    assert json.loads(server.requests[1].body) == checked("ciphertext", wrapped)


def test_what_was_damaged_on_its_way_is_asked_for_again(client: GcpKms, server: StandInGcp, time: FakeTime) -> None:
    wrapped = client.wrap_key(KEY, LAKE)
    whole = {**checked("ciphertext", wrapped), "verifiedPlaintextCrc32c": True}
    damaged = [
        {**whole, "verifiedPlaintextCrc32c": False},
        {**whole, "ciphertextCrc32c": "7"},
        {**whole, "ciphertext": base64.b64encode(wrapped[:-1] + b"\0").decode()},
    ]
    server.script.extend(as_json(200, each) for each in damaged)
    assert client.unwrap_key(client.wrap_key(KEY, LAKE), LAKE) == KEY
    assert len(time.pauses) == 3
    server.script.extend([as_json(200, {**checked("plaintext", KEY), "plaintextCrc32c": "7"})] * 5)
    with pytest.raises(ags1.KeyAccessError, match=r"checksum \(CRC32C\) says .*damaged on its way \(tried 5 times\)"):
        client.unwrap_key(wrapped, LAKE)


def test_the_service_generates_no_keys(client: GcpKms) -> None:
    assert not client.supports_key_generation()
    with pytest.raises(NotImplementedError, match="Google Cloud KMS generates no keys"):
        client.generate_key(LAKE)


def test_a_rotated_key_unwraps_what_it_wrapped_before(client: GcpKms, server: StandInGcp) -> None:
    wrapped = client.wrap_key(KEY, LAKE)
    server.rotate(LAKE)
    assert client.wrap_key(KEY, LAKE)[0] == 2
    assert client.unwrap_key(wrapped, LAKE) == KEY


@pytest.mark.parametrize("name", ["gcs.oauth2.token", "gcp.oauth2.token"])
def test_the_token_may_be_a_property(server: StandInGcp, name: str) -> None:
    client = GcpKms(endpoint=server.url)
    client.initialize({name: "token-of-the-tests"})
    client.wrap_key(KEY, LAKE)
    headers = {key.lower(): value for key, value in server.requests[0].headers.items()}
    assert headers["authorization"] == "Bearer token-of-the-tests"


def test_missing_credentials_are_an_error(server: StandInGcp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    with pytest.raises(ags1.KeyAccessError, match="DefaultCredentialsError: Your default credentials were not found"):
        GcpKms(endpoint=server.url).wrap_key(KEY, LAKE)


# -- faults --------------------------------------------------------------------------------------------------

PASSING: dict[str, Answer] = {
    "throttled": StandInGcp.error(429, "RESOURCE_EXHAUSTED", "Quota exceeded"),
    "internal": StandInGcp.error(500, "INTERNAL", "internal error"),
    "unavailable": StandInGcp.error(503, "UNAVAILABLE", "try again"),
    "gateway": Answer(502, b"<html>", {"Content-Type": "text/html"}),
    "hung up": HangUp(),
}


def test_throttling_that_stays_is_an_error(client: GcpKms, server: StandInGcp) -> None:
    server.script.extend([PASSING["throttled"]] * 5)
    with pytest.raises(ags1.KeyAccessError, match=r"TooManyRequests: .*Quota exceeded \(tried 5 times\)") as caught:
        client.unwrap_key(KEY, LAKE)
    assert str(caught.value).startswith(f"Google Cloud KMS could not unwrap a key with '{LAKE}': ")


def test_a_service_that_is_silent_is_an_error(server: StandInGcp, time: FakeTime) -> None:
    client = connected(server, timeout=0.2, attempts=2, **time.common)
    server.script.extend([Silence(), Silence()])
    with pytest.raises(ags1.KeyAccessError, match=r"(?i)time.*out.*\(tried 2 times\)|sends too slowly"):
        client.wrap_key(KEY, LAKE)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (StandInGcp.error(403, "PERMISSION_DENIED", "Permission denied on it"), "Forbidden: .*Permission denied on it"),
        (StandInGcp.error(400, "FAILED_PRECONDITION", "key is disabled"), "key is disabled"),
    ],
)
def test_a_refusal_is_told_as_it_is_and_not_tried_again(
    client: GcpKms, server: StandInGcp, answer: Answer, message: str
) -> None:
    server.script.append(answer)
    with pytest.raises(ags1.KeyAccessError, match=message):
        client.unwrap_key(KEY, LAKE)
    assert len(server.requests) == 1


def test_a_wrong_key_is_refused(client: GcpKms) -> None:
    wrapped = client.wrap_key(KEY, LAKE)
    with pytest.raises(ags1.KeyAccessError, match=r"Decryption failed: the ciphertext is invalid\."):
        client.unwrap_key(wrapped, SEA)
    with pytest.raises(ags1.KeyAccessError, match=r"NotFound: .*ocean not found"):
        client.unwrap_key(wrapped, LAKE.replace("lake", "ocean"))


@pytest.mark.parametrize("key_id", ["lake", "projects/p", "../../v1/x", "https://evil.example/x"])
def test_a_key_id_that_is_no_resource_name_is_refused(client: GcpKms, server: StandInGcp, key_id: str) -> None:
    with pytest.raises(ags1.KeyAccessError, match="a key id is projects/P/locations/L/keyRings/R/cryptoKeys/K"):
        client.wrap_key(KEY, key_id)
    assert not server.requests


class TestKeys(Caching):
    pass


class TestFaults(Failing):
    service = "Google Cloud KMS"
    passing = PASSING
    garbage = (b"", b"{}", b"[]", b"null", b"<html>", b"\xff\xfe", b'{"plaintext": 7, "ciphertext": 7}',
        b'{"plaintext": "", "ciphertext": ""}', b'{"plaintext": {}, "ciphertext": {}}')  # fmt: skip

    def refusal(self, text: str) -> Answer:
        return StandInGcp.error(400, "INVALID_ARGUMENT", text)
