/* The floors of streams, a part of floors.c: a file is opened, or sealed, in pieces through a ring of blocks.
 *
 *   floors_read_stream     threads - 1 others pread blocks into the ring and open them there; the caller copies pieces
 *                          out of it, and opens a block itself whenever the one that it needs is not ready
 *   floors_write_stream    the caller copies pieces into the ring; the others seal and pwrite full blocks, and the caller
 *                          does so itself whenever the ring is full
 *
 *   floors_read_pipe       read, open, hand over; one thread
 *   floors_write_pipe      copy pieces into a block, seal it, write it; one thread
 *
 * With one thread the ring is one block. What the caller wants a whole block of is opened where the caller wants it,
 * also by the others, if nobody has begun it before.
 */
#include <sys/uio.h>

enum { RING_SLOTS = 4, MOST_SLOTS = 64, FREE = 0, TAKEN = 1, READY = 2 };

typedef struct {
    int file, slots, ends, status;
    int64_t length, block_length, count;
    const uint8_t *key, *nonces;
    uint8_t *memory;
    int state[MOST_SLOTS];
    uint8_t *apart[MOST_SLOTS]; /* reading: where the block is, if not in the ring */
    uint8_t *wanted;            /* reading: the caller wants these bytes here */
    int64_t wanted_begin, wanted_end;
    int64_t next; /* the first block that nobody has taken */
    int64_t done; /* blocks that are read (or are written) up to here: their slots are free */
    int64_t given; /* writing: blocks that are full */
    int waiting;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} Ring;

static uint8_t *slot_of(Ring *ring, int64_t i) { return ring->memory + (i % ring->slots) * (ring->block_length + 4096) + 64; }

static int length_of(const Ring *ring, int64_t i)
{
    int64_t rest = ring->length - i * ring->block_length;
    return (int)(rest < ring->block_length ? rest : ring->block_length);
}

static int ring_init(Ring *ring, int threads)
{
    ring->slots = threads > 1 ? RING_SLOTS * threads : 1;
    if (ring->slots > MOST_SLOTS)
        ring->slots = MOST_SLOTS;
    pthread_mutex_init(&ring->lock, NULL);
    pthread_cond_init(&ring->changed, NULL);
    if (posix_memalign((void **)&ring->memory, 4096, (size_t)(ring->slots * (ring->block_length + 4096))))
        ring->memory = NULL;
    return ring->memory == NULL ? NO_MEMORY : OK;
}

static void ring_wait(Ring *ring)
{
    ring->waiting++;
    pthread_cond_wait(&ring->changed, &ring->lock);
    ring->waiting--;
}

static void ring_wake(Ring *ring)
{
    if (ring->waiting)
        pthread_cond_broadcast(&ring->changed);
}

static int ring_open(Ring *ring, EVP_CIPHER_CTX *context, int64_t i)
{
    int length = length_of(ring, i);
    uint8_t *block = slot_of(ring, i);
    int status = read_all(ring->file, block, length + OVERHEAD, HEADER + i * (ring->block_length + OVERHEAD));
    return status == OK ? open_(context, (uint32_t)i, block, length, block + NONCE) : status;
}

/* The same, into other memory. */
static int open_apart(Ring *ring, EVP_CIPHER_CTX *context, int64_t i, uint8_t *out)
{
    uint8_t nonce[NONCE], tag[TAG], aad[4], rest[16];
    int length = length_of(ring, i), done;
    struct iovec parts[3] = {{nonce, NONCE}, {out, (size_t)length}, {tag, TAG}};
    if (preadv(ring->file, parts, 3, HEADER + i * (ring->block_length + OVERHEAD)) != length + OVERHEAD)
        return BAD_READ;
    store_le32(aad, (uint32_t)i);
    if (EVP_DecryptInit_ex2(context, NULL, NULL, nonce, NULL) != 1 ||
        EVP_DecryptUpdate(context, NULL, &done, aad, 4) != 1 || update(context, out, out, length) != OK ||
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, TAG, tag) != 1)
        return BAD_CIPHER;
    return EVP_DecryptFinal_ex(context, rest, &done) == 1 ? OK : BAD_TAG;
}

static int ring_seal(Ring *ring, EVP_CIPHER_CTX *context, int64_t i)
{
    int length = length_of(ring, i), status;
    uint8_t *block = slot_of(ring, i);
    memcpy(block, ring->nonces + i * NONCE, NONCE);
    status = seal(context, (uint32_t)i, block + NONCE, length, block);
    return status == OK ? write_all(ring->file, block, length + OVERHEAD, HEADER + i * (ring->block_length + OVERHEAD)) : status;
}

