# workers.h for Cython: extern declarations only. See workers.h for what a crew, a helper and a failure are.
from libc.stdint cimport int64_t

cdef extern from "ags1/core/workers.h" nogil:
    enum:
        AGS1_MAX_CREW

    ctypedef void *(*ags1_work)(void *job) noexcept nogil

    ctypedef struct ags1_failure:
        int failed
        int status
        int system_error
        unsigned long backend_error
        int64_t run
        int64_t block_index

    ctypedef struct ags1_crew:
        int count

    void ags1_start_crew(ags1_crew *crew, ags1_work work, void *job, int members)
    void ags1_join_crew(ags1_crew *crew)
    void ags1_run_crew(ags1_work work, void *job, int threads)

    ctypedef struct ags1_task:
        ags1_work work
        void *job

    ctypedef struct ags1_helper:
        pass

    void ags1_helper_init(ags1_helper *helper)
    bint ags1_give(ags1_helper *helper, ags1_task *task)
    bint ags1_is_late(ags1_helper *helper)
    bint ags1_take_back(ags1_helper *helper, ags1_task *task)
    bint ags1_is_under_way(ags1_helper *helper, ags1_task *task)
    void ags1_await(ags1_helper *helper, ags1_task *task)
    void ags1_dismiss(ags1_helper *helper)

    int64_t ags1_take(int64_t *counter)
    int64_t ags1_take_share(int64_t *next, int64_t total, int64_t smallest, int members, int64_t *end)
    void ags1_add(int64_t *sum, int64_t value)
    void ags1_failure_init(ags1_failure *failure)
    bint ags1_has_failed(const ags1_failure *failure)
    void ags1_fail(
        ags1_failure *failure, int status, int64_t run, int64_t block_index, int system_error,
        unsigned long backend_error)
