/* The floors: what the same work costs in plain C on this machine, with the same libcrypto, at this moment.
 *
 * Compiled once for OpenSSL, and once (AGS1_BORINGSSL) for BoringSSL, which gets its random bytes from the other.
 *
 *   floors_seal, floors_open     memory to memory, t threads, one keyed context a thread, re-nonced a block
 *   floors_many                  a batch of small items, one behind the other, into one fresh arena
 *   floors_file                  pread, cipher in place, pwrite
 *   floors_read_stream, _write_stream   in pieces, through a ring of blocks (streams.h)
 *   floors_read_blocks           one block read (pread or memory) and opened for every offset
 *   floors_copy, floors_touch    memcpy, and the cost of fresh memory
 *
 * The best loops that we know on this libcrypto, with nothing left out that the format asks for (nonces from OpenSSL's
 * DRBG, a 4-byte AAD a block, every tag made or checked). A peer that is faster shows that they are not. Their threads are
 * started as those of ags1 are: where they begin makes more of a difference than all else. Output is AGS1, so ags1
 * itself can prove that the floor did the work. Functions return 0, or a positive number that names the step that
 * failed. AES-256 only. Linux and macOS.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ags1/core/pieces.h>
#include <ags1/core/workers.h>
#include <openssl/evp.h>
#ifdef AGS1_BORINGSSL
/* BoringSSL has no EVP calls that end in 2; and as in ags1, it gets a message in one call. */
#define EVP_CipherInit_ex2(context, cipher, key, iv, encrypt, params) EVP_CipherInit_ex(context, cipher, NULL, key, iv, encrypt)
#define EVP_EncryptInit_ex2(context, cipher, key, iv, params) EVP_CipherInit_ex(context, cipher, NULL, key, iv, -1)
#define EVP_DecryptInit_ex2 EVP_EncryptInit_ex2
#define EVP_CIPHER_fetch(context, name, properties) EVP_aes_256_gcm()
#define RAND_bytes random_bytes
#define AGS1_ONE_CALL
int EVP_has_aes_hardware(void);
static int (*random_bytes)(unsigned char *, int);
#else
#include <openssl/crypto.h>
#include <openssl/rand.h>
#endif

#define API __attribute__((visibility("default")))
#define HEADER 8
#define NONCE 12
#define TAG 16
#define OVERHEAD (NONCE + TAG)
/* Blocks that one RAND_bytes draws nonces for; as many as fit an int's worth of bytes would be no faster. */
#define NONCE_WINDOW (1 << 20)
/* What a thread takes from the counter at once, in bytes of plaintext. */
#define SHARE (1 << 20)

enum { OK = 0, NO_MEMORY = 1, NO_CIPHER = 2, NO_RANDOM = 3, BAD_CIPHER = 4, BAD_TAG = 5, BAD_READ = 6, BAD_WRITE = 7, BAD_OPEN = 8 };
enum { SEAL_BY_IPSEC_MB = 2 };

static const EVP_CIPHER *cipher;
static int splits;

#ifdef AGS1_BORINGSSL
API const char *floors_library(void) { return "BoringSSL"; }

API void floors_draw_from(int (*other)(unsigned char *, int)) { random_bytes = other; }
#else
API const char *floors_library(void) { return OpenSSL_version(OPENSSL_VERSION); }

API int floors_random_bytes(unsigned char *out, int length) { return RAND_bytes(out, length); }
#endif

API int floors_init(void)
{
#ifdef AGS1_BORINGSSL
    EVP_has_aes_hardware();
#endif
    if (cipher == NULL)
        cipher = EVP_CIPHER_fetch(NULL, "AES-256-GCM", NULL);
    splits = ags1_splits_messages();
    return cipher == NULL ? NO_CIPHER : OK;
}

static void store_le32(uint8_t *out, uint32_t value)
{
    out[0] = (uint8_t)value;
    out[1] = (uint8_t)(value >> 8);
    out[2] = (uint8_t)(value >> 16);
    out[3] = (uint8_t)(value >> 24);
}

static void write_header(uint8_t *out, int64_t block_length)
{
    memcpy(out, "AGS1", 4);
    store_le32(out + 4, (uint32_t)block_length);
}

