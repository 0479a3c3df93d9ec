/* Preloaded: the allocation number `ags1_fail_at`, counted over all threads from the moment it is set, fails; with
 * `ags1_fail_on` every one after it does too. glibc only: its own functions are reached by their second names. */
#include <errno.h>
#include <stddef.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

long ags1_fail_at;
int ags1_fail_on;
long ags1_failed;

static int refused(void)
{
    long left;
    if (__atomic_load_n(&ags1_fail_at, __ATOMIC_RELAXED) <= 0)
        return 0;
    left = __atomic_sub_fetch(&ags1_fail_at, 1, __ATOMIC_RELAXED);
    if (left > 0)
        return 0;
    if (left == 0 && ags1_fail_on)
        __atomic_store_n(&ags1_fail_at, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&ags1_failed, 1, __ATOMIC_RELAXED);
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return refused() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return refused() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
    return refused() ? NULL : __libc_realloc(memory, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (refused())
        return ENOMEM;
    *out = __libc_memalign(alignment, size);
    return *out == NULL ? ENOMEM : 0;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return refused() ? NULL : __libc_memalign(alignment, size);
}
