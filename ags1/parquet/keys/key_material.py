"""Key material of encrypted Parquet files, and rotation of its master keys. The data keys stay the same.

>>> from ags1.parquet.keys.key_material import rotate_master_keys
>>> report = rotate_master_keys("aws:?region=eu-central-1", "/lake/people")  # doctest: +SKIP

:func:`rotate_master_keys` is for material that is stored beside the files; the files are not changed.
:func:`rewrap_key_metadata` is for material in a file, whose footer the caller then writes again.
"""

from __future__ import annotations

import errno
import os
import warnings
from dataclasses import dataclass, field

from ags1.errors import Ags1Error
from ags1.kms import ServiceRefusal
from ags1.kms.asking import reported
from ags1.parquet.keys.config_arguments import CACHE_SECONDS, with_text
from ags1.parquet.keys.kms_keys import DataKeyUnwrapper, DataKeyWrapper, as_key_service, key_id
from ags1.parquet.keys.material import KeyMaterial, encode_store, parse_key_metadata, parse_store
from ags1.parquet.keys.material_file import (
    find_key_material,
    is_key_material_name,
    key_material_path,
    read_key_material_file,
    write_key_material_file,
)
from ags1.storage import Location
from ags1.support.arguments import one_of
from ags1.support.reports import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ags1.parquet.keys.kms_keys import Kms

__all__ = [
    "KeyMaterial",
    "KeyMetadataRewrapper",
    "RotationReport",
    "is_key_material_name",
    "key_material_path",
    "parse_key_metadata",
    "parse_store",
    "read_key_material_file",
    "rewrap_key_metadata",
    "rotate_master_keys",
]


