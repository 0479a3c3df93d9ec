"""What stands where a key service should: it sends elsewhere, answers without end, and repeats what it was told.

All four SDKs go through one policy, so each threat is tried on each of them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.oauth2.credentials import Credentials

import ags1
from ags1.kms import AwsKms, AzureKms, GcpKms, KeyManagementClient, ServiceRefusal, VaultKms
from tests.checks import KEY, every
from tests.kms import test_azure
from tests.kms.loopback import PATIENCE, Answer, Drip, DripHeaders, FakeTime, LoopbackServer
from tests.kms.stand_ins import StandInAzure

LAKE = "projects/p/locations/europe-west3/keyRings/r/cryptoKeys/lake"
TOKEN = "token-of-the-tests"


class Service(NamedTuple):
    """A server, a client of it, and a key id."""

    server: LoopbackServer
    connect: Callable[..., KeyManagementClient]
    key_id: str

    def answer(self, answer: Answer) -> None:
        """Let the server answer whatever comes with a token so."""
        honest = type(self.server).answer
        self.server.requests.clear()
        # Azure's SDK asks without a token first, and sends what comes then to no other server.
        challenge = isinstance(self.server, StandInAzure)
        self.server.answer = lambda request: (  # type: ignore[method-assign]
            honest(self.server, request) if challenge and "Authorization" not in request.headers else answer
        )

    def asked(self) -> int:
        """How often it was asked with a token."""
        names = {"Authorization", "X-Vault-Token", "authorization"}
        return sum(bool(names & each.headers.keys()) for each in self.server.requests)


@pytest.fixture(scope="module")
def vault_of_azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInAzure]:
    """A vault over TLS, with one key."""
    with StandInAzure(tmp_path_factory.mktemp("azure")) as server:
        server.make_key("lake")
        yield server


@pytest.fixture
def services(
    vault_of_azure: StandInAzure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[dict[str, Service]]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, TOKEN)
    with LoopbackServer() as server:
        yield {
            "vault": Service(server, lambda **common: VaultKms(server.url, token=TOKEN, **common), "lake"),
            "google": Service(
                server,
                lambda **common: GcpKms(
                    endpoint=server.url,
                    credentials=Credentials(token=TOKEN),  # type: ignore[no-untyped-call]
                    **common,
                ),
                LAKE,
            ),
            "aws": Service(
                server, lambda **common: AwsKms(region="eu-central-1", endpoint=server.url, **common), "lake"
            ),
            "azure": Service(vault_of_azure, lambda **common: test_azure.connected(vault_of_azure, **common), "lake"),
        }


def refused(service: Service, answer: Answer, time: FakeTime, *, timeout: float = PATIENCE, attempts: int = 5) -> str:
    """The message of a client that gets this answer."""
    service.answer(answer)
    with closing(service.connect(timeout=timeout, attempts=attempts, **time.common)) as client:
        # What the SDK takes to load is no part of the test.
        client._connection  # noqa: B018
        with pytest.raises(ags1.KeyAccessError) as caught:
            client.wrap_key(KEY, service.key_id)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    if isinstance(caught.value, ServiceRefusal):
        assert service.asked() == 1, "what holds for every key is not tried again"
    return str(caught.value)


@every("name", ["vault", "google", "aws", "azure"])
def test_no_redirect_is_followed_and_the_message_names_its_target(
    services: dict[str, Service], time: FakeTime, name: str
) -> None:
    with LoopbackServer() as other:
        for status in (301, 302, 303, 307, 308):
            target = f"{other.url}/elsewhere"
            said = refused(services[name], Answer(status, b"{}", {"Location": f"{target}?sig=abcdefgh"}), time)
            assert f"the server answers {status} and sends to {target}?sig=<redacted>: no redirect is followed" in said
            assert "give its address" in said
        assert not other.requests


@every("name", ["vault", "google", "aws", "azure"])
def test_an_answer_without_end_is_refused(services: dict[str, Service], time: FakeTime, name: str) -> None:
    endless = {
        "2 MiB": Answer(200, b" " * (2 << 20)),
        "a bomb": Answer(200, gzip.compress(bytes(64 << 20)), {"Content-Encoding": "gzip"}),
        "2 MiB of an error": Answer(400, b" " * (2 << 20)),
    }
    for what, answer in endless.items():
        assert "returned more than 1,048,576 bytes" in refused(services[name], answer, time), what
    zipped = Answer(200, b"{}", {"Content-Encoding": "br"})
    assert "in the encoding 'br', which it was not asked for" in refused(services[name], zipped, time)
    for drip in (Drip(), DripHeaders()):
        slow = refused(services[name], drip, time, timeout=0.3, attempts=2)
        assert "not complete at the end of all attempts" in slow


def clients_with_credentials_from(
    url: str, vault: StandInAzure, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> dict[str, Any]:
    """Clients whose SDKs get their credentials from this address."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{url}/aws")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{url}/azure")
    monkeypatch.setenv("IDENTITY_HEADER", TOKEN)
    account = {
        "type": "external_account", "audience": "//iam.googleapis.com/a", "token_url": "https://sts.googleapis.com/v1/token",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "credential_source": {"url": f"{url}/google"},
    }  # fmt: skip
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    return {
        "google": lambda **common: GcpKms(**common),
        "aws": lambda **common: AwsKms(region="eu-central-1", **common),
        "azure": lambda **common: AzureKms(vault.url, options=test_azure.options_for(vault), **common),
    }


