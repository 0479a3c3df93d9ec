/* CRC-32 as Parquet pages, gzip and zlib have it (reflected polynomial EDB88320, starting from and ending with all ones).
 *
 *     crc = ags1_crc32(data, length)
 *
 * zlib's takes longer over a page than AES-GCM does; this folds 64 bytes at a time by carry-less multiplication where the
 * processor has it. Source: Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ" (Intel, 2009).
 */
#ifndef AGS1_CRC32_H
#define AGS1_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t ags1_crc32_table[8][256];

/* Call once before the first ags1_crc32, on one thread. */
static void ags1_crc32_prepare(void)
{
    uint32_t index, value;
    int bit, table;
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
#endif

static uint32_t ags1_crc32(const uint8_t *data, int64_t length)
{
    uint32_t crc = 0xffffffffu;
    size_t rest = (size_t)length;
#if defined(__x86_64__) && defined(__GNUC__)
    if (rest >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        size_t folded = rest & ~(size_t)15;
        crc = ags1_crc32_folded(crc, data, folded);
        data += folded;
        rest -= folded;
    }
#endif
    return ~ags1_crc32_bytes(crc, data, rest);
}

#endif
