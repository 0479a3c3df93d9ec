# Marks include/ags1/parquet as a Cython package: `cimport ags1.parquet.native.modules` and friends resolve here.
