# ordered.h for Cython: extern declarations only.
from libc.stdint cimport int64_t

cdef extern from "ags1/ordered.h" nogil:
    ctypedef struct ags1_line:
        int64_t end

    void ags1_line_init(ags1_line *line, int64_t end)
    void ags1_line_destroy(ags1_line *line)
    int64_t ags1_line_enter(ags1_line *line, int64_t ticket, int64_t length)
    void ags1_line_break(ags1_line *line)
