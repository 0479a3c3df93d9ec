import duckdb, sys
from tests.parquet.view_files import *
bad=0
for i in range(60):
    with duckdb.connect() as c:
        try: c.read_parquet(view_of("everything-v2","java")).to_arrow_table()
        except Exception as e: bad+=1; print(repr(e)[:100])
print("view object bad",bad)