/* With the lock held: take the next block if its slot is free, work on it, and say so. */
static int ring_step(Ring *ring, EVP_CIPHER_CTX *context, int writes)
{
    int64_t i = ring->next, begin = i * ring->block_length;
    uint8_t *apart = NULL;
    int status;
    if (writes ? i >= ring->given : i >= ring->count || i >= ring->done + ring->slots)
        return 0;
    if (ring->wanted != NULL && begin >= ring->wanted_begin && begin + length_of(ring, i) <= ring->wanted_end)
        apart = ring->wanted + (begin - ring->wanted_begin);
    ring->next++;
    ring->state[i % ring->slots] = TAKEN;
    ring->apart[i % ring->slots] = apart;
    pthread_mutex_unlock(&ring->lock);
    status = writes ? ring_seal(ring, context, i)
                    : apart != NULL ? open_apart(ring, context, i, apart) : ring_open(ring, context, i);
    pthread_mutex_lock(&ring->lock);
    if (status != OK)
        ring->status = status;
    ring->state[i % ring->slots] = READY;
    ring_wake(ring);
    return 1;
}

static void *ring_run(Ring *ring, int writes)
{
    EVP_CIPHER_CTX *context = keyed(ring->key, writes);
    pthread_mutex_lock(&ring->lock);
    if (context == NULL)
        ring->status = NO_CIPHER;
    while (ring->status == OK && (!ring->ends || (writes && ring->next < ring->given)))
        if (!ring_step(ring, context, writes))
            ring_wait(ring);
    ring_wake(ring);
    pthread_mutex_unlock(&ring->lock);
    EVP_CIPHER_CTX_free(context);
    return NULL;
}

static void *ring_reads(void *ring) { return ring_run(ring, 0); }
static void *ring_writes(void *ring) { return ring_run(ring, 1); }

static int ring_end(Ring *ring, ags1_crew *crew)
{
    pthread_mutex_lock(&ring->lock);
    ring->ends = 1;
    ring_wake(ring);
    pthread_mutex_unlock(&ring->lock);
    ags1_join_crew(crew);
    free(ring->memory);
    return ring->status;
}

/* Read the whole plaintext of a file in pieces: into `into` again and again, or each into memory of its own. */
API int floors_read_stream(const char *source, int64_t length, int64_t block_length, const uint8_t *key, int threads,
                           int64_t piece, uint8_t *into)
{
    Ring ring = {.file = open(source, O_RDONLY | O_CLOEXEC), .length = length, .block_length = block_length,
                 .count = blocks_of(length, block_length), .key = key};
    EVP_CIPHER_CTX *context = keyed(key, 0);
    ags1_crew crew;
    int64_t block = -1, used = 0; /* the block that is being handed over, and how much of it was */
    if (ring.file < 0 || context == NULL || ring_init(&ring, threads) != OK)
        return BAD_OPEN;
    ags1_start_crew(&crew, ring_reads, &ring, threads - 1);
    for (int64_t at = 0; at < length && ring.status == OK; at += piece) {
        int64_t wanted = length - at < piece ? length - at : piece, got = 0;
        uint8_t *out = into != NULL ? into : malloc((size_t)wanted);
        pthread_mutex_lock(&ring.lock);
        ring.wanted = out;
        ring.wanted_begin = at;
        ring.wanted_end = at + wanted;
        pthread_mutex_unlock(&ring.lock);
        while (got < wanted && ring.status == OK) {
            int64_t i = (at + got) / block_length, some;
            if (block != i) {
                pthread_mutex_lock(&ring.lock);
                while (ring.status == OK && !(ring.next > i && ring.state[i % ring.slots] == READY))
                    if (!ring_step(&ring, context, 0))
                        ring_wait(&ring);
                pthread_mutex_unlock(&ring.lock);
                block = i;
                used = (at + got) % block_length;
            }
            some = length_of(&ring, i) - used < wanted - got ? length_of(&ring, i) - used : wanted - got;
            if (ring.apart[i % ring.slots] == NULL)
                memcpy(out + got, slot_of(&ring, i) + NONCE + used, (size_t)some);
            got += some;
            used += some;
            if (used == length_of(&ring, i)) {
                pthread_mutex_lock(&ring.lock);
                ring.state[i % ring.slots] = FREE;
                ring.done = i + 1;
                ring_wake(&ring);
                pthread_mutex_unlock(&ring.lock);
            }
        }
        pthread_mutex_lock(&ring.lock);
        ring.wanted = NULL;
        pthread_mutex_unlock(&ring.lock);
        if (into == NULL)
            free(out);
    }
    EVP_CIPHER_CTX_free(context);
    close(ring.file);
    return ring_end(&ring, &crew);
}

static int fill(int pipe, uint8_t *out, int64_t length)
{
    while (length > 0) {
        ssize_t done = read(pipe, out, (size_t)length);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return BAD_READ;
        out += done;
        length -= done;
    }
    return OK;
}

static int pour(int pipe, const uint8_t *data, int64_t length)
{
    while (length > 0) {
        ssize_t done = write(pipe, data, (size_t)length);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return BAD_WRITE;
        data += done;
        length -= done;
    }
    return OK;
}

