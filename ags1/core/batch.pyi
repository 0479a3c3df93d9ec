"""Many buffers, one native call: each becomes, or was, an AGS1 stream or a GCM message of its own, in one arena."""

from collections.abc import Iterable
from typing import Final, Literal, SupportsIndex

from ags1.core.arena import Batch
from ags1.core.items import NumberedPrefixes
from ags1.core.typing import Items, KeyLike
from ags1.support.typing import Buffer

# Of every Cython module.
__test__: Final[dict[str, str]]

def encrypt_batch(
    buffers: Items,
    key: KeyLike | Items,
    aad_prefixes: Buffer | Items | NumberedPrefixes | None,
    block_length: SupportsIndex,
    threads: int | None,
    out: Buffer | Batch | None = None,
    form: str = "ags1",
    lead: bytes = b"",
) -> Batch: ...
def decrypt_batch(
    buffers: Items,
    key: KeyLike | Items,
    aad_prefixes: Buffer | Items | NumberedPrefixes | None,
    lengths: Iterable[SupportsIndex | None] | None,
    threads: int | None,
    out: Buffer | Batch | None = None,
    on_error: Literal["raise", "null"] = "raise",
    form: str = "ags1",
    lead_length: int = 0,
    key_is_right: bool = False,
) -> Batch: ...
def decrypt_aligned(
    buffers: Items,
    key: KeyLike | Items,
    aad_prefixes: Buffer | Items | None,
    threads: int | None,
    alignment: int,
) -> list[memoryview]: ...
