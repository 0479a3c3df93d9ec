/* Threads that work without the GIL: a crew that lives for one call, and a helper that lives with its owner.
 *
 *     ags1_run_crew(work, job, threads):   caller ----- work(job) ------------- join, return
 *                                             \------- work(job) ---/
 *                                             \------- work(job) ---/
 *
 * Every member runs the same function on the same job and takes its share from a counter in it. In ags1_run_crew the
 * caller is a member too, so threads = 1 starts nothing; between ags1_start_crew and ags1_join_crew it is free to do
 * something else. No member outlives the call that started it: a child forked before or after inherits nothing. All
 * threads block all signals, so that handlers run in the caller's. If the system gives fewer threads than asked for,
 * fewer do the same work.
 *
 * A new thread begins on another processor than the one that starts it. Left to itself, Linux may put it behind its
 * caller, which keeps working: on a virtual machine with two processors, after 5 ms of sleep, half of all threads began
 * more than 2 ms late (with this, 0.1 ms), which is as long as 8 MiB take.
 */
#ifndef AGS1_WORKERS_H
#define AGS1_WORKERS_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>

#define AGS1_MAX_CREW 256

/* musl cannot say where a thread begins, nor can macOS. */
#if defined(__GLIBC__) && defined(CPU_SET)
#define AGS1_CAN_CHOOSE_PROCESSORS
#endif

typedef void *(*ags1_work)(void *job);

/* How to start threads from here: what they do, and on which processors. */
typedef struct {
    ags1_work work;
    void *job;
    pthread_attr_t attributes;
    int elsewhere; /* so many begin without the caller's processor, and then may use all that the caller may */
#ifdef AGS1_CAN_CHOOSE_PROCESSORS
    cpu_set_t allowed;
#endif
} ags1_start;

static inline void ags1_start_init(ags1_start *start, ags1_work work, void *job)
{
    start->work = work;
    start->job = job;
    start->elsewhere = 0;
    pthread_attr_init(&start->attributes);
#ifdef AGS1_CAN_CHOOSE_PROCESSORS
    int here = sched_getcpu();
    if (here >= 0 && here < CPU_SETSIZE && sched_getaffinity(0, sizeof start->allowed, &start->allowed) == 0) {
        cpu_set_t others = start->allowed;
        CPU_CLR(here, &others);
        if (CPU_COUNT(&others) > 0 && pthread_attr_setaffinity_np(&start->attributes, sizeof others, &others) == 0)
            start->elsewhere = CPU_COUNT(&others);
    }
#endif
}

static inline void *ags1_started(void *argument)
{
    ags1_start *start = (ags1_start *)argument;
#ifdef AGS1_CAN_CHOOSE_PROCESSORS
    if (start->elsewhere)
        sched_setaffinity(0, sizeof start->allowed, &start->allowed);
#endif
    return start->work(start->job);
}

/* Start one thread, which blocks all signals: 0 if the system has none. `start` stays where it is while the thread runs.
 * After `earlier` others that begin elsewhere, one may begin on the caller's processor: there is room for no more. */
