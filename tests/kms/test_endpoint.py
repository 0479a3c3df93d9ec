"""Addresses of services: keys never travel in the open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials

import ags1
from ags1.kms import AwsKms, AzureKms, GcpKms, VaultKms, base
from tests.checks import KEY
from tests.kms.loopback import FakeTime
from tests.kms.stand_ins import StandInAzure

CLIENTS: list[Callable[[str], object]] = [
    lambda url: AwsKms(endpoint=url),
    lambda url: GcpKms(endpoint=url),
    AzureKms,
    VaultKms,
]


@pytest.mark.parametrize(
    "url",
    [
        "https://kms.example:8200/",
        "http://127.0.0.1:8200",
        "http://[::1]:1",
        "http://localhost:1",
        "http://a.localhost",
    ],
)
def test_https_and_loopback_are_taken(url: str) -> None:
    assert base.checked_url(url, "endpoint") == url.rstrip("/")


@pytest.mark.parametrize("make", CLIENTS)
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://kms.example", "http would send keys unencrypted; use https"),
        ("http://10.0.0.1:8200", "http would send keys unencrypted"),
        ("http://127.0.0.1.evil.example", "http would send keys unencrypted"),
        ("http://localhost.evil.example", "http would send keys unencrypted"),
        ("http://notlocalhost", "http would send keys unencrypted"),
        ("https://user:pass@kms.example", "must not contain a user or password"),
        ("https://user@kms.example", "must not contain a user or password"),
        ("kms.example", "must be a URL such as https://host:port"),
        ("ftp://kms.example", "must be a URL such as https://host:port"),
        ("https://", "must be a URL such as https://host:port"),
        ("", "must be a URL such as https://host:port"),
    ],
)
def test_other_addresses_are_refused_and_passwords_not_repeated(
    make: Callable[[str], object], url: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make(url)
    assert "pass@" not in str(caught.value)


@pytest.mark.parametrize("service", ["aws", "gcp", "vault"])
def test_a_server_whose_certificate_nobody_vouches_for_gets_no_request(
    tmp_path: Path, time: FakeTime, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    """Any server with TLS of its own will do, also one that stands in for another service."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    key_id = "projects/p/locations/l/keyRings/r/cryptoKeys/k" if service == "gcp" else "k"
    with StandInAzure(tmp_path) as server:
        client: Any
        if service == "aws":
            client = AwsKms(region="eu-central-1", endpoint=server.url, **time.common)
        elif service == "gcp":
            anonymous = AnonymousCredentials()  # type: ignore[no-untyped-call]
            client = GcpKms(endpoint=server.url, credentials=anonymous, **time.common)
        else:
            client = VaultKms(server.url, token="t", **time.common)
        with pytest.raises(ags1.KeyAccessError, match=r"(?i)certificate.verify.failed"):
            client.wrap_key(KEY, key_id)
        assert not server.requests
    assert not time.pauses


def test_the_refusal_of_plain_http_shows_no_secret_of_the_url() -> None:
    with pytest.raises(ValueError, match="http would send keys unencrypted") as caught:
        base.checked_url("http://kms.example/x?sig=GEHEIM", "endpoint")
    assert "GEHEIM" not in str(caught.value)
