"""Data keys of Parquet files under master keys in a KMS: making, wrapping and unwrapping them, with few calls.

    data key  --key encryption key, here-->  wrappedDEK        double wrapping
    key encryption key  --KMS-->             wrappedKEK        once for each master key and cache lifetime
    data key  --KMS-->                       wrappedDEK        single wrapping

The key tools store wrapped keys as text: base64 of the bytes from an ``ags1.kms`` client, or the text from a pyarrow
KmsClient.
"""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Callable, Collection

from ags1.core.gcm import Key, random_bytes
from ags1.errors import FormatError, KeyAccessError
from ags1.kms import key_cache_of, name_of_key
from ags1.kms.asking import UnfitError, ask, checks_keys, has_methods, returned_key, returned_wrapping, wrap_key
from ags1.parquet.keys.config_arguments import CACHE_SECONDS, HoldsKeys, as_flag
from ags1.parquet.keys.material import (
    FOOTER_KEY,
    KeyMaterial,
    column_key_reference,
    encode_reference,
    encode_store,
    parse_key_metadata,
    parse_store,
    unwrap_locally,
    wrap_locally,
)
from ags1.parquet.keys.material_file import key_material_entries, read_key_material
from ags1.support.arguments import one_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias, TypeVar

    from ags1.kms import KeyCache
    from ags1.storage import Location

    T = TypeVar("T")
    Kms: TypeAlias = Any

_KEK_ID = 16
# Between a plain name in a key material file and what tells it from the same name of an older file.
_MARK = "-"


# -- the service -----------------------------------------------------------------------------------------------


class KeyService:
    """A KMS for the key tools: wrapped keys are text.

    With `of_text`, the client (a pyarrow KmsClient) returns text itself; others return bytes.
    """

    def __init__(self, client: Any, *, of_text: bool) -> None:
        self._client = client
        self._of_text = of_text
        self.name = type(client).__name__
        self.checks_keys = checks_keys(client)

    def wrap(self, key: Key, master_key_id: str) -> str:
        """Wrap a key; KeyAccessError as :func:`ags1.kms.asking.wrap_key`."""
        wrapped: str | bytes = wrap_key(
            self._client, key, master_key_id, f"a key with {master_key_id!r}", self._wrapped
        )
        return wrapped if isinstance(wrapped, str) else base64.b64encode(wrapped).decode()

    def unwrap(self, wrapped: str, master_key_id: str, field: str) -> Key:
        """Unwrap a key. Errors as :meth:`wrap`, and FormatError, which names `field`, if it is not base64."""
        failing = f"{self.name} could not unwrap a key with {master_key_id!r}"
        argument = self._stored(wrapped, field)
        return ask(lambda: returned_key(self._client.unwrap_key(argument, master_key_id)), failing)

    def unwrap_kek(self, wrapped: str, master_key_id: str, seconds: float) -> Key:
        """Unwrap a key encryption key, unless the client's cache has it and it is not older than `seconds`."""
        argument = self._stored(wrapped, "wrappedKEK")
        octets = argument.encode() if isinstance(argument, str) else argument
        # Cached by its wrapped form, not by its id: another key could have the same id.
        return self.cache.get(
            name_of_key(master_key_id, octets),
            lambda: self.unwrap(wrapped, master_key_id, "wrappedKEK"),
            seconds=seconds,
        )

    @property
    def cache(self) -> KeyCache:
        """The cache of the client."""
        return key_cache_of(self._client)

    def _stored(self, wrapped: str, field: str) -> str | bytes:
        if self._of_text:
            return wrapped
        try:
            octets = base64.b64decode(wrapped.encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise FormatError(
                f"{field} of the key material is not base64: it was wrapped by a KMS client of another kind"
            ) from None
        if not octets:
            raise FormatError(f"{field} of the key material is empty")
        return octets

    def _wrapped(self, answer: Any, key: Any) -> str | bytes:
        if self._of_text:
            answer = answer.encode() if isinstance(answer, str) else answer
        octets = returned_wrapping(answer, key)
        if not self._of_text:
            return octets
        try:
            return octets.decode()
        except UnicodeDecodeError:
            raise UnfitError("no text") from None


def as_key_service(kms: Kms) -> KeyService:
    """Make a KeyService from a client, a URL for ``ags1.kms.load``, or a pyarrow KmsClient.

    Raises
    ------
    TypeError, ValueError
        It is none of these.
    """
    if isinstance(kms, KeyService):
        return kms
    if isinstance(kms, str):
        from ags1.kms import load

        return KeyService(load(kms), of_text=False)
    if not has_methods(kms):
        raise TypeError(
            "kms must be a KMS URL, a client of ags1.kms or a pyarrow KmsClient, with wrap_key and unwrap_key; "
            f"not {type(kms).__name__}"
        )
    return KeyService(kms, of_text=_is_pyarrow_client(kms))


def _is_pyarrow_client(kms: object) -> bool:
    # If the module was not imported, there can be no instance of its class.
    module = sys.modules.get("pyarrow._parquet_encryption")
    client = getattr(module, "KmsClient", None)
    return client is not None and isinstance(kms, client)


def key_id(value: object, argument: str) -> str:
    """Check the id of a master key."""
    if not isinstance(value, str):
        raise TypeError(f"{argument} must be the id of a master key, a str, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{argument} has an empty master key id")
    return value


def _checked(seconds: float) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"cache_seconds must be a number, not {type(seconds).__name__}")
    if not seconds >= 0:
        raise ValueError(f"cache_seconds must not be negative, got {seconds}")
    return seconds


