/* A line in which the members of a crew wait until it is their turn, so that what each adds to a file follows what
 * the member before it added, although that length was not known before.
 *
 *     at = ags1_turnstile_enter(&line, ticket, length, &failure)    waits for ticket - 1, takes `length` from the line's end
 *
 * Tickets are taken in ascending order from one counter, so a member that waits waits for one that works. A member that
 * gives up calls ags1_turnstile_break first.
 */
#ifndef AGS1_ORDERED_H
#define AGS1_ORDERED_H

#include <pthread.h>
#include <stdint.h>

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int64_t turn;
    int64_t end;
    int broken;
} ags1_turnstile;

static inline void ags1_turnstile_init(ags1_turnstile *line, int64_t end)
{
    pthread_mutex_init(&line->lock, NULL);
    pthread_cond_init(&line->moved, NULL);
    line->turn = 0;
    line->end = end;
    line->broken = 0;
}

static inline void ags1_turnstile_destroy(ags1_turnstile *line)
{
    pthread_cond_destroy(&line->moved);
    pthread_mutex_destroy(&line->lock);
}

/* Where the ticket's bytes go; -1 when the line is broken. */
static inline int64_t ags1_turnstile_enter(ags1_turnstile *line, int64_t ticket, int64_t length)
{
    int64_t at = -1;
    pthread_mutex_lock(&line->lock);
    while (line->turn != ticket && !line->broken)
        pthread_cond_wait(&line->moved, &line->lock);
    if (!line->broken) {
        at = line->end;
        line->end += length;
        line->turn = ticket + 1;
        pthread_cond_broadcast(&line->moved);
    }
    pthread_mutex_unlock(&line->lock);
    return at;
}

static inline void ags1_turnstile_break(ags1_turnstile *line)
{
    pthread_mutex_lock(&line->lock);
    line->broken = 1;
    pthread_cond_broadcast(&line->moved);
    pthread_mutex_unlock(&line->lock);
}

#endif