/* In the pieces that are the fastest known: one call over a whole message hid twice what that costs. With
 * AGS1_ONE_CALL it is one call, which shows what the pieces are worth. */
static int update(EVP_CIPHER_CTX *context, uint8_t *out, const uint8_t *data, int length)
{
    int done, piece;
    for (int at = 0; at < length; at += piece) {
#ifdef AGS1_ONE_CALL
        piece = length;
#else
        piece = (int)ags1_next_piece(length - at, at == 0, splits);
#endif
        if (EVP_CipherUpdate(context, out + at, &done, data + at, piece) != 1)
            return BAD_CIPHER;
    }
    return OK;
}

static int seal(EVP_CIPHER_CTX *context, uint32_t index, const uint8_t *data, int length, uint8_t *out)
{
    uint8_t aad[4];
    int done;
    store_le32(aad, index);
    if (EVP_EncryptInit_ex2(context, NULL, NULL, out, NULL) != 1 ||
        EVP_EncryptUpdate(context, NULL, &done, aad, 4) != 1 ||
        update(context, out + NONCE, data, length) != OK ||
        EVP_EncryptFinal_ex(context, out + NONCE + length, &done) != 1 ||
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, TAG, out + NONCE + length) != 1)
        return BAD_CIPHER;
    return OK;
}

static int open_(EVP_CIPHER_CTX *context, uint32_t index, const uint8_t *block, int length, uint8_t *out)
{
    uint8_t aad[4], rest[16];
    int done;
    store_le32(aad, index);
    if (EVP_DecryptInit_ex2(context, NULL, NULL, block, NULL) != 1 ||
        EVP_DecryptUpdate(context, NULL, &done, aad, 4) != 1 ||
        update(context, out, block + NONCE, length) != OK ||
        EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, TAG, (void *)(block + NONCE + length)) != 1)
        return BAD_CIPHER;
    return EVP_DecryptFinal_ex(context, rest, &done) == 1 ? OK : BAD_TAG;
}

static EVP_CIPHER_CTX *keyed(const uint8_t *key, int encrypt)
{
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    if (context != NULL && EVP_CipherInit_ex2(context, cipher, key, NULL, encrypt, NULL) != 1) {
        EVP_CIPHER_CTX_free(context);
        return NULL;
    }
    return context;
}

static int64_t take(int64_t *counter, int64_t share) { return __atomic_fetch_add(counter, share, __ATOMIC_RELAXED); }

static void fail(int *status, int what) { __atomic_store_n(status, what, __ATOMIC_RELAXED); }

static int random_nonces(uint8_t *out, int64_t count)
{
    for (int64_t done = 0; done < count; done += NONCE_WINDOW) {
        int64_t some = count - done < NONCE_WINDOW ? count - done : NONCE_WINDOW;
        if (RAND_bytes(out + done * NONCE, (int)(some * NONCE)) != 1)
            return NO_RANDOM;
    }
    return OK;
}

/* Memory to memory */

typedef struct {
    const uint8_t *data;
    uint8_t *out;
    int64_t length, block_length, count, share, next;
    const uint8_t *key;
    const uint8_t *nonces;
    int encrypt, status;
} Memory;

static void *memory_work(void *argument)
{
    Memory *job = argument;
    int64_t stride = job->block_length + OVERHEAD, first, last;
    EVP_CIPHER_CTX *context = keyed(job->key, job->encrypt);
    int status = context == NULL ? NO_CIPHER : OK;
    while (status == OK && (first = take(&job->next, job->share)) < job->count) {
        last = first + job->share < job->count ? first + job->share : job->count;
        for (int64_t i = first; i < last && status == OK; i++) {
            int64_t offset = i * job->block_length;
            int length = (int)(job->length - offset < job->block_length ? job->length - offset : job->block_length);
            if (!job->encrypt) {
                status = open_(context, (uint32_t)i, job->data + i * stride, length, job->out + offset);
                continue;
            }
            uint8_t *block = job->out + i * stride;
            memcpy(block, job->nonces + i * NONCE, NONCE);
            status = seal(context, (uint32_t)i, job->data + offset, length, block);
        }
    }
    if (status != OK)
        fail(&job->status, status);
    EVP_CIPHER_CTX_free(context);
    return NULL;
}

