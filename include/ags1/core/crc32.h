/* CRC-32 as Parquet pages, gzip and zlib have it (reflected polynomial EDB88320, starting from and ending with all ones).
 *
 *     crc = ags1_crc32(data, length)
 *
 * zlib's takes longer over a page than AES-GCM does; this folds 64 to 256 bytes at a time by carry-less multiplication
 * where the processor has it: 16 GB/s of one core by 128 bits, 30 by 256, 60 by 512 (AMD Zen 5).
 * Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ" (Intel, 2009).
 */
#ifndef AGS1_CRC32_H
#define AGS1_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t ags1_crc32_table[8][256];
/* Of the widest registers that this processor multiplies without carry in; 0 if it does not. */
static int ags1_crc32_bits;

/* Call once before the first ags1_crc32, on one thread. */
static void ags1_crc32_prepare(void)
{
    uint32_t index, value;
    int bit, table;
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
        ags1_crc32_bits = 128;
    if (ags1_crc32_bits && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2"))
        ags1_crc32_bits = __builtin_cpu_supports("avx512f") ? 512 : 256;
#endif
    for (index = 0; index < 256; index++) {
        value = index;
        for (bit = 0; bit < 8; bit++)
            value = (value >> 1) ^ (0xedb88320u & (0u - (value & 1)));
        ags1_crc32_table[0][index] = value;
    }
    for (index = 0; index < 256; index++)
        for (table = 1; table < 8; table++)
            ags1_crc32_table[table][index] = (ags1_crc32_table[table - 1][index] >> 8) ^
                                             ags1_crc32_table[0][ags1_crc32_table[table - 1][index] & 0xff];
}

/* `crc` is the state itself, not yet inverted. */
static uint32_t ags1_crc32_bytes(uint32_t crc, const uint8_t *data, size_t length)
{
    const uint32_t(*table)[256] = ags1_crc32_table;
    while (length >= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                              (uint32_t)data[3] << 24);
        crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^ table[4][low >> 24] ^
              table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
        data += 8;
        length -= 8;
    }
    while (length--)
        crc = crc >> 8 ^ table[0][(crc ^ *data++) & 0xff];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define AGS1_CRC32_TARGET __attribute__((target("pclmul,sse4.1")))

AGS1_CRC32_TARGET static inline __m128i ags1_crc32_fold(__m128i state, __m128i constants, __m128i next)
{
    __m128i low = _mm_clmulepi64_si128(state, constants, 0x00);
    __m128i high = _mm_clmulepi64_si128(state, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* length is at least 64 and a multiple of 16. */
AGS1_CRC32_TARGET static uint32_t ags1_crc32_folded(uint32_t crc, const uint8_t *data, size_t length)
{
    /* x^n mod P, bit-reflected, for folding over 512, 128 and 64 bits, and for the reduction. */
    const __m128i over_512 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i over_128 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i over_64 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_words = _mm_set_epi32(0, -1, 0, -1);
    const __m128i *in = (const __m128i *)data;
    __m128i a = _mm_xor_si128(_mm_loadu_si128(in), _mm_cvtsi32_si128((int)crc));
    __m128i b = _mm_loadu_si128(in + 1), c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    __m128i quotient;
    for (in += 4, length -= 64; length >= 64; in += 4, length -= 64) {
        a = ags1_crc32_fold(a, over_512, _mm_loadu_si128(in));
        b = ags1_crc32_fold(b, over_512, _mm_loadu_si128(in + 1));
        c = ags1_crc32_fold(c, over_512, _mm_loadu_si128(in + 2));
        d = ags1_crc32_fold(d, over_512, _mm_loadu_si128(in + 3));
    }
    a = ags1_crc32_fold(a, over_128, b);
    a = ags1_crc32_fold(a, over_128, c);
    a = ags1_crc32_fold(a, over_128, d);
    for (; length >= 16; in++, length -= 16)
        a = ags1_crc32_fold(a, over_128, _mm_loadu_si128(in));
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, over_128, 0x10));
    a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, low_words), over_64, 0x00));
    quotient = _mm_and_si128(a, low_words);
    quotient = _mm_and_si128(_mm_clmulepi64_si128(quotient, polynomial, 0x10), low_words);
    a = _mm_xor_si128(a, _mm_clmulepi64_si128(quotient, polynomial, 0x00));
    return (uint32_t)_mm_extract_epi32(a, 1);
}

