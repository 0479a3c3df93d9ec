"""PyIceberg's KeyManagementClient over our clients, with its interface as its sources of October 2026 have it."""

from __future__ import annotations

import abc
import base64
import importlib.util
import pickle
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import ags1
from ags1 import kms
from ags1.kms import pyiceberg
from tests.checks import KEYS, every
from tests.conformance import loader

MASTERS = {"lake": KEYS[16]}


@dataclass(frozen=True)
class GeneratedKey:
    """As PyIceberg's."""

    key: bytes = field(repr=False)
    wrapped_key: bytes


class KeyManagementClient(abc.ABC):
    """Of the shape of PyIceberg's: made of the catalog's properties alone, and loaded by name."""

    def __init__(self, properties: Mapping[str, str] = {}) -> None:
        self.properties = properties

    @abc.abstractmethod
    def wrap_key(self, key: bytes, wrapping_key_id: str) -> bytes: ...

    @abc.abstractmethod
    def unwrap_key(self, wrapped_key: bytes, wrapping_key_id: str) -> bytes: ...

    def supports_key_generation(self) -> bool:
        return False

    def generate_key(self, wrapping_key_id: str) -> GeneratedKey:
        raise NotImplementedError


class Manager:
    """What PyIceberg's encryption manager does with a client: from a snapshot's entry to its key metadata."""

    def __init__(self, kms_client: KeyManagementClient, entries: list[dict[str, Any]]) -> None:
        assert isinstance(kms_client, KeyManagementClient)
        self._kms, self._entries = kms_client, {entry["key-id"]: entry for entry in entries}

    def unwrap(self, key_id: str) -> bytes:
        entry = self._entries[key_id]
        kek = self._entries[entry["encrypted-by-id"]]
        wrapped, sealed = (base64.b64decode(each["encrypted-key-metadata"]) for each in (kek, entry))
        key = self._kms.unwrap_key(wrapped, kek["encrypted-by-id"])
        assert type(key) is bytes
        return AESGCM(key).decrypt(sealed[:12], sealed[12:], kek["properties"]["KEY_TIMESTAMP"].encode())


class OwnKms(kms.MemoryKms):
    """Made without arguments, as one that a URL names."""

    unwraps = 0

    def __init__(self, **options: Any) -> None:
        super().__init__(MASTERS, **options)

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        type(self).unwraps += 1
        return super()._unwrap(wrapped, key_id)


URL = {"ags1.kms": f"module:{__name__}.OwnKms", "uri": "https://catalog"}


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """Our class as it is where PyIceberg has the interface."""
    module: Any = types.ModuleType("pyiceberg.encryption.kms")
    module.KeyManagementClient, module.GeneratedKey = KeyManagementClient, GeneratedKey
    monkeypatch.setitem(sys.modules, "pyiceberg.encryption", types.ModuleType("pyiceberg.encryption"))
    monkeypatch.setitem(sys.modules, "pyiceberg.encryption.kms", module)
    spec = importlib.util.spec_from_file_location("ags1_kms_with_pyiceberg", pyiceberg.__file__)
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    found: type[Any] = fresh.PyIcebergKms
    return found


@pytest.fixture(autouse=True)
def loadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a URL name a class of this file, however pytest imported it."""
    this: Any = types.ModuleType(__name__)
    this.OwnKms = OwnKms
    monkeypatch.setitem(sys.modules, __name__, this)
    monkeypatch.setattr(OwnKms, "unwraps", 0)


@every("vector", loader.load_wrapped_keys(), ids=lambda vector: vector.name)
def test_its_manager_opens_tables_keys_over_our_client(adapter: type[Any], vector: loader.WrappedKeyVector) -> None:
    client = adapter(client=kms.MemoryKms({"master": vector.octets("master_key")}))
    manager = Manager(client, vector.entries())
    if vector.good:
        assert manager.unwrap("list") == vector.octets("key_metadata")
    elif vector.expect == "key-access":
        with pytest.raises(ags1.KeyAccessError, match="master"):
            manager.unwrap("list")


def test_a_catalogs_properties_alone_make_one(adapter: type[Any]) -> None:
    client = adapter(URL)
    assert isinstance(client, KeyManagementClient)
    assert client.properties == URL
    wrapped = client.wrap_key(KEYS[32], "lake")
    for _ in range(3):
        assert client.unwrap_key(wrapped, "lake") == KEYS[32]
    assert OwnKms.unwraps == 1, "the cache of our client was not used"


def test_no_other_property_is_believed(adapter: type[Any]) -> None:
    class Curious(kms.MemoryKms):
        def initialize(self, properties: Mapping[str, str]) -> None:
            raise AssertionError("a server of a catalog could name another key service")

    adapter({"kms.endpoint": "https://evil"}, client=Curious(MASTERS))


@pytest.mark.parametrize("properties", [{}, {"ags1.kms": ""}, {"py-kms-impl": "ags1.kms.PyIcebergKms"}])
def test_without_a_service_the_error_names_the_property(properties: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"ags1\.kms"):
        kms.PyIcebergKms(properties)


def test_a_service_that_makes_keys_does_so_for_it(adapter: type[Any]) -> None:
    class Makes(kms.MemoryKms):
        def supports_key_generation(self) -> bool:
            return True

        def _generate(self, key_id: str) -> tuple[bytes, bytes]:
            return KEYS[16], self._wrap(KEYS[16], key_id)

    client = adapter(client=Makes(MASTERS))
    assert client.supports_key_generation()
    made = client.generate_key("lake")
    assert isinstance(made, GeneratedKey)
    assert client.unwrap_key(made.wrapped_key, "lake") == made.key == KEYS[16]
    assert not adapter(client=kms.MemoryKms(MASTERS)).supports_key_generation()


@pytest.mark.parametrize("show", [repr, str, lambda client: str(vars(client))])
def test_no_key_is_shown(show: Callable[[Any], str]) -> None:
    client = kms.PyIcebergKms(client=kms.MemoryKms(MASTERS))
    client.unwrap_key(client.wrap_key(KEYS[32], "lake"), "lake")
    shown = show(client)
    for key in (KEYS[16], KEYS[32]):
        assert key.hex() not in shown
        assert repr(key)[2:-1] not in shown


def test_one_of_properties_is_pickled_and_one_of_a_client_is_not() -> None:
    sent = pickle.dumps(kms.PyIcebergKms({**URL, "s3.secret-access-key": "credentials of the catalog"}))
    assert b"credentials" not in sent
    again = pickle.loads(sent)
    assert again.unwrap_key(kms.MemoryKms(MASTERS).wrap_key(KEYS[16], "lake"), "lake") == KEYS[16]
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(kms.PyIcebergKms(client=kms.MemoryKms(MASTERS)))


def test_without_the_interface_it_has_the_same_methods() -> None:
    client = kms.PyIcebergKms(client=kms.MemoryKms(MASTERS))
    wanted = {name for name in vars(KeyManagementClient) if not name.startswith("_")}
    assert wanted <= set(dir(client))
    assert client.unwrap_key(client.wrap_key(KEYS[24], "lake"), "lake") == KEYS[24]
