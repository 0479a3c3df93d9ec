# Marks include/ags1/core as a Cython package: `cimport ags1.core...` resolves here.
