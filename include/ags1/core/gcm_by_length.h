/* AES-GCM by two libraries: one is faster for short messages, and the other for long ones.
 *
 *     rekey    keeps the key
 *     seal, open    length < ags1_long_from:  context of ags1_by_length[0]     made and keyed when the first message
 *                   else:                     context of ags1_by_length[1]     of such a length comes
 */
#ifndef AGS1_GCM_BY_LENGTH_H
#define AGS1_GCM_BY_LENGTH_H

#include <openssl/crypto.h>
#include <stdlib.h>

#include "ags1/core/gcm_library.h"

typedef struct {
    GcmContext *contexts[2];
    int is_keyed[2];
    uint8_t key[32];
    size_t key_length;
    int encrypt;
} ags1_two_contexts;

/* Set once, before there is a context. */
static const GcmLibrary *ags1_by_length[2];
static int64_t ags1_long_from;

static GcmContext *ags1_two_create(void) { return (GcmContext *)calloc(1, sizeof(ags1_two_contexts)); }

static void ags1_two_destroy(GcmContext *context)
{
    ags1_two_contexts *two = (ags1_two_contexts *)context;
    if (two == NULL)
        return;
    for (int which = 0; which < 2; which++)
        if (two->contexts[which] != NULL)
            ags1_by_length[which]->destroy(two->contexts[which]);
    OPENSSL_cleanse(two, sizeof(*two));
    free(two);
}

static int ags1_two_rekey(GcmContext *context, const uint8_t *key, size_t key_length, int encrypt)
{
    ags1_two_contexts *two = (ags1_two_contexts *)context;
    if (key_length > sizeof(two->key))
        return GCM_BACKEND;
    /* Not by memcpy: vector registers that have held a key may be saved on a stack. */
    for (size_t at = 0; at < key_length; at++)
        ((volatile uint8_t *)two->key)[at] = key[at];
    two->key_length = key_length;
    two->encrypt = encrypt;
    two->is_keyed[0] = two->is_keyed[1] = 0;
    return GCM_OK;
}

/* The library for a message, with its context keyed; NULL if it failed. */
static inline const GcmLibrary *ags1_two_choose(GcmContext *context, int64_t length, GcmContext **chosen)
{
    ags1_two_contexts *two = (ags1_two_contexts *)context;
    int which = length >= ags1_long_from;
    const GcmLibrary *library = ags1_by_length[which];
    if (!two->is_keyed[which]) {
        if (two->contexts[which] == NULL)
            two->contexts[which] = library->create();
        if (two->contexts[which] == NULL ||
            library->rekey(two->contexts[which], two->key, two->key_length, two->encrypt) != GCM_OK)
            return NULL;
        two->is_keyed[which] = 1;
    }
    *chosen = two->contexts[which];
    return library;
}

static int ags1_two_seal(GcmContext *context, const uint8_t *nonce, const uint8_t *aad, size_t aad_length,
                         const uint8_t *data, int64_t length, uint8_t *out, uint8_t *tag)
{
    GcmContext *chosen;
    const GcmLibrary *library = ags1_two_choose(context, length, &chosen);
    return library == NULL ? GCM_BACKEND : library->seal(chosen, nonce, aad, aad_length, data, length, out, tag);
}

static int ags1_two_open(GcmContext *context, const uint8_t *nonce, const uint8_t *aad, size_t aad_length,
                         const uint8_t *data, int64_t length, const uint8_t *tag, uint8_t *out)
{
    GcmContext *chosen;
    const GcmLibrary *library = ags1_two_choose(context, length, &chosen);
    return library == NULL ? GCM_BACKEND : library->open(chosen, nonce, aad, aad_length, data, length, tag, out);
}

static const GcmLibrary AGS1_BOTH = {"BoringSSL",   ags1_two_create, ags1_two_rekey,
                                     ags1_two_seal, ags1_two_open,   ags1_two_destroy};

#endif
