"""AwsKms against moto's KMS: the calls that Iceberg makes, and every way in which a service can fail."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

import ags1
from ags1.kms import AwsKms
from tests.checks import KEY, every
from tests.kms.loopback import PATIENCE, Answer, Between, FakeTime, HangUp, Silence
from tests.kms.promises import Caching, Failing

REGION = "eu-central-1"
CREDENTIALS = {"aws_access_key_id": "test", "aws_secret_access_key": "a-secret-of-the-tests"}


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name.upper(), value)


@pytest.fixture
def server(moto_url: str) -> Iterator[Between]:
    """The way to moto's server, on which faults can be put."""
    with Between(moto_url) as server:
        yield server


@pytest.fixture(scope="module")
def admin(moto_url: str) -> Any:
    """boto3 of someone who makes keys; a client takes longer to make than all that it does here."""
    return boto3.client("kms", region_name=REGION, endpoint_url=moto_url, **CREDENTIALS)


@pytest.fixture
def key_id(admin: Any) -> str:
    """A fresh key."""
    return str(admin.create_key()["KeyMetadata"]["KeyId"])


@pytest.fixture
def client(server: Between, time: FakeTime) -> Iterator[AwsKms]:
    with AwsKms(region=REGION, endpoint=server.url, timeout=PATIENCE, **time.common) as made:
        yield made


def asked(server: Between) -> list[tuple[str, dict[str, Any]]]:
    """Operations and their parameters."""
    return [(each.headers["X-Amz-Target"].partition(".")[2], json.loads(each.body)) for each in server.requests]


def error(code: str, message: str = "", status: int = 400) -> Answer:
    """An error as AWS words it."""
    return Answer(status, json.dumps({"__type": code, "message": message}).encode())


# -- the calls -----------------------------------------------------------------------------------------------


def test_the_calls_are_those_of_iceberg_java(client: AwsKms, server: Between, key_id: str) -> None:
    wrapped = client.wrap_key(KEY, key_id)
    client.unwrap_key(wrapped, key_id)
    client.generate_key(key_id)
    algorithm = {"EncryptionAlgorithm": "SYMMETRIC_DEFAULT"}
    assert asked(server) == [
        ("Encrypt", {"KeyId": key_id, "Plaintext": base64.b64encode(KEY).decode(), **algorithm}),
        ("Decrypt", {"KeyId": key_id, "CiphertextBlob": base64.b64encode(wrapped).decode(), **algorithm}),
        ("GenerateDataKey", {"KeyId": key_id, "KeySpec": "AES_256"}),
    ]


def test_any_other_client_of_the_service_unwraps_it_and_the_other_way_round(
    client: AwsKms, admin: Any, key_id: str
) -> None:
    wrapped = client.wrap_key(KEY, key_id)
    assert admin.decrypt(KeyId=key_id, CiphertextBlob=wrapped)["Plaintext"] == KEY
    theirs = admin.encrypt(KeyId=key_id, Plaintext=KEY)["CiphertextBlob"]
    assert client.unwrap_key(theirs, key_id) == KEY


@pytest.mark.parametrize(("spec", "length"), [("AES_256", 32), ("AES_128", 16)])
def test_a_generated_key_has_the_size_of_the_property(client: AwsKms, key_id: str, spec: str, length: int) -> None:
    assert client.supports_key_generation()
    client.initialize({"kms.data-key-spec": spec})
    made = client.generate_key(key_id)
    assert len(made.key) == length
    assert client.unwrap_key(made.wrapped_key, key_id) == made.key


def test_an_alias_names_a_key(client: AwsKms, admin: Any, key_id: str) -> None:
    admin.create_alias(AliasName="alias/of-the-lake", TargetKeyId=key_id)
    wrapped = client.wrap_key(KEY, "alias/of-the-lake")
    assert client.unwrap_key(wrapped, key_id) == KEY


def test_properties_are_icebergs(server: Between, key_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name.upper())
    client = AwsKms()
    client.initialize(
        {
            "client.region": REGION,
            "kms.endpoint": server.url,
            "kms.encryption-algorithm-spec": "SYMMETRIC_DEFAULT",
            "client.access-key-id": "test",
            "client.secret-access-key": "secret",
            "client.session-token": "session",
        }
    )
    assert client.unwrap_key(client.wrap_key(KEY, key_id), key_id) == KEY
    assert server.requests[0].headers["X-Amz-Security-Token"] == "session"
    assert REGION in server.requests[0].headers["Authorization"]


def test_the_constructor_goes_before_the_properties(server: Between, key_id: str) -> None:
    client = AwsKms(region=REGION, endpoint=server.url)
    client.initialize({"client.region": "us-east-1", "kms.endpoint": "https://elsewhere.example"})
    client.wrap_key(KEY, key_id)
    assert REGION in server.requests[0].headers["Authorization"]


def test_a_session_of_the_callers_own_is_used(server: Between, key_id: str) -> None:
    session = boto3.Session(region_name=REGION, aws_access_key_id="mine", aws_secret_access_key="x")
    AwsKms(session=session, endpoint=server.url).wrap_key(KEY, key_id)
    assert "Credential=mine/" in server.requests[0].headers["Authorization"]


