# ordered.h for Cython: extern declarations only.
from libc.stdint cimport int64_t

cdef extern from "ags1/core/ordered.h" nogil:
    ctypedef struct ags1_turnstile:
        int64_t end

    void ags1_turnstile_init(ags1_turnstile *line, int64_t end)
    void ags1_turnstile_destroy(ags1_turnstile *line)
    int64_t ags1_turnstile_enter(ags1_turnstile *line, int64_t ticket, int64_t length)
    void ags1_turnstile_break(ags1_turnstile *line)
