/* Which process this is, among those that were forked one from another: a number that costs no system call.
 *
 * A forked child does not have the threads of its parent, and must not wait for them. Each module that includes this
 * counts on its own, from its import on: ags1_count_forks().
 */
#ifndef AGS1_FORKS_H
#define AGS1_FORKS_H

#include <pthread.h>
#include <stdint.h>

static int64_t ags1_fork_count;

static void ags1_forked(void)
{
    ags1_fork_count++;
}

/* Begin to count: not 0 if there is no memory for it. */
static inline int ags1_count_forks(void)
{
    return pthread_atfork(NULL, NULL, ags1_forked);
}

static inline int64_t ags1_process(void)
{
    return ags1_fork_count;
}

#endif