def test_an_encryption_context_is_bound_and_needed_again(server: Between, client: AwsKms, key_id: str) -> None:
    bound = AwsKms(region=REGION, endpoint=server.url, encryption_context={"table": "sales"})
    made = bound.generate_key(key_id)
    for wrapped, key in ((bound.wrap_key(KEY, key_id), KEY), (made.wrapped_key, made.key)):
        assert bound.unwrap_key(wrapped, key_id) == key
        with pytest.raises(ags1.KeyAccessError, match="another encryption context, or it is damaged"):
            client.unwrap_key(wrapped, key_id)


# -- faults --------------------------------------------------------------------------------------------------

PASSING: dict[str, Answer] = {
    "throttled": error("ThrottlingException", "Rate exceeded"),
    "internal": error("KMSInternalException", "try again", 500),
    "unavailable": Answer(503, b"<html>busy</html>", {"Content-Type": "text/html"}),
    "gateway": Answer(502, b"", {"Content-Type": "text/html"}),
    "hung up": HangUp(),
}


def test_throttling_that_stays_is_an_error(client: AwsKms, server: Between, key_id: str) -> None:
    server.script.extend([PASSING["throttled"]] * 5)
    with pytest.raises(ags1.KeyAccessError) as caught:
        client.unwrap_key(KEY, key_id)
    assert str(caught.value) == (
        f"AWS KMS could not unwrap a key with '{key_id}': ThrottlingException: Rate exceeded (tried 5 times)"
    )


def test_a_service_that_is_silent_is_an_error(server: Between, time: FakeTime) -> None:
    client = AwsKms(region=REGION, endpoint=server.url, timeout=0.2, attempts=2, **time.common)
    server.script.extend([Silence(), Silence()])
    with pytest.raises(ags1.KeyAccessError, match=r"ReadTimeoutError: .*\(tried 2 times\)|sends too slowly"):
        client.wrap_key(KEY, "k")


@every(
    "case",
    [
        (error("AccessDeniedException", "User is not authorized"), "AccessDeniedException: User is not authorized"),
        (error("DisabledException", "k is disabled."), "DisabledException: k is disabled."),
        (error("NotFoundException", "Key 'k' does not exist"), "NotFoundException: Key 'k' does not exist"),
        (error("IncorrectKeyException"), "IncorrectKeyException: it was wrapped with another key"),
        (error("InvalidCiphertextException"), "InvalidCiphertextException: it was wrapped with another key or another"),
        (error("SomethingNew"), "'k': SomethingNew"),
    ],
)
def test_a_refusal_is_told_as_it_is_and_not_tried_again(
    client: AwsKms, server: Between, case: tuple[Answer, str]
) -> None:
    answer, message = case
    server.script.append(answer)
    server.requests.clear()
    with pytest.raises(ags1.KeyAccessError, match=message):
        client.unwrap_key(KEY, "k")
    assert len(server.requests) == 1


def test_a_key_that_was_wrapped_with_another_key_is_refused(client: AwsKms, admin: Any, key_id: str) -> None:
    other = admin.create_key()["KeyMetadata"]["KeyId"]
    wrapped = bytearray(client.wrap_key(KEY, key_id))
    with pytest.raises(ags1.KeyAccessError, match=f"could not unwrap a key with '{other}'"):
        client.unwrap_key(admin_swapped(wrapped, key_id, other), other)


def admin_swapped(wrapped: bytearray, old: str, new: str) -> bytes:
    """The wrapped key with another id on it: moto takes the key from the ciphertext, as it lies there in plain text."""
    assert bytes(wrapped).startswith(old.encode())
    return new.encode() + bytes(wrapped[len(old) :])


def test_a_rotated_key_unwraps_what_it_wrapped_before(client: AwsKms, admin: Any, key_id: str) -> None:
    wrapped = client.wrap_key(KEY, key_id)
    admin.rotate_key_on_demand(KeyId=key_id)
    assert client.unwrap_key(wrapped, key_id) == KEY


def test_missing_credentials_are_an_error(server: Between, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CREDENTIALS:
        monkeypatch.delenv(name.upper())
    with pytest.raises(ags1.KeyAccessError, match="NoCredentialsError: Unable to locate credentials"):
        AwsKms(region=REGION, endpoint=server.url).wrap_key(KEY, "k")


def test_a_missing_region_is_an_error() -> None:
    with pytest.raises(ags1.KeyAccessError, match="NoRegionError: You must specify a region"):
        AwsKms().wrap_key(KEY, "k")


def test_a_plain_http_endpoint_in_the_properties_is_an_error() -> None:
    client = AwsKms(region=REGION)
    client.initialize({"kms.endpoint": "http://kms.example"})
    with pytest.raises(ags1.KeyAccessError, match="http would send keys unencrypted"):
        client.wrap_key(KEY, "k")


class TestKeys(Caching):
    pass


class TestFaults(Failing):
    service = "AWS KMS"
    passing = PASSING
    garbage = (b"", b"{}", b"[]", b"null", b"<html>", b"\xff\xfe", b'{"Plaintext": 7, "CiphertextBlob": 7}',
        b'{"Plaintext": "?", "CiphertextBlob": "?"}', b'{"Plaintext": "", "CiphertextBlob": ""}')  # fmt: skip
    secrets = (CREDENTIALS["aws_secret_access_key"],)

    def refusal(self, text: str) -> Answer:
        return error("ValidationException", text)
