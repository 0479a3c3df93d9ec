"""AzureKms: Azure's real SDK over TLS, against a stand-in on loopback."""

from __future__ import annotations

import base64
import time as clock
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

import ags1
from ags1.kms import AzureKms
from tests.checks import KEY, KEYS
from tests.kms.loopback import PATIENCE, Answer, FakeTime, HangUp, Silence
from tests.kms.promises import Caching
from tests.kms.stand_ins import StandInAzure

OAEP_256 = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), None)


class AnyToken:
    """A credential as azure-identity has them."""

    def __init__(self) -> None:
        self.scopes: list[tuple[str, ...]] = []

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.scopes.append(scopes)
        return AccessToken("token-of-the-tests", int(clock.time()) + 3600)


@pytest.fixture(scope="module")
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInAzure]:
    with StandInAzure(tmp_path_factory.mktemp("azure")) as started:
        started.make_key("lake")
        started.make_key("sea")
        yield started


@pytest.fixture
def server(_server: StandInAzure) -> StandInAzure:
    """The stand-in as new, but for its keys: to make those takes long."""
    _server.requests.clear()
    _server.script.clear()
    _server.may_get = _server.may_list = True
    return _server


def options_for(server: StandInAzure) -> dict[str, Any]:
    """What the SDK needs to trust the server."""
    return {"connection_verify": str(server.certificate), "verify_challenge_resource": False}


def connected(server: StandInAzure, **common: Any) -> AzureKms:
    return AzureKms(server.url, credential=AnyToken(), options=options_for(server), **common)


@pytest.fixture
def key_id() -> str:
    return "lake"


@pytest.fixture
def client(server: StandInAzure, time: FakeTime) -> Iterator[AzureKms]:
    with connected(server, timeout=PATIENCE, **time.common) as made:
        yield made


# -- the calls -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("may_get", [True, False])
@pytest.mark.parametrize("length", KEYS)
def test_what_is_wrapped_is_unwrapped(client: AzureKms, server: StandInAzure, length: int, may_get: bool) -> None:
    server.may_get = may_get
    wrapped = client.wrap_key(KEYS[length], "lake")
    assert client.unwrap_key(wrapped, "lake") == KEYS[length]
    # Wrapping needs no call where the public key may be fetched.
    assert server.operations().count("wrapkey") == (0 if may_get else 1)
    assert server.operations().count("unwrapkey") == 1


def test_the_bytes_are_those_of_iceberg_java(client: AzureKms, server: StandInAzure) -> None:
    """RSA-OAEP with SHA-256, and nothing around it."""
    key = server.keys["lake"][max(server.keys["lake"])]
    assert key.decrypt(client.wrap_key(KEY, "lake"), OAEP_256) == KEY
    assert client.unwrap_key(key.public_key().encrypt(KEY, OAEP_256), "lake") == KEY


def test_another_algorithm_is_asked_for(server: StandInAzure) -> None:
    server.may_get = False
    client = connected(server)
    client.initialize({"azure.keyvault.key-wrap-algorithm": "RSA-OAEP"})
    with pytest.raises(ags1.KeyAccessError, match="BadParameter: The algorithm is not supported"):
        client.wrap_key(KEY, "lake")
    with pytest.raises(ags1.KeyAccessError, match="there is no algorithm 'ROT13'; there are A128KW"):
        connected(server, algorithm="ROT13").wrap_key(KEY, "lake")
    assert connected(server, algorithm="RSA-OAEP-256").wrap_key(KEY, "lake")


def test_properties_name_the_vault(server: StandInAzure) -> None:
    options = {"connection_verify": str(server.certificate), "verify_challenge_resource": False}
    client = AzureKms(credential=AnyToken(), options=options)
    with pytest.raises(ags1.KeyAccessError, match=r"no vault was given: set vault_url, or the property azure"):
        client.wrap_key(KEY, "lake")
    client.initialize({"azure.keyvault.url": server.url})
    assert client.unwrap_key(client.wrap_key(KEY, "lake"), "lake") == KEY


def test_the_default_credential_is_azure_identitys(server: StandInAzure, monkeypatch: pytest.MonkeyPatch) -> None:
    credential = AnyToken()
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", lambda **_: credential)
    options = {"connection_verify": str(server.certificate), "verify_challenge_resource": False}
    assert AzureKms(server.url, options=options).wrap_key(KEY, "lake")
    assert credential.scopes


def test_the_service_generates_no_keys(client: AzureKms) -> None:
    assert not client.supports_key_generation()


# -- versions ------------------------------------------------------------------------------------------------


