/* One AES-GCM message by EVP: the same for OpenSSL and for BoringSSL, whose headers are included before.
 *
 *     seal    begin(nonce)         AAD   data in pieces   final   get tag
 *     open    begin(nonce[, tag])  AAD   data in pieces   [set tag]   final
 */
#ifndef AGS1_GCM_MESSAGE_H
#define AGS1_GCM_MESSAGE_H

#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "ags1/core/gcm_library.h"

/* The largest call: a multiple of the cipher's block. */
#define AGS1_LARGEST_CALL (INT_MAX / 16 * 16)

#ifdef OPENSSL_IS_BORINGSSL

/* From this length on a tag is set after the data: whoever reads it first waits for memory that the data would have
 * brought along. */
enum { AGS1_LATE_TAG = 0 };

/* A message goes to EVP in one call: the pieces that OpenSSL gets are no faster. */
static inline int64_t ags1_piece_of(int64_t left, int is_first)
{
    (void)is_first;
    return left < AGS1_LARGEST_CALL ? left : AGS1_LARGEST_CALL;
}

static inline int ags1_get_tag(EVP_CIPHER_CTX *context, uint8_t *tag)
{
    return EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, 16, tag);
}

static inline int ags1_set_tag(EVP_CIPHER_CTX *context, const uint8_t *tag)
{
    return EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, 16, (void *)tag);
}

static inline int ags1_begin(EVP_CIPHER_CTX *context, const uint8_t *nonce, const uint8_t *tag)
{
    return EVP_CipherInit_ex(context, NULL, NULL, NULL, nonce, -1) == 1 && (tag == NULL || ags1_set_tag(context, tag) == 1);
}

#else

#include <openssl/core_names.h>
#include <openssl/params.h>

#include "ags1/core/pieces.h"

/* The tag of a shorter message comes with the nonce, which saves a call. */
enum { AGS1_LATE_TAG = 2 << 10 };

/* ags1_splits_messages(), asked once. */
static int ags1_splits;

static inline int64_t ags1_piece_of(int64_t left, int is_first)
{
    int64_t piece = ags1_next_piece(left, is_first, ags1_splits);
    return piece < AGS1_LARGEST_CALL ? piece : AGS1_LARGEST_CALL;
}

/* By parameters: a ctrl makes the same ones, and more. */
#define AGS1_TAG(tag) {OSSL_PARAM_octet_string(OSSL_CIPHER_PARAM_AEAD_TAG, (void *)(tag), 16), OSSL_PARAM_END}

static inline int ags1_get_tag(EVP_CIPHER_CTX *context, uint8_t *tag)
{
    OSSL_PARAM parameters[2] = AGS1_TAG(tag);
    return EVP_CIPHER_CTX_get_params(context, parameters);
}

static inline int ags1_set_tag(EVP_CIPHER_CTX *context, const uint8_t *tag)
{
    OSSL_PARAM parameters[2] = AGS1_TAG(tag);
    return EVP_CIPHER_CTX_set_params(context, parameters);
}

static inline int ags1_begin(EVP_CIPHER_CTX *context, const uint8_t *nonce, const uint8_t *tag)
{
    OSSL_PARAM parameters[2] = AGS1_TAG(tag);
    return EVP_CipherInit_ex2(context, NULL, NULL, nonce, -1, tag == NULL ? NULL : parameters) == 1;
}

#endif

/* By the functions of one direction: those for both ask the context first, which costs a short message 2 %. */
static inline int ags1_step(EVP_CIPHER_CTX *context, int encrypt, uint8_t *out, const uint8_t *data, int length)
{
    int done;
    if (encrypt)
        return EVP_EncryptUpdate(context, out, &done, data, length);
    return EVP_DecryptUpdate(context, out, &done, data, length);
}

static inline int ags1_update(EVP_CIPHER_CTX *context, int encrypt, const uint8_t *data, int64_t length,
                              uint8_t *out)
{
    int is_first = 1;
    while (length > 0) {
        int64_t piece = ags1_piece_of(length, is_first);
        if (ags1_step(context, encrypt, out, data, (int)piece) != 1)
            return 0;
        data += piece;
        out += piece;
        length -= piece;
        is_first = 0;
    }
    return 1;
}

static inline int ags1_authenticate(EVP_CIPHER_CTX *context, int encrypt, const uint8_t *aad, size_t length)
{
    while (length > 0) {
        size_t piece = length < AGS1_LARGEST_CALL ? length : AGS1_LARGEST_CALL;
        if (ags1_step(context, encrypt, NULL, aad, (int)piece) != 1)
            return 0;
        aad += piece;
        length -= piece;
    }
    return 1;
}

static int ags1_seal(GcmContext *sealing, const uint8_t *nonce, const uint8_t *aad, size_t aad_length,
                     const uint8_t *data, int64_t length, uint8_t *out, uint8_t *tag)
{
    EVP_CIPHER_CTX *context = (EVP_CIPHER_CTX *)sealing;
    uint8_t rest[16];
    int done;
    if (!ags1_begin(context, nonce, NULL) || !ags1_authenticate(context, 1, aad, aad_length) ||
        !ags1_update(context, 1, data, length, out) || EVP_EncryptFinal_ex(context, rest, &done) != 1 ||
        ags1_get_tag(context, tag) != 1)
        return GCM_BACKEND;
    return GCM_OK;
}

static int ags1_open(GcmContext *opening, const uint8_t *nonce, const uint8_t *aad, size_t aad_length,
                     const uint8_t *data, int64_t length, const uint8_t *tag, uint8_t *out)
{
    EVP_CIPHER_CTX *context = (EVP_CIPHER_CTX *)opening;
    uint8_t rest[16];
    int done, late = length >= AGS1_LATE_TAG;
    if (!ags1_begin(context, nonce, late ? NULL : tag) || !ags1_authenticate(context, 0, aad, aad_length))
        return GCM_BACKEND;
    if (!ags1_update(context, 0, data, length, out) || (late && ags1_set_tag(context, tag) != 1)) {
        memset(out, 0, (size_t)length);
        return GCM_BACKEND;
    }
    if (EVP_DecryptFinal_ex(context, rest, &done) != 1) {
        memset(out, 0, (size_t)length);
        return GCM_BAD_TAG;
    }
    return GCM_OK;
}

#endif