static int64_t blocks_of(int64_t length, int64_t block_length)
{
    int64_t count = (length + block_length - 1) / block_length;
    return count ? count : 1;
}

static int64_t share_of(int64_t block_length) { return block_length < SHARE ? SHARE / block_length : 1; }

/* Seal `length` bytes into an AGS1 stream at `out`. */
API int floors_seal(const uint8_t *data, int64_t length, uint8_t *out, int64_t block_length, const uint8_t *key,
                    int threads)
{
    Memory job = {data, out + HEADER, length, block_length, blocks_of(length, block_length), share_of(block_length),
                  0, key, NULL, 1, OK};
    uint8_t *drawn = malloc((size_t)(job.count * NONCE));
    if (drawn == NULL)
        return NO_MEMORY;
    write_header(out, block_length);
    job.status = random_nonces(drawn, job.count);
    job.nonces = drawn;
    if (job.status == OK)
        ags1_run_crew(memory_work, &job, threads);
    free(drawn);
    return job.status;
}

/* Open an AGS1 stream that holds `length` bytes of plaintext. */
API int floors_open(const uint8_t *stream, int64_t length, uint8_t *out, int64_t block_length, const uint8_t *key,
                    int threads)
{
    Memory job = {stream + HEADER, out, length, block_length, blocks_of(length, block_length), share_of(block_length),
                  0, key, NULL, 0, OK};
    ags1_run_crew(memory_work, &job, threads);
    return job.status;
}

/* A batch: items of one block at most, one behind the other. `offsets` has one entry more than there are items. */

typedef struct {
    const uint8_t *data;
    const int64_t *offsets;
    int64_t *out_offsets;
    int64_t count, share, next;
    uint8_t *out;
    const uint8_t *key, *nonces;
    int64_t block_length;
    int encrypt, status;
} Batch;

static void *batch_work(void *argument)
{
    Batch *job = argument;
    int64_t first;
    EVP_CIPHER_CTX *context = keyed(job->key, job->encrypt);
    int status = context == NULL ? NO_CIPHER : OK;
    while (status == OK && (first = take(&job->next, job->share)) < job->count) {
        int64_t last = first + job->share < job->count ? first + job->share : job->count;
        for (int64_t i = first; i < last && status == OK; i++) {
            const uint8_t *item = job->data + job->offsets[i];
            int length = (int)(job->offsets[i + 1] - job->offsets[i]);
            uint8_t *result = job->out + job->out_offsets[i];
            if (job->encrypt) {
                write_header(result, job->block_length);
                memcpy(result + HEADER, job->nonces + i * NONCE, NONCE);
                status = seal(context, 0, item, length, result + HEADER);
            } else {
                status = open_(context, 0, item + HEADER, length - HEADER - OVERHEAD, result);
            }
        }
    }
    if (status != OK)
        fail(&job->status, status);
    EVP_CIPHER_CTX_free(context);
    return NULL;
}

#if defined(AGS1_IPSEC_MB) && __has_include(<intel-ipsec-mb.h>)
#include <intel-ipsec-mb.h>

API int floors_has_ipsec_mb(void) { return 1; }

/* The same by Intel's library: no context is set up for an item. What OpenSSL's EVP does not reach with small ones. */
static void *batch_work_ipsec_mb(void *argument)
{
    Batch *job = argument;
    int64_t first;
    const uint8_t aad[4] = {0};
    struct gcm_key_data key;
    struct gcm_context_data context;
    IMB_MGR *manager = alloc_mb_mgr(0);
    if (manager == NULL) {
        fail(&job->status, NO_CIPHER);
        return NULL;
    }
    init_mb_mgr_auto(manager, NULL);
    IMB_AES256_GCM_PRE(manager, job->key, &key);
    while ((first = take(&job->next, job->share)) < job->count) {
        int64_t last = first + job->share < job->count ? first + job->share : job->count;
        for (int64_t i = first; i < last; i++) {
            uint64_t length = (uint64_t)(job->offsets[i + 1] - job->offsets[i]);
            uint8_t *result = job->out + job->out_offsets[i], *nonce = result + HEADER, *sealed = nonce + NONCE;
            write_header(result, job->block_length);
            memcpy(nonce, job->nonces + i * NONCE, NONCE);
            IMB_AES256_GCM_ENC(manager, &key, &context, sealed, job->data + job->offsets[i], length, nonce, aad,
                               sizeof aad, sealed + length, TAG);
        }
    }
    free_mb_mgr(manager);
    return NULL;
}
#else
API int floors_has_ipsec_mb(void) { return 0; }
#define batch_work_ipsec_mb batch_work
#endif

