"""Descriptions of key metadata: the key that it names, never a wrapped key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ags1.errors import Ags1Error
from ags1.parquet.keys.material import KeyMaterial, parse_key_metadata, parse_store
from ags1.parquet.keys.material_file import read_key_material
from ags1.storage import is_url

_LONGEST = 200


@dataclass(frozen=True)
class KeyDescription:
    """The key metadata that a file has for a key.

    Attributes
    ----------
    kind : str
        "none", "text", "bytes" (not shown), or "PKMT1": key material of the key tools.
    known : bool
        Whether the key was among those given.
    text : str or None
        The key metadata, if it is short printable text.
    length : int
        Bytes of the key metadata.
    storage : str or None
        For PKMT1: "internal", in the file, or "external", in a file beside it.
    reference : str or None
        For external material: its name in that file.
    master_key_id : str or None
        For PKMT1; None if external material is damaged or cannot be read.
    double_wrapped : bool or None
        Whether a key encryption key wraps the key, and the master key wraps that.
    kms_instance_id, kms_instance_url : str or None
        The KMS; only the material of a footer key has it.
    """

    kind: str
    known: bool
    text: str | None = None
    length: int = 0
    storage: str | None = None
    reference: str | None = None
    master_key_id: str | None = None
    double_wrapped: bool | None = None
    kms_instance_id: str | None = None
    kms_instance_url: str | None = None

    def __str__(self) -> str:
        if self.kind == "none":
            said = "no key metadata"
        elif self.kind == "text":
            said = f"key metadata {self.text!r}"
        elif self.kind == "bytes":
            said = f"key metadata of {self.length} bytes"
        else:
            parts = [] if self.master_key_id is None else [f"master key {self.master_key_id!r}"]
            if self.double_wrapped is not None:
                parts.append("double wrapped" if self.double_wrapped else "single wrapped")
            if self.storage is not None:
                parts.append(f"{self.storage} key material")
            said = ", ".join(parts) or "damaged key material"
        return f"{said}, key {'known' if self.known else 'not known'}"


def stored_material(name: str | None) -> Mapping[str, KeyMaterial]:
    """Key material beside the Parquet file `name`; none if it cannot be read."""
    # Inspecting a file in an object store does not request a second file.
    if name is None or is_url(name):
        return {}
    try:
        return parse_store(read_key_material(name))
    except (Ags1Error, OSError):
        return {}


def describe_key(
    key_metadata: bytes | None, *, known: bool, stored: Callable[[], Mapping[str, KeyMaterial]]
) -> KeyDescription:
    """Describe key metadata of a Parquet file; `stored` returns the key material beside it."""
    if key_metadata is None:
        return KeyDescription("none", known)
    length = len(key_metadata)
    if b"PKMT1" in key_metadata or b"keyMaterialType" in key_metadata:
        return _of_key_tools(key_metadata, known, stored)
    try:
        text = key_metadata.decode()
    except UnicodeDecodeError:
        text = ""
    # Long text is probably a wrapped key, not the name of a key.
    if text and text.isprintable() and length <= _LONGEST and "wrapped" not in text.lower():
        return KeyDescription("text", known, text=text, length=length)
    return KeyDescription("bytes", known, length=length)


def _of_key_tools(key_metadata: bytes, known: bool, stored: Callable[[], Mapping[str, KeyMaterial]]) -> KeyDescription:
    storage = reference = None
    material: KeyMaterial | None = None
    try:
        parsed = parse_key_metadata(key_metadata)
        storage = "external" if isinstance(parsed, str) else "internal"
        if isinstance(parsed, str):
            reference = parsed
            material = stored().get(parsed)
        else:
            material = parsed
    except Ags1Error:
        pass
    if material is None:
        return KeyDescription("PKMT1", known, length=len(key_metadata), storage=storage, reference=reference)
    footer = material.is_footer_key
    return KeyDescription(
        "PKMT1",
        known,
        length=len(key_metadata),
        storage=storage,
        reference=reference,
        master_key_id=material.master_key_id,
        double_wrapped=material.double_wrapping,
        kms_instance_id=material.kms_instance_id if footer else None,
        kms_instance_url=material.kms_instance_url if footer else None,
    )
