# Marks include/ags1 as a Cython package: `cimport ags1.layout` and friends resolve here.
