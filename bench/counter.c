/* Asks callgrind to count what all threads do between two calls, and to write it down under a name. */
#include <valgrind/callgrind.h>

void counter_begin(void)
{
    CALLGRIND_START_INSTRUMENTATION;
    CALLGRIND_ZERO_STATS;
}

void counter_end(const char *name)
{
    CALLGRIND_DUMP_STATS_AT(name);
    CALLGRIND_STOP_INSTRUMENTATION;
}