def test_a_rotated_key_unwraps_what_any_of_its_versions_wrapped(client: AzureKms, server: StandInAzure) -> None:
    versions = [server.make_key("rotated")]
    wrapped = [client.wrap_key(KEYS[32], "rotated")]
    for length in (24, 16):
        versions.append(server.make_key("rotated"))
        wrapped.append(client.wrap_key(KEYS[length], "rotated"))
    for length, version, data in zip((32, 24, 16), versions, wrapped, strict=True):
        assert client.unwrap_key(data, "rotated") == KEYS[length]
        for key_id in (f"rotated/{version}", f"{server.url}/keys/rotated/{version}"):
            assert client.unwrap_key(data, key_id) == KEYS[length]


def test_a_given_version_is_the_only_one_that_is_tried(client: AzureKms, server: StandInAzure) -> None:
    first = server.make_key("given")
    wrapped = client.wrap_key(KEY, "given")
    second = server.make_key("given")
    server.requests.clear()
    with pytest.raises(ags1.KeyAccessError, match="BadParameter: The parameter is incorrect"):
        client.unwrap_key(wrapped, f"given/{second}")
    assert server.operations().count("unwrapkey") == 1
    assert client.unwrap_key(wrapped, f"given/{first}") == KEY


def test_a_client_that_may_not_list_versions_is_told_what_to_do(client: AzureKms, server: StandInAzure) -> None:
    server.may_list = False
    wrapped = client.wrap_key(KEY, "sea")
    with pytest.raises(ags1.KeyAccessError, match=r"If the key was rotated, give its version .*allow this"):
        client.unwrap_key(wrapped, "lake")


def test_a_key_that_was_wrapped_with_another_key_is_refused(client: AzureKms) -> None:
    wrapped = client.wrap_key(KEY, "sea")
    with pytest.raises(ags1.KeyAccessError, match="no version of the key unwraps it: BadParameter: The parameter"):
        client.unwrap_key(wrapped, "lake")


# -- key ids -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key_id",
    [
        "https://evil.example/keys/lake",
        "https://127.0.0.1.evil.example/keys/lake",
        "https://evil.example/?x=https://127.0.0.1/keys/lake",
        "http://127.0.0.1/keys/lake",
    ],
)
def test_a_key_id_cannot_lead_to_another_vault(client: AzureKms, server: StandInAzure, key_id: str) -> None:
    with pytest.raises(ags1.KeyAccessError, match=f"the key id belongs to another vault than {server.url}"):
        client.unwrap_key(KEY, key_id)
    assert not server.requests


@pytest.mark.parametrize("key_id", ["lake/1/2", "../secrets/x", "la ke", "lake?x", "lake/", "/lake", "lake\n"])
def test_a_key_id_that_is_none_is_refused(client: AzureKms, server: StandInAzure, key_id: str) -> None:
    with pytest.raises(ags1.KeyAccessError, match="a key id is NAME, NAME/VERSION or https://VAULT/keys/NAME/VERSION"):
        client.wrap_key(KEY, key_id)
    assert not server.requests


# -- faults --------------------------------------------------------------------------------------------------

PASSING: dict[str, Answer] = {
    "throttled": StandInAzure.error(429, "Throttled", "Too many requests"),
    "internal": StandInAzure.error(500, "InternalError", "internal error"),
    "unavailable": Answer(503, b"<html>", {"Content-Type": "text/html"}),
    "hung up": HangUp(),
}


@pytest.mark.parametrize("fault", PASSING)
def test_a_passing_fault_is_survived_without_the_sdks_own_retries(
    client: AzureKms, server: StandInAzure, time: FakeTime, fault: str
) -> None:
    server.may_get = False
    wrapped = client.wrap_key(KEY, "lake")
    # The SDK asks for the public key first, and goes on without it if it is refused.
    server.script.extend([PASSING[fault]] * (4 if fault == "hung up" else 8))
    assert client.unwrap_key(wrapped, "lake") == KEY
    assert len(time.pauses) == 4


def test_throttling_that_stays_is_an_error(client: AzureKms, server: StandInAzure) -> None:
    server.script.extend([PASSING["throttled"]] * 20)
    with pytest.raises(ags1.KeyAccessError) as caught:
        client.unwrap_key(KEY, "lake")
    assert str(caught.value) == (
        "Azure Key Vault could not unwrap a key with 'lake': Throttled: Too many requests (tried 5 times)"
    )


