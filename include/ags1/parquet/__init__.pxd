# Marks include/ags1/parquet as a Cython package: `cimport ags1.parquet._module` and friends resolve here.
