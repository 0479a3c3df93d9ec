/* How much of a message EVP gets at once.
 *
 *     while (left > 0) { piece = ags1_next_piece(left, is_first); EVP_CipherUpdate(..., piece); left -= piece; }
 *
 *     1 MiB      | 2 KiB | 1,046,528 |     2^20 % 768 is 256
 *     4,096      | 2,048 | 2,048 |         4096 % 768 is 256
 *     3,000      | 3,000 |                 3000 % 768 is 696
 *
 * OpenSSL's AES-GCM for AVX-512 works on 48 blocks (768 bytes) at a time. A call that leaves 256 to 511 bytes for its
 * end, and is the only one of its message or follows one that left none, makes the processor stop reading memory ahead:
 * as soon as memory and not the cache is the limit, such a message takes up to three times as long. That is every third
 * length, 4, 16 and 64 KiB and 1 MiB among them (AMD Zen 5; OpenSSL 3.5.7 and 4.0.3). It does not happen behind a call
 * that left 512 or more, as the first piece does. In cache, the second call costs 5 % of 4 KiB, 1 % of 16 KiB, and less
 * elsewhere. Intel's processors read on (Emerald Rapids): pieces made messages of 4 KiB 8 to 14 % slower there, and
 * none faster. Behind the first piece one call is the fastest: 64 KiB at a time take 3 % more in cache and
 * 5 % more over memory. bench/README.md has the measurements.
 */
#ifndef AGS1_PIECES_H
#define AGS1_PIECES_H

#include <stdint.h>

/* 2 * 768 + 512 bytes. */
#define AGS1_FIRST_PIECE 2048
/* What a shorter message leaves behind the first piece is too short to help. */
#define AGS1_SHORTEST_SPLIT 2560

/* Where the cipher does not use AVX-512, and on Intel, a second call for a short message would only cost. */
static inline int ags1_splits_messages(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") && !__builtin_cpu_is("intel");
#else
    return 0;
#endif
}

/* Bytes of the next piece: a multiple of 16, the cipher's block, but for the last. `splits` is ags1_splits_messages(). */
static inline int64_t ags1_next_piece(int64_t left, int is_first, int splits)
{
    int64_t rest = left % 768;
    if (is_first && splits && left >= AGS1_SHORTEST_SPLIT && rest >= 256 && rest < 512)
        return AGS1_FIRST_PIECE;
    return left;
}

#endif
