"""URLs of services: what they make, and what they refuse."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ags1 import kms
from ags1.kms import keystore, load
from ags1.kms.services import SERVICES
from tests.checks import KEY
from tests.pages import ROOT

HERE = "tests.kms.test_load"


class OwnKms:
    """A client of someone's own, with the methods and no base."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.properties: dict[str, str] = {}

    def initialize(self, properties: Mapping[str, str]) -> None:
        self.properties = dict(properties)

    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes:
        return key

    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes:
        return wrapped_key

    def supports_key_generation(self) -> bool:
        return False

    def generate_key(self, wrapping_key_id: str) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Halfway:
    """No client."""

    def wrap_key(self) -> None:
        pass


@pytest.mark.parametrize(
    ("url", "kind", "attributes"),
    [
        ("aws:", kms.AwsKms, {"_region": None, "_endpoint": None}),
        ("AWS:?region=eu-central-1&timeout=2.5", kms.AwsKms, {"_region": "eu-central-1", "_timeout": 2.5}),
        (
            "aws:?endpoint=https://kms.example&profile=me",
            kms.AwsKms,
            {"_endpoint": "https://kms.example", "_profile": "me"},
        ),
        ("aws:?endpoint=https%3A%2F%2Fkms.example", kms.AwsKms, {"_endpoint": "https://kms.example"}),
        ("gcp:", kms.GcpKms, {"_endpoint": None}),
        ("gcp:?endpoint=https://g.example", kms.GcpKms, {"_endpoint": "https://g.example"}),
        ("azure:https://v.vault.azure.net/", kms.AzureKms, {"_vault_url": "https://v.vault.azure.net"}),
        ("azure:v.vault.azure.net?algorithm=RSA-OAEP", kms.AzureKms, {"_algorithm": "RSA-OAEP"}),
        ("azure://v.vault.azure.net", kms.AzureKms, {"_vault_url": "https://v.vault.azure.net"}),
        ("azure:", kms.AzureKms, {"_vault_url": None}),
        ("vault:", kms.VaultKms, {"_address": None}),
        (
            "vault:https://bao:8200?mount=a/transit&namespace=team&token_file=/t&ca_file=/ca&data_key_bits=128",
            kms.VaultKms,
            {
                "_address": "https://bao:8200",
                "_mount": "a/transit",
                "_namespace": "team",
                "_verify": "/ca",
                "_bits": 128,
            },
        ),
        ("vault:http://127.0.0.1:8200", kms.VaultKms, {"_address": "http://127.0.0.1:8200", "_verify": True}),
        ("local:keys.json", kms.LocalKms, {"_path": "keys.json"}),
        ("local:/a/b c.json?cache_seconds=0&attempts=1", kms.LocalKms, {"_path": "/a/b c.json", "_attempts": 1}),
    ],
)
def test_a_url_makes_its_client(url: str, kind: type, attributes: dict[str, Any]) -> None:
    client = load(url)
    assert type(client) is kind
    assert {name: getattr(client, name) for name in attributes} == attributes


@pytest.mark.parametrize("scheme", SERVICES)
def test_one_entry_of_the_table_makes_a_service(scheme: str) -> None:
    entry = SERVICES[scheme]
    assert entry.form.startswith(f"{scheme}:")
    client = load(f"{scheme}:?timeout=2.5&attempts=1")
    assert type(client).__name__ == entry.client.partition(":")[2]
    assert isinstance(client, kms.KeyManagementClient)
    with pytest.raises(ValueError, match=re.escape(entry.form)):
        load("oracle:x")


@pytest.mark.parametrize("scheme", [*SERVICES, "local", "module"])
def test_every_service_stands_where_people_look_for_it(scheme: str) -> None:
    assert f"``{scheme}:" in (load.__doc__ or ""), "the docstring of ags1.kms.load has the options of each URL"
    page = (ROOT / "docs" / "guides" / "key-services.md").read_text()
    assert f"| `{scheme}:" in page, "docs/guides/key-services.md has a row for each service"


def test_a_local_keystore_is_opened_by_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keystore, "SCRYPT_N", 1 << 10)
    (tmp_path / "pw").write_text("secret")
    kms.LocalKms.create(tmp_path / "keys.json", {"lake": KEY}, password="secret")
    monkeypatch.setenv("HOME", str(tmp_path))
    for client in (
        load(f"local:{tmp_path}/keys.json?password_file={tmp_path}/pw"),
        load(f"local:{tmp_path}/keys.json", password="secret"),
        load(f"local:{tmp_path}/keys.json?password_file=elsewhere", password="secret"),
        load("local:~/keys.json", password="secret"),
    ):
        assert client.unwrap_key(client.wrap_key(KEY, "lake"), "lake") == KEY


def test_options_go_before_those_of_the_url() -> None:
    client: Any = load("aws:?region=here", region="there")
    assert client._region == "there"


