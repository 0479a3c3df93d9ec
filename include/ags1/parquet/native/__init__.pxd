# Marks include/ags1/parquet/native as a Cython package: `cimport ags1.parquet.native...` resolves here.
