/* AGS1 layout: sizes and offsets of an AES GCM Stream, as pure arithmetic.
 *
 *   offset 0      4          8                     8 + (B + 28)                     encrypted length
 *          | AGS1 | B (u32) | block 0             | block 1             | ...  | last block |
 *                           | nonce ct(B)     tag | nonce ct(B)     tag |      | nonce ct(1..B) tag |
 *                             12    B         16
 *
 * B is the block length: bytes of plaintext in every block but the last. An empty stream is one block with no
 * ciphertext (36 bytes in all); a plaintext that is an exact multiple of B has no trailing empty block. A block
 * index is a signed 32-bit integer, so a stream has at most 2^31 - 1 blocks: every length below fits an int64_t,
 * and no sum or product in this file can overflow once its arguments have passed the checks.
 *
 * No crypto, no I/O, no allocation, no Python: usable from C and from Cython without the GIL.
 * Source: AES GCM Stream specification, "File structure" and "Cipher Block structure".
 */
#ifndef AGS1_LAYOUT_H
#define AGS1_LAYOUT_H

#include <stdint.h>
#include <string.h>

#define AGS1_MAGIC "AGS1"
#define AGS1_HEADER_LENGTH 8
#define AGS1_NONCE_LENGTH 12
#define AGS1_TAG_LENGTH 16
#define AGS1_BLOCK_OVERHEAD (AGS1_NONCE_LENGTH + AGS1_TAG_LENGTH)
#define AGS1_MIN_ENCRYPTED_LENGTH (AGS1_HEADER_LENGTH + AGS1_BLOCK_OVERHEAD)
#define AGS1_DEFAULT_BLOCK_LENGTH (1 << 20)
#define AGS1_MAX_BLOCK_LENGTH INT32_MAX
#define AGS1_MAX_BLOCKS INT32_MAX

/* What the functions below answer. Zero is success; nothing is written to *out otherwise. */
enum {
    AGS1_LAYOUT_OK = 0,
    AGS1_LAYOUT_BAD_BLOCK_LENGTH = 1, /* not in 1 .. 2^31 - 1 */
    AGS1_LAYOUT_NEGATIVE = 2,         /* a length or an offset below zero */
    AGS1_LAYOUT_TOO_MANY_BLOCKS = 3,  /* more than 2^31 - 1 blocks */
    AGS1_LAYOUT_TOO_SHORT = 4,        /* below 36 bytes: not even one empty block */
    AGS1_LAYOUT_PARTIAL_BLOCK = 5,    /* the last block has fewer bytes than a nonce and a tag */
    AGS1_LAYOUT_TRAILING_BLOCK = 6,   /* an empty block after a full one: no writer makes it */
    AGS1_LAYOUT_NOT_AGS1 = 7,         /* the magic does not match */
    AGS1_LAYOUT_IN_HEADER = 8         /* a ciphertext offset inside the header */
};

static inline int ags1_check_block_length(int64_t block_length)
{
    return block_length >= 1 && block_length <= AGS1_MAX_BLOCK_LENGTH ? AGS1_LAYOUT_OK : AGS1_LAYOUT_BAD_BLOCK_LENGTH;
}

/* Blocks of a stream with this much plaintext; 1 for an empty one. */
static inline int ags1_block_count(int64_t plaintext_length, int64_t block_length, int64_t *out)
{
    int64_t count;
    if (ags1_check_block_length(block_length))
        return AGS1_LAYOUT_BAD_BLOCK_LENGTH;
    if (plaintext_length < 0)
        return AGS1_LAYOUT_NEGATIVE;
    count = plaintext_length / block_length + (plaintext_length % block_length != 0);
    if (count > AGS1_MAX_BLOCKS)
        return AGS1_LAYOUT_TOO_MANY_BLOCKS;
    *out = count ? count : 1;
    return AGS1_LAYOUT_OK;
}

/* Bytes of the whole stream, header included. */
static inline int ags1_encrypted_length(int64_t plaintext_length, int64_t block_length, int64_t *out)
{
    int64_t count;
    int status = ags1_block_count(plaintext_length, block_length, &count);
    if (status)
        return status;
    *out = AGS1_HEADER_LENGTH + count * AGS1_BLOCK_OVERHEAD + plaintext_length;
    return AGS1_LAYOUT_OK;
}

/* Bytes of plaintext in a stream of this length; refuses lengths that no writer produces. */
static inline int ags1_plaintext_length(int64_t encrypted_length, int64_t block_length, int64_t *out)
{
    int64_t stride, full, tail;
    if (ags1_check_block_length(block_length))
        return AGS1_LAYOUT_BAD_BLOCK_LENGTH;
    if (encrypted_length < 0)
        return AGS1_LAYOUT_NEGATIVE;
    if (encrypted_length < AGS1_MIN_ENCRYPTED_LENGTH)
        return AGS1_LAYOUT_TOO_SHORT;
    stride = block_length + AGS1_BLOCK_OVERHEAD;
    full = (encrypted_length - AGS1_HEADER_LENGTH) / stride;
    tail = (encrypted_length - AGS1_HEADER_LENGTH) % stride;
    if (full + (tail != 0) > AGS1_MAX_BLOCKS)
        return AGS1_LAYOUT_TOO_MANY_BLOCKS;
    if (tail > 0 && tail < AGS1_BLOCK_OVERHEAD)
        return AGS1_LAYOUT_PARTIAL_BLOCK;
    if (tail == AGS1_BLOCK_OVERHEAD && full > 0)
        return AGS1_LAYOUT_TRAILING_BLOCK;
    *out = full * block_length + (tail ? tail - AGS1_BLOCK_OVERHEAD : 0);
    return AGS1_LAYOUT_OK;
}

/* Offset of a block's nonce in the stream. The index may be one past the last block. */
static inline int64_t ags1_block_offset(int64_t block_index, int64_t block_length)
{
    return AGS1_HEADER_LENGTH + block_index * (block_length + AGS1_BLOCK_OVERHEAD);
}

static inline void ags1_store_le32(uint8_t *out, uint32_t value)
{
    out[0] = (uint8_t)value;
    out[1] = (uint8_t)(value >> 8);
    out[2] = (uint8_t)(value >> 16);
    out[3] = (uint8_t)(value >> 24);
}

static inline uint32_t ags1_load_le32(const uint8_t *in)
{
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

static inline void ags1_write_header(uint8_t *out, int64_t block_length)
{
    memcpy(out, AGS1_MAGIC, 4);
    ags1_store_le32(out + 4, (uint32_t)block_length);
}

/* Reads the 8 bytes of a header. The header is authenticated by nothing: this check is all there is. */
static inline int ags1_read_header(const uint8_t *in, int64_t *block_length)
{
    int64_t value;
    if (memcmp(in, AGS1_MAGIC, 4) != 0)
        return AGS1_LAYOUT_NOT_AGS1;
    value = (int64_t)ags1_load_le32(in + 4);
    if (ags1_check_block_length(value))
        return AGS1_LAYOUT_BAD_BLOCK_LENGTH;
    *block_length = value;
    return AGS1_LAYOUT_OK;
}

#endif