# -- wrapping --------------------------------------------------------------------------------------------------


class DataKeyWrapper(HoldsKeys):
    """Wraps data keys into key material, as ``EncryptionConfig.from_kms`` says. Safe to share between threads."""

    def __init__(
        self,
        service: KeyService,
        *,
        double_wrapping: bool = True,
        kek_bits: int = 128,
        cache_seconds: float = CACHE_SECONDS,
    ) -> None:
        self._service = service
        self.checks_keys = service.checks_keys
        self._double = as_flag(double_wrapping, "double_wrapping")
        self._kek_bits = one_of(kek_bits, (128, 192, 256), "kek_bits")
        self._seconds = _checked(cache_seconds)
        # A rotation needs new key encryption keys, wrapped by the newest version of a master key.
        self._keks = service.cache.part()

    def wrap(
        self,
        key: Key,
        master_key_id: str,
        *,
        is_footer_key: bool,
        kms_instance_id: str = "DEFAULT",
        kms_instance_url: str = "DEFAULT",
    ) -> KeyMaterial:
        """Wrap a data key; KeyAccessError as :meth:`KeyService.wrap`."""
        kek = identity = wrapped_kek = None
        if self._double:
            kek, identity, wrapped_kek = self._keks.get(
                master_key_id, lambda: self._new_kek(master_key_id), seconds=self._seconds
            )
        return KeyMaterial(
            is_footer_key=is_footer_key,
            master_key_id=master_key_id,
            wrapped_dek=wrap_locally(key, kek, identity)
            if kek and identity
            else self._service.wrap(key, master_key_id),
            kek_id=identity,
            wrapped_kek=wrapped_kek,
            kms_instance_id=kms_instance_id,
            kms_instance_url=kms_instance_url,
        )

    def _new_kek(self, master_key_id: str) -> tuple[Key, bytes, str]:
        """A new key encryption key, its id and its wrapped form."""
        key = Key.generate(self._kek_bits)
        return key, random_bytes(_KEK_ID), self._service.wrap(key, master_key_id)


