"""AES-GCM by BoringSSL's EVP: what ags1.core.gcm takes instead of OpenSSL's where it is faster. May be missing.

The library is inside this module, with hidden symbols: buildtools/boringssl.cc says what of it. It leaves no reason for
a failure.
"""

from cpython.pycapsule cimport PyCapsule_New
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from ags1.core.gcm_library cimport GCM_BACKEND, GCM_OK, GcmContext, GcmLibrary

cdef extern from *:
    """
    /* BoringSSL leaves half of a key in vector registers, which would be saved on the stack of this thread. */
    static void ags1_clear_vectors(void)
    {
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx"))
            __asm__ volatile("vzeroall" ::: "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                             "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
        if (__builtin_cpu_supports("avx512f"))
            __asm__ volatile(".irp n,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\\n\\t"
                             "vpxord %zmm\\\\n, %zmm\\\\n, %zmm\\\\n\\n\\t.endr");
    }
    """
    void ags1_clear_vectors() nogil

cdef extern from "openssl/evp.h" nogil:
    ctypedef struct EVP_CIPHER:
        pass
    ctypedef struct EVP_CIPHER_CTX:
        pass

    const EVP_CIPHER *EVP_aes_128_gcm()
    const EVP_CIPHER *EVP_aes_192_gcm()
    const EVP_CIPHER *EVP_aes_256_gcm()
    EVP_CIPHER_CTX *EVP_CIPHER_CTX_new()
    void EVP_CIPHER_CTX_free(EVP_CIPHER_CTX *context)
    const EVP_CIPHER *EVP_CIPHER_CTX_cipher(const EVP_CIPHER_CTX *context)
    int EVP_CipherInit_ex(
        EVP_CIPHER_CTX *context, const EVP_CIPHER *cipher, void *engine, const uint8_t *key, const uint8_t *iv,
        int encrypt)

cdef extern from "openssl/aead.h" nogil:
    int EVP_has_aes_hardware()

cdef extern from *:
    """
    /* Of buildtools/boringssl.cc. */
    int ags1_boringssl_uses_zmm(void);
    """
    int ags1_boringssl_uses_zmm() nogil

# Behind openssl/evp.h: that says which library it is.
cdef extern from "ags1/core/gcm_message.h" nogil:
    int ags1_seal(
        GcmContext *context, const uint8_t *nonce, const uint8_t *aad, size_t aad_length,
        const uint8_t *data, int64_t length, uint8_t *out, uint8_t *tag)
    int ags1_open(
        GcmContext *context, const uint8_t *nonce, const uint8_t *aad, size_t aad_length,
        const uint8_t *data, int64_t length, const uint8_t *tag, uint8_t *out)


cdef GcmContext *_create() noexcept nogil:
    return <GcmContext *>EVP_CIPHER_CTX_new()


cdef void _destroy(GcmContext *context) noexcept nogil:
    EVP_CIPHER_CTX_free(<EVP_CIPHER_CTX *>context)
    ags1_clear_vectors()


cdef int _rekey(GcmContext *given, const uint8_t *key, size_t key_length, bint encrypt) noexcept nogil:
    cdef EVP_CIPHER_CTX *context = <EVP_CIPHER_CTX *>given
    cdef const EVP_CIPHER *cipher
    if key_length == 16:
        cipher = EVP_aes_128_gcm()
    elif key_length == 24:
        cipher = EVP_aes_192_gcm()
    else:
        cipher = EVP_aes_256_gcm()
    # Told again of the cipher that it has, a context would allocate anew.
    if EVP_CIPHER_CTX_cipher(context) == cipher:
        cipher = NULL
    return GCM_OK if EVP_CipherInit_ex(context, cipher, NULL, key, NULL, encrypt) == 1 else GCM_BACKEND


cdef GcmLibrary BORINGSSL
BORINGSSL.name = b"BoringSSL"
BORINGSSL.create = _create
BORINGSSL.rekey = _rekey
BORINGSSL.seal = ags1_seal
BORINGSSL.open = ags1_open
BORINGSSL.destroy = _destroy


def library():
    """Return a capsule with BoringSSL's five functions, for ags1.core.gcm."""
    # Looks what the CPU has, before there are threads.
    EVP_has_aes_hardware()
    return PyCapsule_New(&BORINGSSL, b"ags1.core.boringssl", NULL)


def uses_zmm():
    """Return whether AES-GCM uses registers of 512 bits where the CPU has them."""
    return ags1_boringssl_uses_zmm() != 0
