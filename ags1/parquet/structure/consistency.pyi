from typing import Final, final

from ags1.parquet.native.modules import NAMES as NAMES
from ags1.parquet.structure.fields import ColumnChunk as ColumnChunk
from ags1.parquet.structure.fields import ColumnIndex as ColumnIndex
from ags1.parquet.structure.fields import ColumnMetaData as ColumnMetaData
from ags1.parquet.structure.fields import OffsetIndex as OffsetIndex
from ags1.parquet.structure.fields import PageLocation as PageLocation
from ags1.parquet.structure.fields import RowGroup as RowGroup

__pyx_capi__: Final[dict[str, object]]
__test__: Final[dict[str, str]]

@final
class FoundPages: ...
