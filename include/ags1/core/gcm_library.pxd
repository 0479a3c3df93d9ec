# gcm_library.h for Cython: extern declarations only.
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

cdef extern from "ags1/core/gcm_library.h" nogil:
    enum GcmStatus:
        GCM_OK
        GCM_BAD_TAG
        GCM_BACKEND
        GCM_NO_RANDOM
        GCM_NO_MEMORY

    ctypedef struct GcmContext:
        pass
    ctypedef struct CtrContext:
        pass

    ctypedef struct GcmLibrary:
        const char *name
        GcmContext *(*create)() noexcept nogil
        int (*rekey)(GcmContext *context, const uint8_t *key, size_t key_length, bint encrypt) noexcept nogil
        int (*seal)(
            GcmContext *context, const uint8_t *nonce, const uint8_t *aad, size_t aad_length,
            const uint8_t *data, int64_t length, uint8_t *out, uint8_t *tag) noexcept nogil
        int (*open)(
            GcmContext *context, const uint8_t *nonce, const uint8_t *aad, size_t aad_length,
            const uint8_t *data, int64_t length, const uint8_t *tag, uint8_t *out) noexcept nogil
        void (*destroy)(GcmContext *context) noexcept nogil