/* A longer one is folded into so many bytes first, whose CRC, from a state of 0 on, is its own. */
#define AGS1_CRC32_WIDE 512

/* Fold 128 bytes at a time into the 128 of `state`; return how many bytes that were. */
__attribute__((target("avx2,vpclmulqdq"))) static size_t ags1_crc32_fold_256(uint32_t crc, const uint8_t *data,
                                                                             size_t length, uint8_t *state)
{
    const __m256i over_1024 = _mm256_set_epi64x(0x014a7fe880, 0x01e88ef372, 0x014a7fe880, 0x01e88ef372);
    __m256i folded[4];
    size_t done = 128;
    for (int lane = 0; lane < 4; lane++)
        folded[lane] = _mm256_loadu_si256((const __m256i *)data + lane);
    folded[0] = _mm256_xor_si256(folded[0], _mm256_set_epi32(0, 0, 0, 0, 0, 0, 0, (int)crc));
    for (; done + 128 <= length; done += 128)
        for (int lane = 0; lane < 4; lane++) {
            __m256i next = _mm256_loadu_si256((const __m256i *)(data + done) + lane);
            __m256i low = _mm256_clmulepi64_epi128(folded[lane], over_1024, 0x00);
            __m256i high = _mm256_clmulepi64_epi128(folded[lane], over_1024, 0x11);
            folded[lane] = _mm256_xor_si256(_mm256_xor_si256(low, high), next);
        }
    for (int lane = 0; lane < 4; lane++)
        _mm256_storeu_si256((__m256i *)state + lane, folded[lane]);
    return done;
}

/* The same, 256 bytes at a time. */
__attribute__((target("avx512f,vpclmulqdq"))) static size_t ags1_crc32_fold_512(uint32_t crc, const uint8_t *data,
                                                                                size_t length, uint8_t *state)
{
    const __m512i over_2048 = _mm512_set4_epi64(0x01322d1430, 0x011542778a, 0x01322d1430, 0x011542778a);
    __m512i folded[4];
    size_t done = 256;
    for (int lane = 0; lane < 4; lane++)
        folded[lane] = _mm512_loadu_si512(data + 64 * lane);
    folded[0] = _mm512_xor_si512(folded[0], _mm512_maskz_set1_epi32(1, (int)crc));
    for (; done + 256 <= length; done += 256)
        for (int lane = 0; lane < 4; lane++) {
            __m512i next = _mm512_loadu_si512(data + done + 64 * lane);
            __m512i low = _mm512_clmulepi64_epi128(folded[lane], over_2048, 0x00);
            __m512i high = _mm512_clmulepi64_epi128(folded[lane], over_2048, 0x11);
            folded[lane] = _mm512_xor_si512(_mm512_xor_si512(low, high), next);
        }
    for (int lane = 0; lane < 4; lane++)
        _mm512_storeu_si512(state + 64 * lane, folded[lane]);
    return done;
}
#endif

/* By registers of so many bits at most: 512, 256, 128, or 0 for the tables. */
static uint32_t ags1_crc32_by(int bits, const uint8_t *data, int64_t length)
{
    uint32_t crc = 0xffffffffu;
    size_t rest = (size_t)length, done = 0;
#if defined(__x86_64__) && defined(__GNUC__)
    if (bits >= 256 && rest >= AGS1_CRC32_WIDE) {
        uint8_t state[256];
        done = bits == 512 ? ags1_crc32_fold_512(crc, data, rest, state) : ags1_crc32_fold_256(crc, data, rest, state);
        crc = ags1_crc32_folded(0, state, (size_t)bits / 2);
        rest -= done;
    }
    if (bits && rest >= 64) {
        crc = ags1_crc32_folded(crc, data + done, rest & ~(size_t)15);
        done += rest & ~(size_t)15;
        rest &= 15;
    }
#else
    (void)bits;
#endif
    return ~ags1_crc32_bytes(crc, data + done, rest);
}

static uint32_t ags1_crc32(const uint8_t *data, int64_t length)
{
    return ags1_crc32_by(ags1_crc32_bits, data, length);
}

#endif
