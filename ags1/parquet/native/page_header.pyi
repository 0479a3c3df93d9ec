from typing import Final

__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]