@dataclass
class RotationReport(Report):
    """The result of :func:`rotate_master_keys`. It contains no keys.

    Attributes
    ----------
    rotated : list of (str, int)
        Key material files with new content, and the number of keys in each.
    master_keys : dict of str to int
        The number of keys that each master key wraps now.
    errors : list of (str, Exception)
        Files that kept their old content, and the errors.
    """

    rotated: list[tuple[str, int]] = field(default_factory=list)
    master_keys: dict[str, int] = field(default_factory=dict)
    errors: list[tuple[str, Exception]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every file was rotated."""
        return not self.errors


def rotate_master_keys(
    kms: Kms,
    where: str | os.PathLike[str],
    *,
    master_key_ids: Mapping[str, str] | None = None,
    double_wrapping: bool = True,
    kek_bits: int = 128,
    cache_seconds: float = CACHE_SECONDS,
    recursive: bool = True,
    on_error: str = "raise",
    storage_options: Mapping[str, Any] | None = None,
) -> RotationReport:
    """Wrap the data keys of files with external key material again. Data keys and Parquet files do not change.

    Each key material file is replaced whole or not at all, and only after its new content was unwrapped and gave the
    same keys. A concurrent reader gets the old or the new file. After an interruption, run it again. If a directory has
    no such file, a warning says so.

    Parameters
    ----------
    kms : client, str, or pyarrow KmsClient
        As for ``EncryptionConfig.from_kms``. It must unwrap with the old master keys, and wrap with the new ones.
    where : path or URL
        A directory, a Parquet file, or a key material file.
    master_key_ids : mapping of str to str, optional
        New ids by old ids. Keys of other ids, by default of all, are wrapped again by the current version of the same
        master key.
    double_wrapping, kek_bits, cache_seconds
        As for ``EncryptionConfig.from_kms``, for the new material. It always gets new key encryption keys.
    recursive : bool
        Whether to include subdirectories.
    on_error : str
        "raise" stops at the first file that fails; "collect" continues and reports errors. If the key management
        service refuses every file, or cannot be reached, that is always raised.
    storage_options : mapping, optional
        What is needed to reach a URL and is not in the environment: endpoint, credentials.

    Raises
    ------
    KeyAccessError, FormatError, AuthenticationError, OSError
        A file, named in the message, could not be rotated. Files that were rotated before it stay rotated.
    TypeError, ValueError
        A wrong argument.
    """
    one_of(on_error, ("raise", "collect"), "on_error")
    rewrapper = KeyMetadataRewrapper(
        kms, master_key_ids, double_wrapping=double_wrapping, kek_bits=kek_bits, cache_seconds=cache_seconds
    )
    report = reported(RotationReport(), rewrapper)
    for place in find_key_material(Location(where, storage_options), recursive=recursive):
        path = place.text
        try:
            materials = rewrapper.rewrap_file(place)
        except (Ags1Error, OSError) as error:
            if on_error == "raise" or isinstance(error, ServiceRefusal):
                if isinstance(error, Ags1Error):
                    raise with_text(error, f"{path} keeps its old content: {error}") from error
                raise
            report.errors.append((path, error))
            continue
        report.rotated.append((path, len(materials)))
        for material in materials.values():
            report.master_keys[material.master_key_id] = report.master_keys.get(material.master_key_id, 0) + 1
    if not (report.rotated or report.errors):
        text = (
            "there is no key material beside files, and no key was wrapped again: rotate_file does it inside of files"
        )
        warnings.warn(f"{os.fspath(where)}: {text}", stacklevel=2)
    return report


class KeyMetadataRewrapper:
    """Wraps data keys again. Keys of one master key share a key encryption key, which saves calls to the KMS.

    The parameters are those of :func:`rotate_master_keys`; with ``double_wrapping=None``, the new material has a key
    encryption key if the old one had. Safe to share between threads.
    """

    def __init__(
        self,
        kms: Kms,
        master_key_ids: Mapping[str, str] | None = None,
        *,
        double_wrapping: bool | None = None,
        kek_bits: int = 128,
        cache_seconds: float = CACHE_SECONDS,
    ) -> None:
        service = as_key_service(kms)
        self.checks_keys = service.checks_keys
        what = "master_key_ids"
        self._ids = {key_id(old, what): key_id(new, what) for old, new in (master_key_ids or {}).items()}
        self._wrappers = {}
        for old in (False, True):
            new = old if double_wrapping is None else double_wrapping
            self._wrappers[old] = DataKeyWrapper(
                service, double_wrapping=new, kek_bits=kek_bits, cache_seconds=cache_seconds
            )
        self._old = DataKeyUnwrapper(service, cache_seconds=cache_seconds)

    def rewrap_material(self, material: KeyMaterial) -> KeyMaterial:
        """Wrap the key in key material again; KeyAccessError as :meth:`KeyService.unwrap`, :meth:`KeyService.wrap`."""
        key = self._old.unwrap(material)
        return self._wrappers[material.double_wrapping].wrap(
            key,
            self._ids.get(material.master_key_id, material.master_key_id),
            is_footer_key=material.is_footer_key,
            kms_instance_id=material.kms_instance_id,
            kms_instance_url=material.kms_instance_url,
        )

    def rewrap_file(self, place: Location) -> dict[str, KeyMaterial]:
        """The same for a key material file, which is replaced whole or not at all; return its new content."""
        old = read_key_material_file(place)
        new = {name: self.rewrap_material(material) for name, material in parse_store(old).items()}
        if read_key_material_file(place) != old:
            # A Parquet file is being replaced, and its new keys must stay.
            raise OSError(errno.EBUSY, "was changed while its keys were wrapped again: run it again", place.shown)
        write_key_material_file(place, encode_store(new))
        return new

    def rewrap(self, key_metadata: bytes) -> bytes:
        """The same for key metadata; ValueError if its key material is stored outside of the file."""
        material = parse_key_metadata(key_metadata)
        if not isinstance(material, KeyMaterial):
            raise ValueError(
                "this key metadata refers to key material beside the file, where rotate_master_keys wraps it again"
            )
        return self.rewrap_material(material).encode(internal=True)


def rewrap_key_metadata(
    key_metadata: bytes,
    kms: Kms,
    master_key_id: str | None = None,
    *,
    double_wrapping: bool | None = None,
    kek_bits: int = 128,
) -> bytes:
    """Return key metadata with the same data key, wrapped again. The caller stores it in the file.

    For several keys use a :class:`KeyMetadataRewrapper`, which makes fewer calls to the KMS.

    Parameters
    ----------
    key_metadata : bytes
        From a Parquet file, with internal key material.
    master_key_id : str, optional
        The new master key; None is the current version of the same one.
    kms, double_wrapping, kek_bits
        As :class:`KeyMetadataRewrapper`.

    Raises
    ------
    ValueError
        The key material is stored outside of the file.
    KeyAccessError, FormatError, AuthenticationError
        As :meth:`KeyMetadataRewrapper.rewrap_material`.
    """
    ids = None
    if master_key_id is not None:
        material = parse_key_metadata(key_metadata)
        ids = {material.master_key_id: master_key_id} if isinstance(material, KeyMaterial) else None
    rewrapper = KeyMetadataRewrapper(kms, ids, double_wrapping=double_wrapping, kek_bits=kek_bits)
    return rewrapper.rewrap(key_metadata)
