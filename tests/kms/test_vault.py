"""VaultKms against a real OpenBao: transit's wrapping, and every way in which a server can fail."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import ags1
from ags1.kms import VaultKms, load
from tests.checks import KEY
from tests.kms.conftest import BAO_TOKEN, Bao
from tests.kms.loopback import PATIENCE, Answer, Between, FakeTime, HangUp, Silence
from tests.kms.promises import Caching, Failing

_numbers = itertools.count()


@pytest.fixture
def server(bao: Bao) -> Iterator[Between]:
    """The way to the server, on which faults can be put."""
    with Between(bao.url) as server:
        yield server


@pytest.fixture
def key_id(bao: Bao) -> str:
    """A fresh transit key."""
    name = f"lake-{next(_numbers)}"
    bao.client().secrets.transit.create_key(name)
    return name


@pytest.fixture
def client(server: Between, bao: Bao, time: FakeTime) -> Iterator[VaultKms]:
    with VaultKms(server.url, token=bao.token, timeout=PATIENCE, **time.common) as made:
        yield made


def error(status: int, *errors: str) -> Answer:
    """An error as Vault words it."""
    return Answer(status, json.dumps({"errors": list(errors)}).encode())


# -- the calls -----------------------------------------------------------------------------------------------


def test_the_calls_are_transits(client: VaultKms, server: Between, key_id: str) -> None:
    wrapped = client.wrap_key(KEY, key_id)
    client.unwrap_key(wrapped, key_id)
    client.generate_key(key_id)
    assert [each.path for each in server.requests] == [
        f"/v1/transit/datakey/plaintext/{key_id}",
        f"/v1/transit/encrypt/{key_id}",
        f"/v1/transit/decrypt/{key_id}",
        f"/v1/transit/datakey/plaintext/{key_id}",
    ]
    assert json.loads(server.requests[1].body)["plaintext"] == base64.b64encode(KEY).decode()
    assert json.loads(server.requests[2].body)["ciphertext"] == wrapped.decode()


def test_any_other_client_of_the_server_unwraps_it_and_the_other_way_round(
    client: VaultKms, bao: Bao, key_id: str
) -> None:
    transit = bao.client().secrets.transit
    plain = transit.decrypt_data(key_id, client.wrap_key(KEY, key_id).decode())["data"]["plaintext"]
    assert base64.b64decode(plain) == KEY
    theirs = transit.encrypt_data(key_id, plaintext=base64.b64encode(KEY).decode())["data"]["ciphertext"]
    assert client.unwrap_key(theirs.encode(), key_id) == KEY


@pytest.mark.parametrize("bits", [128, 256])
def test_the_server_generates_keys(bao: Bao, key_id: str, bits: int) -> None:
    client = VaultKms(bao.url, token=bao.token, data_key_bits=bits)
    assert client.supports_key_generation()
    made = client.generate_key(key_id)
    assert len(made.key) * 8 == bits
    assert client.unwrap_key(made.wrapped_key, key_id) == made.key


def test_a_rotated_key_unwraps_what_it_wrapped_before(client: VaultKms, bao: Bao, key_id: str) -> None:
    wrapped = client.wrap_key(KEY, key_id)
    transit = bao.client().secrets.transit
    transit.rotate_key(key_id)
    assert client.wrap_key(KEY, key_id).startswith(b"vault:v2:")
    assert client.unwrap_key(wrapped, key_id) == KEY


def test_a_version_that_was_retired_is_refused(client: VaultKms, bao: Bao, key_id: str) -> None:
    wrapped = client.wrap_key(KEY, key_id)
    transit = bao.client().secrets.transit
    transit.rotate_key(key_id)
    transit.update_key_configuration(key_id, min_decryption_version=2)
    with pytest.raises(ags1.KeyAccessError, match=r"InvalidRequest: .*disallowed by policy"):
        client.unwrap_key(wrapped, key_id)


def test_another_mount_and_namespace_are_asked_for(bao: Bao, server: Between) -> None:
    admin = bao.client()
    if "keys/of-the-lake/" not in admin.sys.list_mounted_secrets_engines()["data"]:
        admin.sys.enable_secrets_engine("transit", path="keys/of-the-lake")
    admin.secrets.transit.create_key("lake", mount_point="keys/of-the-lake")
    client = VaultKms(server.url, token=bao.token, mount="keys/of-the-lake")
    assert client.unwrap_key(client.wrap_key(KEY, "lake"), "lake") == KEY
    server.script.extend([error(403, "permission denied")] * 2)
    with pytest.raises(ags1.KeyAccessError, match="permission denied"):
        VaultKms(server.url, token=bao.token, namespace="team").wrap_key(KEY, "lake")
    assert server.requests[-1].headers["X-Vault-Namespace"] == "team"


# -- address and token ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["VAULT", "BAO"])
def test_address_and_token_may_stand_in_the_environment(
    bao: Bao, key_id: str, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    monkeypatch.setenv(f"{family}_ADDR", bao.url)
    monkeypatch.setenv(f"{family}_TOKEN", bao.token)
    for client in (VaultKms(), load("vault:?mount=transit")):
        assert client.unwrap_key(client.wrap_key(KEY, key_id), key_id) == KEY


def test_the_token_may_stand_in_a_file(bao: Bao, key_id: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{bao.token}\n")
    assert VaultKms(bao.url, token_file=tmp_path / "token").wrap_key(KEY, key_id)
    (tmp_path / ".vault-token").write_text(bao.token)
    assert VaultKms(bao.url).wrap_key(KEY, key_id)


def test_properties_name_the_server(bao: Bao, key_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_TOKEN", bao.token)
    client = VaultKms()
    client.initialize({"vault.address": bao.url, "vault.mount": "transit"})
    assert client.wrap_key(KEY, key_id)
    client.initialize({"vault.address": bao.url, "vault.mount": "../sys"})
    with pytest.raises(ags1.KeyAccessError, match=r"vault\.mount must be a path such as 'transit'"):
        client.wrap_key(KEY, key_id)


def test_a_missing_token_or_address_is_an_error(bao: Bao, tmp_path: Path) -> None:
    with pytest.raises(ags1.KeyAccessError, match="no server was given: pass its URL, or set VAULT_ADDR"):
        VaultKms(token="t").wrap_key(KEY, "lake")
    with pytest.raises(ags1.KeyAccessError, match="there is no token: set VAULT_TOKEN or BAO_TOKEN"):
        VaultKms(bao.url).wrap_key(KEY, "lake")
    with pytest.raises(ags1.KeyAccessError, match=r"the token file .*nowhere cannot be read: No such file"):
        VaultKms(bao.url, token_file=tmp_path / "nowhere").wrap_key(KEY, "lake")


def test_a_wrong_token_and_one_that_may_not_are_refused(bao: Bao, key_id: str) -> None:
    with pytest.raises(ags1.KeyAccessError, match=r"Forbidden: .*permission denied"):
        VaultKms(bao.url, token="wrong").wrap_key(KEY, key_id)
    admin = bao.client()
    policy = f'path "transit/encrypt/{key_id}" {{ capabilities = ["update"] }}'
    admin.sys.create_or_update_policy(f"wrap-{key_id}", policy)
    token = admin.auth.token.create(policies=[f"wrap-{key_id}"])["auth"]["client_token"]
    client = VaultKms(bao.url, token=token)
    wrapped = client.wrap_key(KEY, key_id)
    with pytest.raises(ags1.KeyAccessError, match=r"Forbidden: .*permission denied") as caught:
        client.unwrap_key(wrapped, key_id)
    assert token not in str(caught.value)


# -- faults --------------------------------------------------------------------------------------------------

PASSING: dict[str, Answer] = {
    "throttled": error(429, "rate limit quota exceeded"),
    "internal": error(500, "internal error"),
    "sealed": error(503, "Vault is sealed"),
    "gateway": Answer(502, b"<html>", {"Content-Type": "text/html"}),
    "hung up": HangUp(),
}


def test_throttling_that_stays_is_an_error(client: VaultKms, server: Between) -> None:
    server.script.extend([PASSING["throttled"]] * 5)
    with pytest.raises(ags1.KeyAccessError) as caught:
        client.unwrap_key(b"vault:v1:x", "lake")
    assert str(caught.value) == (
        "Vault could not unwrap a key with 'lake': RateLimitExceeded: rate limit quota exceeded (tried 5 times)"
    )


def test_a_server_that_is_silent_is_an_error(server: Between, bao: Bao, time: FakeTime) -> None:
    client = VaultKms(server.url, token=bao.token, timeout=0.2, attempts=2, **time.common)
    server.script.extend([Silence(), Silence()])
    with pytest.raises(ags1.KeyAccessError, match=r"ReadTimeout: .*\(tried 2 times\)|sends too slowly"):
        client.wrap_key(KEY, "lake")


def test_an_unknown_key_is_refused(client: VaultKms) -> None:
    with pytest.raises(ags1.KeyAccessError, match=r"'no-such-key': InvalidRequest: .*encryption key not found"):
        client.unwrap_key(b"vault:v1:" + base64.b64encode(bytes(60)), "no-such-key")


def test_a_key_id_with_a_typing_error_makes_no_master_key(client: VaultKms, bao: Bao, key_id: str) -> None:
    """Vault's encrypt makes a key that is not there, for a token that may make keys."""
    with pytest.raises(ags1.KeyAccessError, match=r"'no-such-key': InvalidRequest: .*encryption key not found"):
        client.wrap_key(KEY, "no-such-key")
    assert "no-such-key" not in bao.client().secrets.transit.list_keys()["data"]["keys"]
    client.wrap_key(KEY, key_id)