/* Read the whole plaintext of a pipe in pieces, each into memory of its own, on one thread. */
API int floors_read_pipe(int descriptor, int64_t length, int64_t block_length, const uint8_t *key, int64_t piece)
{
    EVP_CIPHER_CTX *context = keyed(key, 0);
    uint8_t *block = malloc((size_t)(block_length + OVERHEAD)), header[HEADER];
    int64_t used = 0, size = 0, i = 0;
    int status = context == NULL ? NO_CIPHER : block == NULL ? NO_MEMORY : fill(descriptor, header, HEADER);
    for (int64_t at = 0; at < length && status == OK; at += piece) {
        int64_t wanted = length - at < piece ? length - at : piece, got = 0;
        uint8_t *out = malloc((size_t)wanted);
        while (got < wanted && status == OK) {
            if (used == size) {
                int64_t rest = length - i * block_length;
                size = rest < block_length ? rest : block_length;
                if ((status = fill(descriptor, block, size + OVERHEAD)) == OK)
                    status = open_(context, (uint32_t)i++, block, (int)size, block + NONCE);
                used = 0;
            }
            int64_t some = size - used < wanted - got ? size - used : wanted - got;
            memcpy(out + got, block + NONCE + used, (size_t)some);
            got += some;
            used += some;
        }
        free(out);
    }
    EVP_CIPHER_CTX_free(context);
    free(block);
    return status;
}

/* Write `length` bytes of memory in pieces as the blocks of a new file. */
API int floors_write_stream(const char *target, const uint8_t *data, int64_t length, int64_t block_length,
                            const uint8_t *key, int threads, int64_t piece)
{
    Ring ring = {.file = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), .length = length,
                 .block_length = block_length, .count = blocks_of(length, block_length), .key = key};
    EVP_CIPHER_CTX *context = keyed(key, 1);
    uint8_t header[HEADER], *nonces = malloc((size_t)(ring.count * NONCE));
    ags1_crew crew;
    if (ring.file < 0 || context == NULL || nonces == NULL || ring_init(&ring, threads) != OK)
        return BAD_OPEN;
    ring.nonces = nonces;
    ring.status = random_nonces(nonces, ring.count);
    write_header(header, block_length);
    if (ring.status == OK)
        ring.status = write_all(ring.file, header, HEADER, 0);
    ags1_start_crew(&crew, ring_writes, &ring, threads - 1);
    for (int64_t at = 0; at < length && ring.status == OK; at += piece) {
        int64_t wanted = length - at < piece ? length - at : piece, got = 0;
        while (got < wanted && ring.status == OK) {
            int64_t i = (at + got) / block_length, used = (at + got) % block_length;
            int64_t some = length_of(&ring, i) - used < wanted - got ? length_of(&ring, i) - used : wanted - got;
            int *state = &ring.state[i % ring.slots];
            if (used == 0) {
                pthread_mutex_lock(&ring.lock);
                while (ring.status == OK && i >= ring.slots && *state != READY)
                    if (!ring_step(&ring, context, 1))
                        ring_wait(&ring);
                *state = FREE;
                pthread_mutex_unlock(&ring.lock);
            }
            memcpy(slot_of(&ring, i) + NONCE + used, data + at + got, (size_t)some);
            got += some;
            if (used + some == length_of(&ring, i)) {
                pthread_mutex_lock(&ring.lock);
                ring.given = i + 1;
                ring_wake(&ring);
                if (threads == 1)
                    ring_step(&ring, context, 1);
                pthread_mutex_unlock(&ring.lock);
            }
        }
    }
    pthread_mutex_lock(&ring.lock);
    while (ring.status == OK && ring_step(&ring, context, 1))
        continue;
    pthread_mutex_unlock(&ring.lock);
    EVP_CIPHER_CTX_free(context);
    int status = ring_end(&ring, &crew);
    free(nonces);
    return close(ring.file) != 0 && status == OK ? BAD_WRITE : status;
}

/* Write `length` bytes of memory in pieces as the blocks of a stream into a pipe, on one thread. */
API int floors_write_pipe(int descriptor, const uint8_t *data, int64_t length, int64_t block_length, const uint8_t *key,
                          int64_t piece)
{
    EVP_CIPHER_CTX *context = keyed(key, 1);
    uint8_t *block = malloc((size_t)(block_length + OVERHEAD)), header[HEADER];
    int64_t used = 0, i = 0;
    int status = context == NULL ? NO_CIPHER : block == NULL ? NO_MEMORY : OK;
    write_header(header, block_length);
    if (status == OK)
        status = pour(descriptor, header, HEADER);
    for (int64_t at = 0; at < length && status == OK; at += piece) {
        int64_t wanted = length - at < piece ? length - at : piece, got = 0;
        while (got < wanted && status == OK) {
            int64_t some = block_length - used < wanted - got ? block_length - used : wanted - got;
            memcpy(block + NONCE + used, data + at + got, (size_t)some);
            got += some;
            used += some;
            if (used == block_length || at + got == length) {
                if ((status = random_nonces(block, 1)) == OK &&
                    (status = seal(context, (uint32_t)i++, block + NONCE, (int)used, block)) == OK)
                    status = pour(descriptor, block, used + OVERHEAD);
                used = 0;
            }
        }
    }
    EVP_CIPHER_CTX_free(context);
    free(block);
    return status;
}