static inline int ags1_start_thread(ags1_start *start, pthread_t *thread, int earlier)
{
    sigset_t all, before;
    int status;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    status = pthread_create(thread, earlier < start->elsewhere ? &start->attributes : NULL, ags1_started, start);
    if (status != 0 && earlier < start->elsewhere)
        /* The processors of this process may have been changed in between. */
        status = pthread_create(thread, NULL, ags1_started, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status == 0;
}

typedef struct {
    pthread_t members[AGS1_MAX_CREW];
    int count;
    ags1_start start;
} ags1_crew;

static inline void ags1_start_crew(ags1_crew *crew, ags1_work work, void *job, int members)
{
    crew->count = 0;
    if (members <= 0)
        return;
    if (members > AGS1_MAX_CREW)
        members = AGS1_MAX_CREW;
    ags1_start_init(&crew->start, work, job);
    while (crew->count < members && ags1_start_thread(&crew->start, &crew->members[crew->count], crew->count))
        crew->count++;
    pthread_attr_destroy(&crew->start.attributes);
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

/* A thread that does one task after the other, in the order in which they were given, behind the back of its owner.
 *
 *     owner    ---- give(1) --- give(2) ------ await(1) ------ give(3) --- ... --- dismiss
 *                    \\                                                              |
 *     thread          ---- 1 ------- 2 ------- sleeps --------- 3 ------ sleeps ------ ends
 *
 * Linux wakes a sleeping thread on an idle processor, while a new one may wait behind the one that began it. But a
 * thousand idle owners should not keep a thousand threads: one that has had nothing to do for a while ends, and the next
 * task starts another. A forked child has no such thread, and must not touch the helper of its parent.
 */
typedef struct ags1_task {
    ags1_work work;
    void *job;
    struct ags1_task *next;
    int under_way;
} ags1_task;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    ags1_start start;
    ags1_task *first; /* the one being done, and those that wait */
    ags1_task *last;
    int is_busy; /* the first is being done */
    int exists; /* the thread must be joined */
    int ends;   /* the thread takes no more tasks */
} ags1_helper;

enum { AGS1_LINGER_NANOSECONDS = 20000000 };

static inline void ags1_helper_init(ags1_helper *helper)
{
    pthread_mutex_init(&helper->lock, NULL);
    pthread_cond_init(&helper->changed, NULL);
    helper->first = helper->last = NULL;
    helper->is_busy = helper->exists = helper->ends = 0;
}

static inline void *ags1_helper_thread(void *argument)
{
    ags1_helper *helper = (ags1_helper *)argument;
    struct timespec until;
    int timed_out = 0;
    pthread_mutex_lock(&helper->lock);
    while (helper->first != NULL || !helper->ends) {
        if (helper->first != NULL) {
            ags1_task *task = helper->first;
            helper->is_busy = 1;
            pthread_mutex_unlock(&helper->lock);
            task->work(task->job);
            pthread_mutex_lock(&helper->lock);
            helper->is_busy = 0;
            helper->first = task->next;
            task->under_way = 0;
            timed_out = 0;
            pthread_cond_broadcast(&helper->changed);
        } else if (timed_out) {
            helper->ends = 1;
        } else {
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_sec += (until.tv_nsec + AGS1_LINGER_NANOSECONDS) / 1000000000;
            until.tv_nsec = (until.tv_nsec + AGS1_LINGER_NANOSECONDS) % 1000000000;
            timed_out = pthread_cond_timedwait(&helper->changed, &helper->lock, &until) != 0;
        }
    }
    pthread_mutex_unlock(&helper->lock);
    return NULL;
}

/* End the thread, when it has done what it was given. */
static inline void ags1_dismiss(ags1_helper *helper)
{
    if (!helper->exists)
        return;
    pthread_mutex_lock(&helper->lock);
    helper->ends = 1;
    pthread_cond_broadcast(&helper->changed);
    pthread_mutex_unlock(&helper->lock);
    pthread_join(helper->thread, NULL);
    helper->exists = helper->ends = 0;
}

/* Have the thread do a task, which stays where it is until it is done: 0 if the system has no thread. One owner at a time. */
static inline int ags1_give(ags1_helper *helper, ags1_task *task)
{
    int is_taken;
    task->next = NULL;
    task->under_way = 1;
    pthread_mutex_lock(&helper->lock);
    is_taken = helper->exists && !helper->ends;
    if (is_taken) {
        if (helper->first == NULL)
            helper->first = task;
        else
            helper->last->next = task;
        helper->last = task;
        pthread_cond_broadcast(&helper->changed);
    }
    pthread_mutex_unlock(&helper->lock);
    if (is_taken)
        return 1;
    ags1_dismiss(helper);
    helper->first = helper->last = task;
    ags1_start_init(&helper->start, ags1_helper_thread, helper);
    helper->exists = ags1_start_thread(&helper->start, &helper->thread, 0);
    pthread_attr_destroy(&helper->start.attributes);
    if (!helper->exists) {
        helper->first = helper->last = NULL;
        task->under_way = 0;
    }
    return helper->exists;
}

/* Whether a task waits that is not begun. */
static inline int ags1_is_late(ags1_helper *helper)
{
    int is_late;
    pthread_mutex_lock(&helper->lock);
    is_late = helper->first != NULL && helper->first->next != NULL;
    pthread_mutex_unlock(&helper->lock);
    return is_late;
}

/* Take back a task that was given: 0 if it is begun or done. Then the owner may do it. */
static inline int ags1_take_back(ags1_helper *helper, ags1_task *task)
{
    ags1_task *before = NULL;
    int is_taken;
    pthread_mutex_lock(&helper->lock);
    is_taken = task->under_way && !(helper->is_busy && helper->first == task);
    if (is_taken) {
        if (helper->first == task) {
            helper->first = task->next;
        } else {
            for (before = helper->first; before->next != task; before = before->next)
                continue;
            before->next = task->next;
        }
        if (helper->last == task)
            helper->last = before;
        task->under_way = 0;
    }
    pthread_mutex_unlock(&helper->lock);
    return is_taken;
}

/* Whether a task that was given is neither done nor taken back. */
static inline int ags1_is_under_way(ags1_helper *helper, ags1_task *task)
{
    int is_under_way;
    pthread_mutex_lock(&helper->lock);
    is_under_way = task->under_way;
    pthread_mutex_unlock(&helper->lock);
    return is_under_way;
}

/* Return when a task that was given is done. */
static inline void ags1_await(ags1_helper *helper, ags1_task *task)
{
    pthread_mutex_lock(&helper->lock);
    while (task->under_way)
        pthread_cond_wait(&helper->changed, &helper->lock);
    pthread_mutex_unlock(&helper->lock);
}

/* The counter from which members take their shares. */
static inline int64_t ags1_take(int64_t *counter)
{
    return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* A share of work that is `total` long, from `*next` on: large at first, as one that begins costs, and small at the end,
 * where a member that has no more waits for the last one. Returns where it begins, `total` if nothing is left. */
static inline int64_t ags1_take_share(int64_t *next, int64_t total, int64_t smallest, int members, int64_t *end)
{
    int64_t start = __atomic_load_n(next, __ATOMIC_RELAXED), share;
    do {
        share = (total - start) / (4 * members);
        if (share < smallest)
            share = smallest;
        if (share > total - start)
            share = total - start;
    } while (share > 0 && !__atomic_compare_exchange_n(next, &start, start + share, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    *end = start + share;
    return start;
}

/* What a member adds to a sum of the crew's. */
static inline void ags1_add(int64_t *sum, int64_t value)
{
    __atomic_fetch_add(sum, value, __ATOMIC_RELAXED);
}

/* The first failure of a job, by position: the earliest one in the data wins, so the same damage gives the
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