@every("name", ["google", "aws", "azure"])
def test_credentials_are_fetched_under_the_same_deadline_and_without_redirects(
    vault_of_azure: StandInAzure, time: FakeTime, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    # Other tests of this file may have told it what to answer.
    honest = lambda request: StandInAzure.answer(vault_of_azure, request)  # noqa: E731
    monkeypatch.setattr(vault_of_azure, "answer", honest)
    with LoopbackServer() as server, LoopbackServer() as other:
        connect = clients_with_credentials_from(server.url, vault_of_azure, monkeypatch, tmp_path)[name]
        for answer in (Answer(302, b"{}", {"Location": f"{other.url}/elsewhere"}), Drip(), DripHeaders()):
            server.requests.clear()
            server.answer = lambda request, answer=answer: answer  # type: ignore[method-assign, misc]
            with closing(connect(timeout=1.5, attempts=2, **time.common)) as client:
                with pytest.raises(ags1.KeyAccessError):
                    client.wrap_key(KEY, LAKE if name == "google" else "lake")
            assert server.requests
            assert not other.requests


@every("name", ["vault", "google", "azure"])
def test_a_compressed_answer_is_read(services: dict[str, Service], time: FakeTime, name: str) -> None:
    text = b'{"errors": ["told in gzip"], "error": {"code": 400, "message": "told in gzip"}}'
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    assert "told in gzip" in refused(services[name], Answer(400, gzip.compress(text), headers), time)


@every("name", ["vault", "google", "aws", "azure"])
def test_no_message_shows_a_token_that_the_server_repeats(
    services: dict[str, Service], time: FakeTime, name: str
) -> None:
    text = f"no token {TOKEN} here, {{}}"
    body = f'{{"errors": ["{text}"], "error": {{"code": "400", "message": "{text}"}}, "message": "{text}"}}'
    said = refused(services[name], Answer(400, body.encode()), time)
    assert "no token" in said
    assert TOKEN not in said


def test_a_wrong_key_is_not_tried_again_though_an_old_vault_calls_it_a_fault(
    services: dict[str, Service], time: FakeTime
) -> None:
    body = b'{"errors": ["1 error occurred: cipher: message authentication failed"]}'
    services["vault"].answer(Answer(500, body))
    with closing(services["vault"].connect(**time.common)) as client:
        with pytest.raises(ags1.KeyAccessError, match=r"message authentication failed$") as caught:
            client.unwrap_key(b"vault:v1:x", "lake")
    assert services["vault"].asked() == 1
    assert not isinstance(caught.value, ServiceRefusal)


def test_what_cannot_be_unwrapped_again_is_not_wrapped(services: dict[str, Service], time: FakeTime) -> None:
    services["vault"].answer(Answer(200, b'{"data": {"plaintext": "AAAA", "ciphertext": "vault:v1: x"}}'))
    with closing(services["vault"].connect(**time.common)) as client:
        for call in (lambda: client.wrap_key(KEY, "lake"), lambda: client.generate_key("lake")):
            with pytest.raises(ags1.KeyAccessError, match="no text such as vault:v1:"):
                call()
