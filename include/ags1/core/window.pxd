# Declarations of ags1.core.window for cimport: the work on consecutive items of a batch, without the GIL.
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t

from ags1.core.items cimport Hold, Span
from ags1.core.layout cimport (
    AGS1_BLOCK_OVERHEAD,
    AGS1_HEADER_LENGTH,
    AGS1_MAX_BLOCK_LENGTH,
    ags1_block_count,
    ags1_plaintext_length,
    ags1_read_header,
)
from ags1.core.workers cimport ags1_crew, ags1_failure

cdef enum:
    CHANGED = 100                # an item is not what it was when it was measured; beside the numbers of GcmStatus
    STACK_AAD = 512              # AADs up to this many bytes are built on a stack

# What stands around the blocks of an item: bytes of the caller's, then AGS1's header. Without the header, the item is
# one GCM message: there is one block, and its number is not in the AAD.
cdef struct Form:
    int64_t lead
    int64_t header               # AGS1_HEADER_LENGTH, or 0

cdef struct Work:
    Form form
    const uint8_t *lead          # sealing: the caller's bytes
    Span items
    Span keys
    Span prefixes
    int64_t first
    int64_t last
    const int64_t *starts        # in the arena, of every item of the batch and of the end
    int64_t mask                 # starts are multiples of mask + 1
    uint8_t *arena
    const int64_t *lengths       # trusted, of every item, -1 for none; or NULL
    int64_t block_length         # sealing
    const uint32_t *units        # sealing: blocks of the window in front of each item; NULL if each has one
    const uint8_t *nonces        # sealing; NULL when opening
    uint8_t *failed              # opening: a byte of each item of the batch, 1 if a tag failed; NULL: the first ends it
    int64_t weight
    int members
    int64_t next_share           # where it begins
    int64_t found                # items that were looked at, over all members
    int64_t blocks               # that they have
    int64_t done                 # that were sealed or opened
    ags1_failure failure


cdef inline int measure_item(
        const Form *form, bint encrypt, const uint8_t *data, int64_t nbytes, int64_t *block_length, int64_t *plain,
        int64_t *size, int64_t *blocks) noexcept nogil:
    """Lengths of an item's plaintext and of its result, and its blocks; not 0 if it cannot be."""
    if encrypt:
        plain[0] = nbytes
        if nbytes <= block_length[0]:
            blocks[0] = 1
        elif form.header == 0 or ags1_block_count(nbytes, block_length[0], blocks):
            return CHANGED
        size[0] = form.lead + form.header + blocks[0] * AGS1_BLOCK_OVERHEAD + nbytes
        return 0
    nbytes -= form.lead
    if form.header == 0:
        block_length[0] = AGS1_MAX_BLOCK_LENGTH
    elif nbytes < AGS1_HEADER_LENGTH or ags1_read_header(data + form.lead, block_length):
        return CHANGED
    plain[0] = nbytes - form.header - AGS1_BLOCK_OVERHEAD
    if 0 <= plain[0] <= block_length[0]:
        blocks[0] = 1
    elif (
        form.header == 0 or ags1_plaintext_length(nbytes, block_length[0], plain)
        or ags1_block_count(plain[0], block_length[0], blocks)
    ):
        return CHANGED
    size[0] = plain[0]
    return 0


# Put the AAD prefix of an item into `aad`, with room for the index of a block: GCM_OK, GCM_NO_MEMORY, CHANGED.
cdef int put_aad(const Work *work, int64_t index, uint8_t **aad, size_t *room, size_t *length) noexcept nogil

cdef class Window:
    cdef Work work
    cdef ags1_crew crew
    cdef bint flying
    cdef bint alone              # one item of very many blocks
    cdef Hold items
    cdef Hold keys
    cdef Hold prefixes
    cdef uint32_t *units
    cdef uint8_t *nonces
    cdef int64_t room            # of nonces
    cdef int start(self, int threads) except -1
    cdef void help(self) noexcept
    cdef int wait(self) except -1
    cdef void let_go(self) noexcept
