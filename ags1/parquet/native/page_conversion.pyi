from typing import Final

from ags1.support.typing import Buffer

__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

def crc32(data: Buffer, bits: int = 512) -> int: ...
def stretch(structure: Buffer, length: int) -> bytes: ...