class FileDataKeys:
    """New data keys of a file that is written, and their key metadata.

    Attributes
    ----------
    replaced : frozenset of str
        Entries in the key material file of `target`, which the new file will replace.
    """

    def __init__(
        self,
        wrapper: DataKeyWrapper,
        footer_key_id: str,
        column_key_ids: list[str],
        *,
        internal: bool,
        data_key_bits: int,
        kms_instance_id: str,
        kms_instance_url: str,
        target: Location | None = None,
    ) -> None:
        self._wrapper = wrapper
        self._column_key_ids = column_key_ids
        self._data_key_bits = data_key_bits
        self._stored: dict[str, KeyMaterial] | None = None if internal else {}
        self.replaced = frozenset(() if internal or target is None else key_material_entries(target))
        # Rotation in parquet-java and PyArrow knows the plain names only, so they are used if they are free.
        self._mark = "" if all(_MARK in name for name in self.replaced) else f"{_MARK}{random_bytes(8).hex()}"
        self._columns = 0
        self.footer_key = Key.generate(data_key_bits)
        material = wrapper.wrap(
            self.footer_key,
            footer_key_id,
            is_footer_key=True,
            kms_instance_id=kms_instance_id,
            kms_instance_url=kms_instance_url,
        )
        self.footer_key_metadata: bytes | None = self._store(material, FOOTER_KEY + self._mark)

    def column(self, index: int) -> tuple[Key, bytes | None]:
        """A new key for one more column, under the master key with this index."""
        key = Key.generate(self._data_key_bits)
        material = self._wrapper.wrap(key, self._column_key_ids[index], is_footer_key=False)
        metadata = self._store(material, column_key_reference(self._columns) + self._mark)
        self._columns += 1
        return key, metadata

    def external_key_material(self) -> bytes | None:
        """A key material file of all keys made so far; None if they are stored in the Parquet file."""
        return None if self._stored is None else encode_store(self._stored)

    def _store(self, material: KeyMaterial, reference: str) -> bytes:
        if self._stored is None:
            return material.encode(internal=True)
        self._stored[reference] = material
        return encode_reference(reference)


# -- unwrapping ------------------------------------------------------------------------------------------------


class DataKeyUnwrapper(HoldsKeys):
    """Unwraps data keys from key material, as ``DecryptionConfig.from_kms`` says. Safe to share between threads."""

    def __init__(
        self,
        service: KeyService,
        *,
        cache_seconds: float = CACHE_SECONDS,
        expected_key_ids: Collection[str] | None = None,
    ) -> None:
        self._service = service
        self._seconds = _checked(cache_seconds)
        if isinstance(expected_key_ids, str):
            raise TypeError("expected_key_ids must be the ids of master keys, not one id")
        self._expected: set[str] | None = None
        if expected_key_ids is not None:
            self._expected = {key_id(each, "expected_key_ids") for each in expected_key_ids}

    def unwrap(self, material: KeyMaterial) -> Key:
        """The data key; the errors are those of :meth:`KeyService.unwrap` and :func:`unwrap_locally`.

        KeyAccessError: also if the master key is none of those that are expected.
        """
        master, kek_id, wrapped_kek = material.master_key_id, material.kek_id, material.wrapped_kek
        if self._expected is not None and master not in self._expected:
            raise KeyAccessError(
                f"a key is under the master key {master!r}, but {' or '.join(map(repr, sorted(self._expected)))} is "
                "expected: another file may be in the place of this one"
            )
        if kek_id is None or wrapped_kek is None:
            return self._service.unwrap(material.wrapped_dek, master, "wrappedDEK")
        kek = self._service.unwrap_kek(wrapped_kek, master, self._seconds)
        return unwrap_locally(material.wrapped_dek, kek, kek_id)


def retriever(unwrapper: DataKeyUnwrapper, source: Any, name: str | None) -> Callable[[bytes], Key]:
    """A key retriever for the file at `source`; external key material is read from beside the file when needed."""
    stored: dict[str, KeyMaterial] | FormatError | None = None

    def retrieve(key_metadata: bytes) -> Key:
        nonlocal stored
        material = parse_key_metadata(key_metadata)
        if isinstance(material, KeyMaterial):
            return unwrapper.unwrap(material)
        if stored is None:
            if source is None:
                raise KeyAccessError(
                    f"its key material ({material[:64]!r}) is in a file beside the Parquet file, whose location is not "
                    "known: give a path or URL, not an object without a name"
                )
            try:
                stored = parse_store(read_key_material(source))
            except FormatError as error:
                # Parsed once for all columns.
                stored = error
        if isinstance(stored, FormatError):
            raise FormatError(str(stored))
        if material not in stored:
            raise KeyAccessError(
                f"the key material file of {name} has no {material[:64]!r}: it belongs to another file"
            )
        return unwrapper.unwrap(stored[material])

    return retrieve
