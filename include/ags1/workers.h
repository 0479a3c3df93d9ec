/* A crew of threads that lives for one call.
 *
 *     ags1_run_crew(work, job, threads):   caller ----- work(job) ------------- join, return
 *                                             \------- work(job) ---/
 *                                             \------- work(job) ---/
 *
 * Every member runs the same function on the same job and takes its share from a counter in it. In ags1_run_crew the
 * caller is a member too, so threads = 1 starts nothing; between ags1_start_crew and ags1_join_crew it is free to do
 * something else. No thread outlives the call that started it: a child forked before or after inherits nothing. Members block all signals, so that handlers run in the caller's threads. If the system gives fewer
 * threads than asked for, fewer do the same work.
 */
#ifndef AGS1_WORKERS_H
#define AGS1_WORKERS_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#define AGS1_MAX_CREW 256

typedef void *(*ags1_work)(void *job);

typedef struct {
    pthread_t members[AGS1_MAX_CREW];
    int count;
} ags1_crew;

static inline void ags1_start_crew(ags1_crew *crew, ags1_work work, void *job, int members)
{
    sigset_t all, before;
    crew->count = 0;
    if (members <= 0)
        return;
    if (members > AGS1_MAX_CREW)
        members = AGS1_MAX_CREW;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (crew->count < members && pthread_create(&crew->members[crew->count], NULL, work, job) == 0)
        crew->count++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static inline void ags1_join_crew(ags1_crew *crew)
{
    while (crew->count > 0)
        pthread_join(crew->members[--crew->count], NULL);
}

static inline void ags1_run_crew(ags1_work work, void *job, int threads)
{
    ags1_crew crew;
    ags1_start_crew(&crew, work, job, threads - 1);
    work(job);
    ags1_join_crew(&crew);
}

/* The counter from which members take their shares. */
static inline int64_t ags1_take(int64_t *counter)
{
    return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* What a member adds to a sum of the crew's. */
static inline void ags1_add(int64_t *sum, int64_t value)
{
    __atomic_fetch_add(sum, value, __ATOMIC_RELAXED);
}

/* The first failure of a job, by position: whoever fails earliest in the data wins, so the same damage gives the
 * same report whatever the threads did. Shares are taken in ascending order and a member finishes the one that it
 * has taken, so everything before the reported position was looked at. */
typedef struct {
    int failed; /* read without the lock to stop early */
    int status;
    int system_error;            /* errno, for I/O */
    unsigned long backend_error; /* OpenSSL's code, from the failing thread's queue */
    int64_t run;
    int64_t block_index;
    pthread_mutex_t lock;
} ags1_failure;

static inline void ags1_failure_init(ags1_failure *failure)
{
    failure->failed = 0;
    failure->status = 0;
    failure->system_error = 0;
    failure->backend_error = 0;
    failure->run = 0;
    failure->block_index = 0;
    pthread_mutex_init(&failure->lock, NULL);
}

static inline int ags1_has_failed(const ags1_failure *failure)
{
    return __atomic_load_n(&failure->failed, __ATOMIC_RELAXED);
}

static inline void ags1_fail(ags1_failure *failure, int status, int64_t run, int64_t block_index, int system_error,
                             unsigned long backend_error)
{
    pthread_mutex_lock(&failure->lock);
    if (!failure->failed || run < failure->run || (run == failure->run && block_index < failure->block_index)) {
        failure->status = status;
        failure->run = run;
        failure->block_index = block_index;
        failure->system_error = system_error;
        failure->backend_error = backend_error;
        __atomic_store_n(&failure->failed, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&failure->lock);
}

#endif
