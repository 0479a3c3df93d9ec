/* Positioned reads and writes that are repeated until they are complete, and after EINTR.
 *
 *     status = ags1_read_at(descriptor, memory, length, offset)
 *
 * Safe to use on one descriptor from many threads: its position is neither used nor moved.
 */
#ifndef AGS1_POSITIONED_H
#define AGS1_POSITIONED_H

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

enum {
    AGS1_IO_OK = 0,
    AGS1_IO_READ = 16,  /* errno says why */
    AGS1_IO_WRITE = 17, /* errno says why */
    AGS1_IO_END = 18    /* the file ended inside the range */
};

static inline int ags1_read_at(int descriptor, uint8_t *memory, int64_t length, int64_t offset)
{
    while (length > 0) {
        ssize_t done = pread(descriptor, memory, (size_t)length, (off_t)offset);
        if (done < 0) {
            if (errno == EINTR)
                continue;
            return AGS1_IO_READ;
        }
        if (done == 0)
            return AGS1_IO_END;
        memory += done;
        offset += done;
        length -= done;
    }
    return AGS1_IO_OK;
}

static inline int ags1_write_at(int descriptor, const uint8_t *memory, int64_t length, int64_t offset)
{
    while (length > 0) {
        ssize_t done = pwrite(descriptor, memory, (size_t)length, (off_t)offset);
        if (done < 0) {
            if (errno == EINTR)
                continue;
            return AGS1_IO_WRITE;
        }
        memory += done;
        offset += done;
        length -= done;
    }
    return AGS1_IO_OK;
}

#endif