def test_a_key_that_was_wrapped_with_another_key_is_refused(client: VaultKms, bao: Bao, key_id: str) -> None:
    bao.client().secrets.transit.create_key(f"other-{key_id}")
    with pytest.raises(ags1.KeyAccessError, match=r"InvalidRequest: .*message authentication failed"):
        client.unwrap_key(client.wrap_key(KEY, key_id), f"other-{key_id}")


@pytest.mark.parametrize("wrapped", [b"\0\1\2", b"vault:v1: x", "vault:v1:ä".encode(), bytes(60)])
def test_bytes_that_are_no_text_of_vault_are_not_sent(client: VaultKms, server: Between, wrapped: bytes) -> None:
    with pytest.raises(
        ags1.KeyAccessError, match="it was not wrapped by Vault, whose wrapped keys are text such as vault:v1:"
    ):
        client.unwrap_key(wrapped, "lake")
    assert not server.requests


@pytest.mark.parametrize("key_id", ["../../sys/raw", "a/b", "a?b", "a#b", ".", "..", "a b", "-a", "a%2fb", "ä"])
def test_a_key_id_cannot_lead_elsewhere(client: VaultKms, server: Between, key_id: str) -> None:
    with pytest.raises(ags1.KeyAccessError, match="a key id must be the name of a transit key"):
        client.wrap_key(KEY, key_id)
    assert not server.requests


class TestKeys(Caching):
    pass


class TestFaults(Failing):
    service = "Vault"
    passing = PASSING
    garbage = (
        *(b"", b"{}", b"[]", b"null", b"<html>", b"\xff\xfe", b'{"data": null}', b'{"data": []}', b'{"data": {}}'),
        b'{"data": {"plaintext": 7, "ciphertext": 7}}',
        b'{"data": {"plaintext": "?", "ciphertext": ""}}',
    )
    wrapped = b"vault:v1:x"
    secrets = (BAO_TOKEN,)

    def refusal(self, text: str) -> Answer:
        return error(400, text)