static void *fresh(int64_t length, int huge)
{
    void *memory = mmap(NULL, (size_t)length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (huge)
        madvise(memory, (size_t)length, MADV_HUGEPAGE);
#else
    (void)huge;
#endif
    return memory;
}

/* Seal each item into a stream of its own, or open each stream, in a fresh arena that is given back at the end; or in
 * `arena` if that is not NULL. `encrypt` is SEAL_BY_IPSEC_MB for that library. */
API int floors_many(const uint8_t *data, const int64_t *offsets, int64_t count, uint8_t *arena, int64_t block_length,
                    const uint8_t *key, int threads, int encrypt)
{
    Batch job = {data, offsets, NULL, count, 0, 0, arena, key, NULL, block_length, encrypt, OK};
    int64_t total = 0;
    int64_t *out_offsets = malloc((size_t)(count + 1) * sizeof(int64_t));
    uint8_t *nonces = encrypt ? malloc((size_t)count * NONCE) : NULL;
    if (out_offsets == NULL || (encrypt && nonces == NULL)) {
        free(out_offsets);
        free(nonces);
        return NO_MEMORY;
    }
    for (int64_t i = 0; i < count; i++) {
        out_offsets[i] = total;
        total += offsets[i + 1] - offsets[i] + (encrypt ? HEADER + OVERHEAD : -HEADER - OVERHEAD);
    }
    out_offsets[count] = total;
    if (arena == NULL)
        job.out = fresh(total, 1);
    job.out_offsets = out_offsets;
    job.nonces = nonces;
    job.share = count / (16 * threads) + 1;
    job.status = job.out == NULL ? NO_MEMORY : encrypt ? random_nonces(nonces, count) : OK;
    if (job.status == OK)
        ags1_run_crew(encrypt == SEAL_BY_IPSEC_MB ? batch_work_ipsec_mb : batch_work, &job, threads);
    if (arena == NULL && job.out != NULL)
        munmap(job.out, (size_t)total);
    free(out_offsets);
    free(nonces);
    return job.status;
}

/* Files */

typedef struct {
    int source, target, encrypt, status;
    int64_t length, block_length, count, share, next;
    const uint8_t *key, *nonces;
} File;

static int read_all(int descriptor, uint8_t *out, int64_t length, int64_t offset)
{
    while (length > 0) {
        ssize_t done = pread(descriptor, out, (size_t)length, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return BAD_READ;
        out += done;
        offset += done;
        length -= done;
    }
    return OK;
}

static int write_all(int descriptor, const uint8_t *data, int64_t length, int64_t offset)
{
    while (length > 0) {
        ssize_t done = pwrite(descriptor, data, (size_t)length, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return BAD_WRITE;
        data += done;
        offset += done;
        length -= done;
    }
    return OK;
}

/* One block at a time: read it, convert it where it lies, write it. For blocks of about a mebibyte. */
static void *file_work(void *argument)
{
    File *job = argument;
    int64_t stride = job->block_length + OVERHEAD, i;
    EVP_CIPHER_CTX *context = keyed(job->key, job->encrypt);
    uint8_t *block = malloc((size_t)stride);
    int status = context == NULL ? NO_CIPHER : block == NULL ? NO_MEMORY : OK;
    while (status == OK && (i = take(&job->next, 1)) < job->count) {
        int64_t offset = i * job->block_length;
        int length = (int)(job->length - offset < job->block_length ? job->length - offset : job->block_length);
        if (job->encrypt) {
            memcpy(block, job->nonces + i * NONCE, NONCE);
            if ((status = read_all(job->source, block + NONCE, length, offset)) == OK &&
                (status = seal(context, (uint32_t)i, block + NONCE, length, block)) == OK)
                status = write_all(job->target, block, length + OVERHEAD, HEADER + i * stride);
        } else if ((status = read_all(job->source, block, length + OVERHEAD, HEADER + i * stride)) == OK &&
                   (status = open_(context, (uint32_t)i, block, length, block + NONCE)) == OK)
            status = write_all(job->target, block + NONCE, length, offset);
    }
    if (status != OK)
        fail(&job->status, status);
    free(block);
    EVP_CIPHER_CTX_free(context);
    return NULL;
}

/* Seal or open a whole file; `length` is its plaintext. The target is created. */
API int floors_file(const char *source, const char *target, int64_t length, int64_t block_length, const uint8_t *key,
                    int threads, int encrypt)
{
    File job = {-1, -1, encrypt, OK, length, block_length, blocks_of(length, block_length), 1, 0, key, NULL};
    uint8_t header[HEADER];
    uint8_t *nonces = NULL;
    job.source = open(source, O_RDONLY | O_CLOEXEC);
    job.target = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (job.source < 0 || job.target < 0)
        job.status = BAD_OPEN;
    if (job.status == OK && encrypt) {
        nonces = malloc((size_t)(job.count * NONCE));
        job.status = nonces == NULL ? NO_MEMORY : random_nonces(nonces, job.count);
        job.nonces = nonces;
        write_header(header, block_length);
        if (job.status == OK)
            job.status = write_all(job.target, header, HEADER, 0);
    }
    if (job.status == OK)
        ags1_run_crew(file_work, &job, threads);
    free(nonces);
    if (job.source >= 0)
        close(job.source);
    if (job.target >= 0 && close(job.target) != 0 && job.status == OK)
        job.status = BAD_WRITE;
    return job.status;
}

/* For each plaintext offset, read the block that it lies in, open it, and copy `size` bytes (which must lie in that
 * block) to `out`. From `descriptor`, or from `stream` if that is not NULL. */
API int floors_read_blocks(int descriptor, const uint8_t *stream, const int64_t *offsets, int64_t count, int64_t size,
                           uint8_t *out, int64_t length, int64_t block_length, const uint8_t *key)
{
    int64_t stride = block_length + OVERHEAD;
    EVP_CIPHER_CTX *context = keyed(key, 0);
    uint8_t *block = malloc((size_t)stride);
    int status = context == NULL ? NO_CIPHER : block == NULL ? NO_MEMORY : OK;
    for (int64_t n = 0; n < count && status == OK; n++) {
        int64_t i = offsets[n] / block_length, within = offsets[n] % block_length;
        int64_t rest = length - i * block_length;
        int plain = (int)(rest < block_length ? rest : block_length);
        const uint8_t *source = block;
        if (stream != NULL)
            source = stream + HEADER + i * stride;
        else
            status = read_all(descriptor, block, plain + OVERHEAD, HEADER + i * stride);
        if (status == OK && (status = open_(context, (uint32_t)i, source, plain, block + NONCE)) == OK)
            memcpy(out, block + NONCE + within, (size_t)size);
    }
    free(block);
    EVP_CIPHER_CTX_free(context);
    return status;
}

#include "streams.h"

/* Memory */

API void floors_copy(uint8_t *out, const uint8_t *data, int64_t length) { memcpy(out, data, (size_t)length); }

typedef struct {
    uint8_t *memory;
    int64_t length, next;
} Touch;

static void *touch_work(void *argument)
{
    Touch *job = argument;
    int64_t first;
    while ((first = take(&job->next, 4 * SHARE)) < job->length)
        for (int64_t i = first; i < first + 4 * SHARE && i < job->length; i += 4096)
            ((volatile uint8_t *)job->memory)[i] = 1;
    return NULL;
}

/* Get fresh memory from the system, touch every page of it, give it back. */
API int floors_touch(int64_t length, int huge, int threads)
{
    Touch job = {fresh(length, huge), length, 0};
    if (job.memory == NULL)
        return NO_MEMORY;
    ags1_run_crew(touch_work, &job, threads);
    munmap(job.memory, (size_t)length);
    return OK;
}