def test_a_service_that_is_down_is_an_error(tmp_path: Path, time: FakeTime) -> None:
    with StandInAzure(tmp_path) as server:
        client = connected(server, **time.common)
    with pytest.raises(ags1.KeyAccessError, match=r"ServiceRequestError: .*\(tried 5 times\)"):
        client.wrap_key(KEY, "lake")
    assert len(time.pauses) == 4


def test_a_service_that_is_silent_is_an_error(server: StandInAzure, time: FakeTime) -> None:
    client = connected(server, timeout=0.2, attempts=2, **time.common)
    server.script.extend([Silence()] * 2)
    with pytest.raises(ags1.KeyAccessError, match=r"(?i)timed out.*\(tried 2 times\)|sends too slowly"):
        client.wrap_key(KEY, "lake")


def test_a_certificate_that_nobody_vouches_for_is_an_error_at_once(tmp_path: Path, time: FakeTime) -> None:
    with StandInAzure(tmp_path) as server:
        client = AzureKms(server.url, credential=AnyToken(), **time.common)
        with pytest.raises(ags1.KeyAccessError, match=r"(?i)certificate verify failed"):
            client.wrap_key(KEY, "lake")
        assert not time.pauses
        assert not server.requests


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (StandInAzure.error(403, "Forbidden", "does not have keys unwrap permission"), "Forbidden: does not have keys"),
        (StandInAzure.error(404, "KeyNotFound", "was not found in this vault"), "KeyNotFound: was not found"),
        (StandInAzure.error(409, "Conflict", "is being deleted"), "Conflict: is being deleted"),
    ],
)
def test_a_refusal_is_told_as_it_is_and_not_tried_again(
    client: AzureKms, server: StandInAzure, time: FakeTime, answer: Answer, message: str
) -> None:
    server.may_get = False
    wrapped = client.wrap_key(KEY, "lake")
    server.script.extend([None, answer])
    with pytest.raises(ags1.KeyAccessError, match=message):
        client.unwrap_key(wrapped, "lake")
    assert not time.pauses


def test_an_unknown_key_is_refused(client: AzureKms) -> None:
    with pytest.raises(ags1.KeyAccessError, match=r"KeyNotFound: A key with \(name/id\) ocean was not found"):
        client.unwrap_key(KEY, "ocean")


def test_a_credential_that_fails_is_an_error(server: StandInAzure) -> None:
    class NoToken(AnyToken):
        """Has none."""

        def get_token(self, *scopes: str, **_: Any) -> AccessToken:
            from azure.core.exceptions import ClientAuthenticationError

            raise ClientAuthenticationError("you are not logged in")

    options = {"connection_verify": str(server.certificate), "verify_challenge_resource": False}
    with pytest.raises(ags1.KeyAccessError, match="ClientAuthenticationError: you are not logged in"):
        AzureKms(server.url, credential=NoToken(), options=options).wrap_key(KEY, "lake")


def test_a_challenge_from_another_place_than_azure_gets_no_token(server: StandInAzure) -> None:
    credential = AnyToken()
    client = AzureKms(server.url, credential=credential, options={"connection_verify": str(server.certificate)})
    with pytest.raises(ags1.KeyAccessError, match="does not match the requested domain"):
        client.wrap_key(KEY, "lake")
    assert not credential.scopes


GARBAGE = [b"", b"{}", b"[]", b"null", b"<html>", b"\xff\xfe", b'{"value": 7}', b'{"value": ""}', b'{"key": []}']


@pytest.mark.parametrize("body", GARBAGE)
def test_garbage_is_an_error(client: AzureKms, server: StandInAzure, body: bytes) -> None:
    server.may_get = False
    wrapped = client.wrap_key(KEY, "lake")
    for call in (lambda: client.wrap_key(KEY, "lake"), lambda: client.unwrap_key(wrapped, "lake")):
        server.script.extend([Answer(200, body)] * 20)
        with pytest.raises(ags1.KeyAccessError, match="Azure Key Vault could not"):
            call()
        server.script.clear()


def test_no_text_shows_a_key(client: AzureKms, server: StandInAzure) -> None:
    server.may_get = False
    client.wrap_key(KEY, "lake")
    encoded = base64.urlsafe_b64encode(KEY).decode()
    server.script.extend([None, StandInAzure.error(400, "BadParameter", f"cannot take {encoded}")])
    with pytest.raises(ags1.KeyAccessError) as caught:
        client.wrap_key(KEY, "lake")
    assert encoded not in str(caught.value)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


class TestKeys(Caching):
    def asked(self, server: StandInAzure) -> int:
        return server.operations().count("unwrapkey")
