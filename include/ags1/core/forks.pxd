# forks.h for Cython: which process this is, after forks. A module that asks calls ags1_count_forks() first.
from libc.stdint cimport int64_t

cdef extern from "ags1/core/forks.h" nogil:
    int ags1_count_forks()
    int64_t ags1_process()
