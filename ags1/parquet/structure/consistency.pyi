from typing import Final, final

from ags1.parquet.native.modules import NAMES as NAMES

__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

@final
class FoundPages: ...