@pytest.mark.parametrize("client", [kms.MemoryKms({"lake": KEY}), OwnKms()])
def test_a_client_is_passed_through(client: Any) -> None:
    assert load(client) is client
    with pytest.raises(TypeError, match="an existing client accepts no options: timeout"):
        load(client, timeout=3)


@pytest.mark.parametrize("name", [f"{HERE}.OwnKms", f"{HERE}:OwnKms"])
def test_a_class_of_ones_own_is_made_and_initialized(name: str) -> None:
    client: Any = load(f"module:{name}?region=r&color=", flavor="sweet")
    assert type(client).__name__ == "OwnKms"
    assert (client.properties, client.options) == ({"region": "r", "color": ""}, {"flavor": "sweet"})


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", r"this is not a KMS URL; the forms are aws:\?region=R, gcp:"),
        ("keys.json", "this is not a KMS URL"),
        ("/etc/keys", "this is not a KMS URL"),
        ("oracle:x", "there is no KMS 'oracle'; the forms are aws"),
        ("memory:", "there is no memory: URL, because it would contain the key"),
        ("memory:lake=00112233", "there is no memory: URL"),
        ("aws:eu-central-1", "between colon and question mark there must be nothing: aws:"),
        ("gcp:projects/p", "between colon and question mark there must be nothing"),
        ("aws:?regoin=r", "the aws: URL has no option 'regoin'; it has attempts, cache_seconds"),
        ("aws:?region", "are not of the form name=value"),
        ("aws:?region=a&region=b", "an option of the aws: URL is given twice"),
        ("aws:?timeout=soon", "the option timeout of the aws: URL must be a number"),
        ("aws:?attempts=2.5", "the option attempts of the aws: URL must be a number"),
        ("aws:?attempts=0", "attempts must be at least 1"),
        ("aws:?cache_seconds=-1", "cache_seconds must not be negative"),
        ("azure:ftp://x", "an address after the colon: azure:https://HOST"),
        ("azure:http://vault.example", "http would send keys unencrypted"),
        ("vault:http://vault.example:8200", "http would send keys unencrypted"),
        ("vault:https://v?mount=../sys", "mount must be a path such as 'transit'"),
        ("vault:https://v?data_key_bits=7", "data_key_bits must be 128 or 256, not 7"),
        ("local:", "a local: URL names a keystore: local:PATH"),
        ("local:k?timeout=3", "the local: URL has no option 'timeout'"),
        ("local:k?password_file=a&key_file=b", "give one of password, `password_file` and `key_file`"),
        ("module:", "a module: URL names a class: module:package.module.Class"),
        ("module:Class", "a module: URL names a class"),
        ("module:a.b;c", "a module: URL names a class"),
        (f"module:{HERE}.NoKms", "has no NoKms"),
        (f"module:{HERE}.Halfway", "is not a KMS client: it has no unwrap_key, supports_key_generation"),
    ],
)
def test_a_wrong_url_is_refused_with_what_to_write(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(url)


SECRET = "s3cr3tv4lue"


@pytest.mark.parametrize(
    "url",
    [
        f"local:k?password={SECRET}",
        f"local:k?PASSWORD={SECRET}",
        f"local:k?passphrase={SECRET}",
        f"vault:https://v?token={SECRET}",
        f"vault:https://root:{SECRET}@v",
        f"aws:?secret_access_key={SECRET}",
        f"aws:?access_key_id={SECRET}",
        f"aws:?session_token={SECRET}",
        f"gcp:?credentials={SECRET}",
        f"azure:https://v?client_secret={SECRET}",
        f"module:{HERE}.OwnKms?api_key={SECRET}",
        f"memory:?key={SECRET}",
        f"aws:?endpoint=https://me:{SECRET}@kms.example",
    ],
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match=r"must not|would contain the key") as caught:
        load(url)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value.__cause__)


def test_a_missing_module_is_named_and_a_broken_one_keeps_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ImportError, match=r"there is no module no_such_package\.kms"):
        load("module:no_such_package.kms.Client")
    (tmp_path / "broken_kms.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        load("module:broken_kms.Client")


@pytest.mark.parametrize("thing", [None, 7, b"aws:", object(), Halfway()])
def test_anything_else_is_no_kms(thing: Any) -> None:
    with pytest.raises(TypeError, match="kms must be a URL or a KMS client, not"):
        load(thing)


class NeedsKeys(kms.MemoryKms):
    """A client that cannot be made without arguments."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        super().__init__(keys)


ready_made = kms.MemoryKms({})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NeedsKeys", "cannot be made without arguments"),
        ("ready_made", "is not a class: a module: URL names a class that is made without arguments"),
        ("Missing", "has no Missing"),
    ],
)
def test_a_module_url_that_names_no_client_says_what_it_should_name(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        load(f"module:{HERE}.{name}")
