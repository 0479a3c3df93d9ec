"""AES-GCM by EVP on raw memory, and the keys for it. The only module that links OpenSSL.

    message   nonce (12)   ciphertext (n)   tag (16)
    AAD       any bytes, authenticated, not stored

The EVP is OpenSSL's, or BoringSSL's of :mod:`ags1.core.boringssl` where that is faster: ags1/core/choice.py chooses
once, when this module is imported. All else is OpenSSL's.

A worker keys one context and re-nonces it for each message; there is no key schedule per message and no
EVP_CIPHER_CTX_copy, which old providers refuse::

    context = gcm_context_new(key.octets, key.length, True)
    for each message:
        status = gcm_seal(context, nonce, aad, aad_length, data, length, out, tag)
    gcm_context_free(context)          # wipes the key schedule

Functions without the GIL return a GcmStatus; :func:`raise_status` is the one place that turns it into an exception.
Source: NIST SP 800-38D; nonces are its section 8.2.2 (random bit generator, 96 bits), so a key may seal at most
2^32 messages.
"""

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE, Py_buffer
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from ags1.core.buffer cimport BufferView, readable
from ags1.core.evp cimport (
    CRYPTO_memcmp, ERR_clear_error, ERR_error_string_n, ERR_peek_last_error, EVP_CIPHER, EVP_CIPHER_CTX,
    EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_CIPHER_fetch, EVP_CIPHER_get0_provider, EVP_CipherInit_ex2,
    OPENSSL_cleanse, OPENSSL_info, OPENSSL_INFO_CPU_SETTINGS, OPENSSL_VERSION, OpenSSL_version, OpenSSL_version_num,
    OSSL_PROVIDER_get0_name,
)
from ags1.core.gcm_library cimport CtrContext, GcmContext, GcmLibrary

from ags1.core import choice
from ags1.errors import BackendError, LimitError

cdef extern from *:
    """
    #ifndef AGS1_OPENSSL_LINKAGE
    #define AGS1_OPENSSL_LINKAGE "unknown"
    #define AGS1_OPENSSL_REMEDY ""
    #endif
    #include <stddef.h>
    /* Not memcpy: that leaves the bytes in vector registers, which the dynamic linker saves on the stack when some
     * function is called for the first time. */
    static void ags1_copy_key(unsigned char *to, const unsigned char *from, size_t length)
    {
        volatile unsigned char *out = to;
        const volatile unsigned char *in = from;
        while (length--)
            *out++ = *in++;
    }
    """
    const char *AGS1_OPENSSL_LINKAGE
    const char *AGS1_OPENSSL_REMEDY
    void ags1_copy_key(unsigned char *to, const unsigned char *source, size_t length) nogil

cdef extern from "ags1/core/pieces.h" nogil:
    int ags1_splits_messages()

cdef extern from "ags1/core/gcm_by_length.h" nogil:
    const GcmLibrary *ags1_by_length[2]
    int64_t ags1_long_from
    const GcmLibrary AGS1_BOTH

# Behind openssl/evp.h: that says which library it is.
cdef extern from "ags1/core/gcm_message.h" nogil:
    int ags1_splits
    bint ags1_update(EVP_CIPHER_CTX *context, bint encrypt, const uint8_t *data, int64_t length, uint8_t *out)
    int ags1_seal(
        GcmContext *context, const uint8_t *nonce, const uint8_t *aad, size_t aad_length,
        const uint8_t *data, int64_t length, uint8_t *out, uint8_t *tag)
    int ags1_open(
        GcmContext *context, const uint8_t *nonce, const uint8_t *aad, size_t aad_length,
        const uint8_t *data, int64_t length, const uint8_t *tag, uint8_t *out)

cdef extern from "ags1/core/drbg.h" nogil:
    int ags1_drbg_start()
    int ags1_drbg_draw(unsigned char *out, size_t length)
    int ags1_drbg_draw_nonces(unsigned char *out, size_t length)

# NIST SP 800-38D, section 8.3: as many random nonces as one key may have.
cdef int64_t MAX_MESSAGES = <int64_t>1 << 32

# For keys of 16, 24 and 32 bytes.
cdef const EVP_CIPHER *GCM[3]
cdef const EVP_CIPHER *CTR[3]


