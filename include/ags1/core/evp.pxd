# OpenSSL's EVP and error queue: extern declarations only, of what ags1 calls. OpenSSL 3.0 or newer.
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t

cdef extern from "openssl/provider.h" nogil:
    ctypedef struct OSSL_PROVIDER:
        pass
    const char *OSSL_PROVIDER_get0_name(const OSSL_PROVIDER *provider)

cdef extern from "openssl/evp.h" nogil:
    ctypedef struct EVP_CIPHER:
        pass
    ctypedef struct EVP_CIPHER_CTX:
        pass

    EVP_CIPHER *EVP_CIPHER_fetch(void *library_context, const char *algorithm, const char *properties)
    EVP_CIPHER_CTX *EVP_CIPHER_CTX_new()
    void EVP_CIPHER_CTX_free(EVP_CIPHER_CTX *context)
    const OSSL_PROVIDER *EVP_CIPHER_get0_provider(const EVP_CIPHER *cipher)
    int EVP_CipherInit_ex2(
        EVP_CIPHER_CTX *context, const EVP_CIPHER *cipher, const unsigned char *key, const unsigned char *iv,
        int encrypt, const void *parameters)

cdef extern from "openssl/err.h" nogil:
    unsigned long ERR_peek_last_error()
    void ERR_clear_error()
    void ERR_error_string_n(unsigned long error, char *out, size_t length)

cdef extern from "openssl/crypto.h" nogil:
    enum:
        OPENSSL_VERSION
        OPENSSL_INFO_CPU_SETTINGS
    void OPENSSL_cleanse(void *data, size_t length)
    int CRYPTO_memcmp(const void *a, const void *b, size_t length)
    const char *OpenSSL_version(int what)
    const char *OPENSSL_info(int what)
    unsigned long OpenSSL_version_num()
