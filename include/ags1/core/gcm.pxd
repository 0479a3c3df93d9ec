# Declarations of ags1.core.gcm for cimport: keys, and AES-GCM on raw memory without the GIL.
#
# This is the only module that links OpenSSL. Everything below reaches it through ags1.core.gcm's C interface, so one
# process has one DRBG and one copy of OpenSSL however many modules use it. AES-GCM itself may be BoringSSL's, of
# ags1.core.boringssl.
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from ags1.core.gcm_library cimport (
    GCM_BACKEND, GCM_BAD_TAG, GCM_NO_MEMORY, GCM_NO_RANDOM, GCM_OK, CtrContext, GcmContext,
)

cdef class Key:
    cdef uint8_t octets[32]
    cdef size_t length
    cdef Py_ssize_t shape[1]
    cdef Py_ssize_t strides[1]
    cdef int64_t sealed          # messages sealed with this object, under the GIL

cdef Key as_key(object key)
# To be called before `count` messages are sealed: raises LimitError if the key would then have sealed more than 2^32.
cdef int count_messages(Key key, int64_t count) except -1

# A context without a key, for gcm_context_rekey; NULL when the library refuses.
cdef GcmContext *gcm_context_unkeyed() noexcept nogil
# A keyed context belongs to one thread at a time. gcm_context_new returns NULL when the library refuses.
cdef GcmContext *gcm_context_new(const uint8_t *key, size_t key_length, bint encrypt) noexcept nogil
cdef int gcm_context_rekey(GcmContext *context, const uint8_t *key, size_t key_length, bint encrypt) noexcept nogil
cdef void gcm_context_free(GcmContext *context) noexcept nogil

# One GCM message. data and out may be the same memory or apart, nothing between. The nonce has 12 bytes, the tag 16.
cdef int gcm_seal(
    GcmContext *context, const uint8_t *nonce, const uint8_t *aad, size_t aad_length,
    const uint8_t *data, int64_t length, uint8_t *out, uint8_t *tag) noexcept nogil
# On GCM_BAD_TAG the `length` bytes at out are zero.
cdef int gcm_open(
    GcmContext *context, const uint8_t *nonce, const uint8_t *aad, size_t aad_length,
    const uint8_t *data, int64_t length, const uint8_t *tag, uint8_t *out) noexcept nogil

# AES-CTR with a 12-byte nonce and a big-endian counter that starts at 1, as Parquet's AES_GCM_CTR_V1 has it. Nothing is
# authenticated. A context is made without a key; it is OpenSSL's. NULL when OpenSSL refuses.
cdef CtrContext *ctr_context_new() noexcept nogil
cdef void ctr_context_free(CtrContext *context) noexcept nogil
cdef int ctr_context_rekey(CtrContext *context, const uint8_t *key, size_t key_length) noexcept nogil
cdef int ctr_crypt(
    CtrContext *context, const uint8_t *nonce, const uint8_t *data, int64_t length, uint8_t *out) noexcept nogil

# Random bytes in one draw that the kernel has a part in, so that no copy of this process repeats them. GCM_OK or
# GCM_NO_RANDOM.
cdef int gcm_random(uint8_t *out, size_t length) noexcept nogil
# The same for nonces, as an exception; and into new memory for so many of them, which PyMem_Free releases.
cdef int draw_nonces(uint8_t *out, size_t length) except -1
cdef uint8_t *new_nonces(int64_t count) except NULL
# What OpenSSL says about a status of its own, taken from this thread's error queue; 0 for any other status.
cdef unsigned long gcm_last_error(int status) noexcept nogil
cdef int raise_status(int status, unsigned long openssl_error, str doing) except -1