cdef int _fetch_ciphers() except -1:
    cdef int size
    for size, bits in enumerate((b"128", b"192", b"256")):
        GCM[size] = EVP_CIPHER_fetch(NULL, b"AES-" + bits + b"-GCM", NULL)
        if GCM[size] == NULL:
            raise_status(GCM_BACKEND, gcm_last_error(GCM_BACKEND), "fetching AES-GCM as openssl.cnf asks")
        CTR[size] = EVP_CIPHER_fetch(NULL, b"AES-" + bits + b"-CTR", NULL)
        if CTR[size] == NULL:
            raise_status(GCM_BACKEND, gcm_last_error(GCM_BACKEND), "fetching AES-CTR")
    return 0


cdef class Key:
    """Key(key)
--

    An AES key: 16, 24 or 32 bytes that are never printed, never pickled, and wiped when the object dies.

    Parameters
    ----------
    key : bytes-like or Key
        The key's bytes; they are copied. Wiping the source is the caller's business.

    Raises
    ------
    TypeError
        Not a bytes-like object.
    ValueError
        Not 16, 24 or 32 bytes.

    Notes
    -----
    Safe to share between threads. ``bytes(key)`` and ``memoryview(key)`` give the bytes to code that needs them; a
    copy made that way is not wiped. Comparison takes constant time.

    A Key counts the messages that it seals, whatever they are (blocks, Parquet modules, wrapped keys), and refuses with
    LimitError to seal more than 2^32. Another Key of the same bytes, here or in another process, counts on its own.
    """

    __hash__ = None

    def __cinit__(self, key):
        cdef BufferView source = readable(key, "key")
        self.sealed = 0
        if source.nbytes not in (16, 24, 32):
            raise ValueError(f"key must be 16, 24 or 32 bytes (AES-128, AES-192, AES-256), got {source.nbytes}")
        self.length = source.nbytes
        ags1_copy_key(self.octets, source.data, self.length)

    @staticmethod
    def load(reference):
        """Read a key from a file or an environment variable, in any form that the command line reads.

        Parameters
        ----------
        reference : path or str
            A file, as its path or as ``file:PATH``: 16, 24 or 32 raw bytes, or the same as hexadecimal or base64
            text, as ``ags1 keygen`` writes it. ``env:NAME`` is an environment variable with such a text.

        Raises
        ------
        KeyAccessError
            The file or variable is missing, unreadable, or holds no key. Names it, never what it holds.
        TypeError, ValueError
            No path or reference; a key itself.
        """
        from ags1.support.key_files import load_key

        return Key(load_key(reference))

    def save(self, path):
        """Write the key to a new file as hexadecimal text, as ``ags1 keygen`` does; :meth:`load` reads it.

        Only its owner can read the file (mode 0600), from the moment that it exists. It is durable when this returns.

        Parameters
        ----------
        path : path
            A file that does not exist yet: a key in the place of another loses what that one encrypted.

        Raises
        ------
        FileExistsError
            The file exists.
        OSError
            It cannot be written.
        """
        from ags1.support.key_files import save_key

        save_key(self, path)

    @staticmethod
    def generate(bits=256):
        """Make a fresh random key.

        Parameters
        ----------
        bits : int
            128, 192 or 256.

        Raises
        ------
        ValueError
            Another size.
        BackendError
            The random generator failed.
        """
        cdef Key key
        if bits not in (128, 192, 256):
            raise ValueError(f"bits must be 128, 192 or 256, got {bits!r}")
        # Drawn in place: any other memory that held the key would have to be wiped too.
        key = Key(bytes(bits // 8))
        if ags1_drbg_draw(key.octets, key.length) != 1:
            raise_status(GCM_NO_RANDOM, gcm_last_error(GCM_NO_RANDOM), "drawing a key")
        return key

    @property
    def bits(self):
        """Size of the key in bits."""
        return 8 * self.length

    def __len__(self):
        return self.length

    def __eq__(self, other):
        cdef BufferView theirs
        if not isinstance(other, (Key, bytes, bytearray, memoryview)):
            return NotImplemented
        if isinstance(other, memoryview) and not other.c_contiguous:
            return NotImplemented
        theirs = readable(other, "other")
        return theirs.nbytes == <Py_ssize_t>self.length and CRYPTO_memcmp(self.octets, theirs.data, self.length) == 0

    def __repr__(self):
        return f"<ags1.Key AES-{8 * self.length} [redacted]>"

    def __reduce__(self):
        raise TypeError(
            "an ags1.Key cannot be pickled or copied: send a wrapped key (ags1.KeyMetadata under a KMS) instead"
        )

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        if flags & PyBUF_WRITABLE == PyBUF_WRITABLE:
            raise BufferError("an ags1.Key is read-only")
        self.shape[0] = self.length
        self.strides[0] = 1
        buffer.buf = self.octets
        buffer.obj = self
        buffer.len = self.length
        buffer.itemsize = 1
        buffer.readonly = 1
        buffer.ndim = 1
        buffer.format = NULL
        if flags & PyBUF_FORMAT == PyBUF_FORMAT:
            buffer.format = b"B"
        buffer.shape = self.shape if flags & PyBUF_ND == PyBUF_ND else NULL
        buffer.strides = self.strides if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
        buffer.suboffsets = NULL
        buffer.internal = NULL

    def __dealloc__(self):
        OPENSSL_cleanse(self.octets, sizeof(self.octets))


cdef Key as_key(object key):
    """The key itself, or one made of its bytes."""
    return <Key>key if isinstance(key, Key) else Key(key)


cdef int count_messages(Key key, int64_t count) except -1:
    """Count what is about to be sealed; refuse it if that would be more than a key may seal."""
    if count > MAX_MESSAGES - key.sealed:
        raise LimitError(
            f"one key may seal {MAX_MESSAGES} messages (blocks, Parquet modules), and this one would have sealed more: "
            "use a fresh key, and one for each file"
        )
    key.sealed += count
    return 0


# The chosen library's


cdef GcmContext *gcm_context_unkeyed() noexcept nogil:
    return LIBRARY.create()


cdef GcmContext *gcm_context_new(const uint8_t *key, size_t key_length, bint encrypt) noexcept nogil:
    cdef GcmContext *context = LIBRARY.create()
    if context != NULL and LIBRARY.rekey(context, key, key_length, encrypt) != GCM_OK:
        LIBRARY.destroy(context)
        return NULL
    return context


cdef int gcm_context_rekey(GcmContext *context, const uint8_t *key, size_t key_length, bint encrypt) noexcept nogil:
    return LIBRARY.rekey(context, key, key_length, encrypt)


cdef void gcm_context_free(GcmContext *context) noexcept nogil:
    LIBRARY.destroy(context)


cdef int gcm_seal(
    GcmContext *context, const uint8_t *nonce, const uint8_t *aad, size_t aad_length,
    const uint8_t *data, int64_t length, uint8_t *out, uint8_t *tag) noexcept nogil:
    return LIBRARY.seal(context, nonce, aad, aad_length, data, length, out, tag)


cdef int gcm_open(
    GcmContext *context, const uint8_t *nonce, const uint8_t *aad, size_t aad_length,
    const uint8_t *data, int64_t length, const uint8_t *tag, uint8_t *out) noexcept nogil:
    return LIBRARY.open(context, nonce, aad, aad_length, data, length, tag, out)


# OpenSSL's


cdef GcmContext *_create() noexcept nogil:
    return <GcmContext *>EVP_CIPHER_CTX_new()


cdef void _destroy(GcmContext *context) noexcept nogil:
    EVP_CIPHER_CTX_free(<EVP_CIPHER_CTX *>context)


cdef int _rekey(GcmContext *context, const uint8_t *key, size_t key_length, bint encrypt) noexcept nogil:
    if EVP_CipherInit_ex2(<EVP_CIPHER_CTX *>context, GCM[key_length // 8 - 2], key, NULL, encrypt, NULL) != 1:
        return GCM_BACKEND
    return GCM_OK


cdef GcmLibrary OPENSSL
OPENSSL.name = b"OpenSSL"
OPENSSL.create = _create
OPENSSL.rekey = _rekey
OPENSSL.seal = ags1_seal
OPENSSL.open = ags1_open
OPENSSL.destroy = _destroy
cdef const GcmLibrary *LIBRARY = &OPENSSL


cdef CtrContext *ctr_context_new() noexcept nogil:
    return <CtrContext *>EVP_CIPHER_CTX_new()


cdef void ctr_context_free(CtrContext *context) noexcept nogil:
    EVP_CIPHER_CTX_free(<EVP_CIPHER_CTX *>context)


cdef int ctr_context_rekey(CtrContext *context, const uint8_t *key, size_t key_length) noexcept nogil:
    # Counter mode only ever encrypts its counter, so both directions are the same.
    if EVP_CipherInit_ex2(<EVP_CIPHER_CTX *>context, CTR[key_length // 8 - 2], key, NULL, True, NULL) != 1:
        return GCM_BACKEND
    return GCM_OK


cdef int ctr_crypt(
    CtrContext *context, const uint8_t *nonce, const uint8_t *data, int64_t length, uint8_t *out) noexcept nogil:
    cdef uint8_t counter[16]
    memcpy(counter, nonce, 12)
    counter[12] = counter[13] = counter[14] = 0
    counter[15] = 1
    if EVP_CipherInit_ex2(<EVP_CIPHER_CTX *>context, NULL, NULL, counter, -1, NULL) != 1:
        return GCM_BACKEND
    return GCM_OK if ags1_update(<EVP_CIPHER_CTX *>context, True, data, length, out) else GCM_BACKEND


cdef int gcm_random(uint8_t *out, size_t length) noexcept nogil:
    return GCM_OK if ags1_drbg_draw_nonces(out, length) == 1 else GCM_NO_RANDOM


cdef unsigned long gcm_last_error(int status) noexcept nogil:
    """The newest entry of this thread's OpenSSL error queue, which is emptied; 0 if the status is not OpenSSL's fault.

    A thread that has looked at its queue takes a lock of libcrypto's when it exits, which a child that is forked then
    would inherit. So it is read only if OpenSSL itself failed; a bad tag puts nothing into the queue.
    """
    cdef unsigned long error
    if status != GCM_BACKEND and status != GCM_NO_RANDOM:
        return 0
    error = ERR_peek_last_error()
    ERR_clear_error()
    return error


cdef int raise_status(int status, unsigned long openssl_error, str doing) except -1:
    """Raise what a status means. GCM_BAD_TAG is the caller's, who knows which block or module it was."""
    cdef char text[256]
    reason = ""
    if openssl_error:
        ERR_error_string_n(openssl_error, text, sizeof(text))
        reason = ": " + text.decode("ascii", "replace")
    if status == GCM_NO_MEMORY:
        raise MemoryError(f"out of memory while {doing}")
    if status == GCM_NO_RANDOM:
        raise BackendError(f"the random generator failed while {doing}; nothing was encrypted{reason}")
    # BoringSSL gives no reason.
    name = "OpenSSL" if openssl_error else LIBRARY.name.decode("ascii")
    raise BackendError(f"{name} failed while {doing}{reason}")


cdef int draw_nonces(uint8_t *out, size_t length) except -1:
    if gcm_random(out, length) != GCM_OK:
        raise_status(GCM_NO_RANDOM, gcm_last_error(GCM_NO_RANDOM), "drawing nonces")
    return 0


cdef uint8_t *new_nonces(int64_t count) except NULL:
    cdef uint8_t *nonces = <uint8_t *>PyMem_Malloc(count * 12)
    if nonces == NULL:
        raise MemoryError(f"no memory for {count} nonces")
    try:
        draw_nonces(nonces, count * 12)
    except BaseException:
        PyMem_Free(nonces)
        raise
    return nonces


def random_bytes(length):
    """Return `length` random bytes."""
    cdef bytearray out = bytearray(length)
    if gcm_random(out, length) != GCM_OK:
        raise_status(GCM_NO_RANDOM, gcm_last_error(GCM_NO_RANDOM), "drawing random bytes")
    return bytes(out)


def seal_message(data, key, nonce, aad=b""):
    """Seal one GCM message with a given nonce: for known-answer tests and for wrapping keys.

    Parameters
    ----------
    data, aad : bytes-like
        Plaintext, and what is authenticated beside it.
    key : bytes-like or Key
        16, 24 or 32 bytes.
    nonce : bytes-like
        12 bytes that this key has never been used with. Repeating one destroys the security of both messages.

    Returns
    -------
    bytes
        Ciphertext and tag.

    Raises
    ------
    LimitError
        The key has sealed 2^32 messages.
    """
    cdef BufferView source = readable(data, "data"), extra = readable(aad, "aad"), iv = readable(nonce, "nonce")
    cdef Key secret = as_key(key)
    cdef bytearray out = bytearray(source.nbytes + 16)
    cdef uint8_t *target = out
    cdef GcmContext *context
    cdef int status
    if iv.nbytes != 12:
        raise ValueError(f"nonce must be 12 bytes, got {iv.nbytes}")
    count_messages(secret, 1)
    context = gcm_context_new(secret.octets, secret.length, True)
    if context == NULL:
        raise_status(GCM_BACKEND, gcm_last_error(GCM_BACKEND), "keying AES-GCM")
    status = gcm_seal(
        context, iv.data, extra.data, extra.nbytes, source.data, source.nbytes, target, target + source.nbytes
    )
    gcm_context_free(context)
    if status != GCM_OK:
        raise_status(status, gcm_last_error(status), "sealing a message")
    return bytes(out)


def open_message(data, key, nonce, aad=b""):
    """Open one GCM message: the inverse of :func:`seal_message`.

    Returns
    -------
    bytes or None
        The plaintext; None if the tag does not verify or `data` is shorter than a tag.
    """
    cdef BufferView source = readable(data, "data"), extra = readable(aad, "aad"), iv = readable(nonce, "nonce")
    cdef Key secret = as_key(key)
    cdef Py_ssize_t length = source.nbytes - 16
    cdef bytearray out
    cdef GcmContext *context
    cdef int status
    if iv.nbytes != 12:
        raise ValueError(f"nonce must be 12 bytes, got {iv.nbytes}")
    if length < 0:
        return None
    out = bytearray(length)
    context = gcm_context_new(secret.octets, secret.length, False)
    if context == NULL:
        raise_status(GCM_BACKEND, gcm_last_error(GCM_BACKEND), "keying AES-GCM")
    status = gcm_open(context, iv.data, extra.data, extra.nbytes, source.data, length, source.data + length, out)
    gcm_context_free(context)
    if status == GCM_BAD_TAG:
        return None
    if status != GCM_OK:
        raise_status(status, gcm_last_error(status), "opening a message")
    return bytes(out)


def library():
    """What OpenSSL this is: version, provider of AES-GCM, linkage, how to get a fast one, CPU settings."""
    cdef const char *cpu = OPENSSL_info(OPENSSL_INFO_CPU_SETTINGS)
    return {
        "version": OpenSSL_version(OPENSSL_VERSION).decode("ascii"),
        "number": OpenSSL_version_num(),
        "provider": OSSL_PROVIDER_get0_name(EVP_CIPHER_get0_provider(GCM[2])).decode("ascii", "replace"),
        "linkage": AGS1_OPENSSL_LINKAGE.decode("ascii"),
        "remedy": AGS1_OPENSSL_REMEDY.decode("utf-8"),
        "cpu_settings": cpu.decode("ascii") if cpu != NULL else "",
    }


cdef tuple _choose_library():
    """Choose the library of AES-GCM, and return its name and why. Before any context is made."""
    global LIBRARY, ags1_long_from
    found = library()
    name, reason, capsule, long_from = choice.choose(found["provider"], found["cpu_settings"])
    if capsule is not None:
        LIBRARY = <const GcmLibrary *>PyCapsule_GetPointer(capsule, b"ags1.core.boringssl")
    if long_from is not None:
        ags1_by_length[0], ags1_by_length[1] = LIBRARY, &OPENSSL
        ags1_long_from = long_from
        LIBRARY = &AGS1_BOTH
    return name, reason, long_from


ags1_splits = ags1_splits_messages()
_fetch_ciphers()
if ags1_drbg_start() != 1:
    raise_status(GCM_BACKEND, gcm_last_error(GCM_BACKEND), "making the random generator")
CIPHER, REASON, LONG_FROM = _choose_library()
