/* AES-GCM as a libcrypto gives it to ags1.core.gcm: OpenSSL, or BoringSSL in a module of its own. */
#ifndef AGS1_GCM_LIBRARY_H
#define AGS1_GCM_LIBRARY_H

#include <stddef.h>
#include <stdint.h>

enum GcmStatus {
    GCM_OK = 0,
    GCM_BAD_TAG = 1,   /* says nothing more than that */
    GCM_BACKEND = 2,   /* the library failed; OpenSSL's error queue of this thread says why */
    GCM_NO_RANDOM = 3, /* no random bytes: nothing was sealed */
    GCM_NO_MEMORY = 4
};

/* A keyed context, which only the library that made it knows. */
typedef struct GcmContext GcmContext;
/* The same for AES-CTR, which is always OpenSSL's. */
typedef struct CtrContext CtrContext;

/* What gcm.pxd says of gcm_context_new and the others, for a context of this library; statuses are GcmStatus. */
typedef struct {
    const char *name; /* for messages */
    GcmContext *(*create)(void);
    int (*rekey)(GcmContext *context, const uint8_t *key, size_t key_length, int encrypt);
    int (*seal)(GcmContext *context, const uint8_t *nonce, const uint8_t *aad, size_t aad_length, const uint8_t *data,
                int64_t length, uint8_t *out, uint8_t *tag);
    int (*open)(GcmContext *context, const uint8_t *nonce, const uint8_t *aad, size_t aad_length, const uint8_t *data,
                int64_t length, const uint8_t *tag, uint8_t *out);
    void (*destroy)(GcmContext *context);
} GcmLibrary;

#endif
