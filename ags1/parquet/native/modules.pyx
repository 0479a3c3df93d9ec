"""Modules of Parquet Modular Encryption, the encrypted parts of a Parquet file.

    GCM module   length (4, LE)   nonce (12)   ciphertext (n)   tag (16)      length = n + 28
    CTR module   length (4, LE)   nonce (12)   ciphertext (n)                 length = n + 12, not authenticated
    module AAD   AAD prefix   file unique   type (1)   [row group (2, LE)   column (2)   [page (2)]]

A worker keeps one pair of contexts and opens or seals any number of modules with it::

    modules_init(&modules, file_aad, file_aad_length, True)
    for each module:
        status = module_seal(&modules, key, key_length, ctr, type, row_group, column, page, nonce, data, length, out)
    modules_free(&modules)

Only pages have a page ordinal, and dictionary pages have none. In AES_GCM_CTR_V1 only the bodies of pages are CTR
modules. Source: Parquet encryption specification, "Encryption algorithms" and "Additional Authenticated Data".
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from ags1.core.buffer cimport BufferView, readable
from ags1.core.gcm cimport (
    GCM_BACKEND, GCM_BAD_TAG, GCM_NO_MEMORY, GCM_OK, Key, as_key, count_messages, ctr_context_free, ctr_context_new,
    ctr_context_rekey, ctr_crypt, draw_nonces, gcm_context_free, gcm_context_rekey, gcm_context_unkeyed, gcm_last_error,
    gcm_open, gcm_seal, new_nonces, raise_status,
)
from ags1.core.layout cimport ags1_load_le32, ags1_store_le32

from ags1.errors import AuthenticationError, FormatError, LimitError, TruncatedError

FOOTER = MODULE_FOOTER
COLUMN_METADATA = MODULE_COLUMN_METADATA
DATA_PAGE = MODULE_DATA_PAGE
DICTIONARY_PAGE = MODULE_DICTIONARY_PAGE
DATA_PAGE_HEADER = MODULE_DATA_PAGE_HEADER
DICTIONARY_PAGE_HEADER = MODULE_DICTIONARY_PAGE_HEADER
COLUMN_INDEX = MODULE_COLUMN_INDEX
OFFSET_INDEX = MODULE_OFFSET_INDEX
BLOOM_FILTER_HEADER = MODULE_BLOOM_FILTER_HEADER
BLOOM_FILTER_BITSET = MODULE_BLOOM_FILTER_BITSET

OVERHEAD = GCM_OVERHEAD
SIGNATURE_LENGTH = 28

NAMES = (
    "footer", "column metadata", "data page", "dictionary page", "data page header", "dictionary page header",
    "column index", "offset index", "Bloom filter header", "Bloom filter bitset",
)  # fmt: skip

# A length word is an int32 in the other implementations.
cdef int64_t MAX_MODULE_LENGTH = 0x7fffffff
# A module of more bytes is opened without the GIL.
cdef int64_t LONG_MODULE = 1 << 16


cdef int modules_init(Modules *modules, const uint8_t *file_aad, size_t file_aad_length, bint encrypt) noexcept nogil:
    memset(modules, 0, sizeof(Modules))
    modules.encrypt = encrypt
    modules.file_aad_length = file_aad_length
    modules.aad = <uint8_t *>malloc(file_aad_length + 7)
    if modules.aad == NULL:
        return GCM_NO_MEMORY
    if file_aad_length:
        memcpy(modules.aad, file_aad, file_aad_length)
    modules.gcm = gcm_context_unkeyed()
    if modules.gcm == NULL:
        return GCM_BACKEND
    return GCM_OK


cdef void modules_free(Modules *modules) noexcept nogil:
    gcm_context_free(modules.gcm)
    ctr_context_free(modules.ctr)
    free(modules.aad)
    memset(modules, 0, sizeof(Modules))


cdef inline void _store_ordinal(uint8_t *out, int ordinal) noexcept nogil:
    out[0] = <uint8_t>(ordinal & 0xff)
    out[1] = <uint8_t>(ordinal >> 8)


cdef size_t _write_aad(
        uint8_t *aad, size_t file_aad_length, int module_type, int row_group, int column, int page) noexcept nogil:
    """Complete the AAD after its file part; return its length."""
    cdef uint8_t *end = aad + file_aad_length
    end[0] = <uint8_t>module_type
    if module_type == MODULE_FOOTER:
        return file_aad_length + 1
    _store_ordinal(end + 1, row_group)
    _store_ordinal(end + 3, column)
    if module_type != MODULE_DATA_PAGE and module_type != MODULE_DATA_PAGE_HEADER:
        return file_aad_length + 5
    _store_ordinal(end + 5, page)
    return file_aad_length + 7


cdef inline int _key_gcm(Modules *modules, const uint8_t *key, size_t key_length) noexcept nogil:
    if modules.gcm_key == key:
        return GCM_OK
    # After a failure, the context has no key.
    modules.gcm_key = NULL
    if gcm_context_rekey(modules.gcm, key, key_length, modules.encrypt) != GCM_OK:
        return GCM_BACKEND
    modules.gcm_key = key
    return GCM_OK


cdef inline int _key_ctr(Modules *modules, const uint8_t *key, size_t key_length) noexcept nogil:
    if modules.ctr_key == key:
        return GCM_OK
    modules.ctr_key = NULL
    if modules.ctr == NULL:
        modules.ctr = ctr_context_new()
    if modules.ctr == NULL or ctr_context_rekey(modules.ctr, key, key_length) != GCM_OK:
        return GCM_BACKEND
    modules.ctr_key = key
    return GCM_OK


cdef int _seal(
        Modules *modules, const uint8_t *key, size_t key_length, bint ctr, const uint8_t *nonce, const uint8_t *aad,
        size_t aad_length, const uint8_t *data, int64_t length, uint8_t *out) noexcept nogil:
    memcpy(out + LENGTH_WORD, nonce, 12)
    if ctr:
        ags1_store_le32(out, <unsigned int>(length + CTR_OVERHEAD - LENGTH_WORD))
        if _key_ctr(modules, key, key_length) != GCM_OK:
            return GCM_BACKEND
        return ctr_crypt(modules.ctr, nonce, data, length, out + 16)
    ags1_store_le32(out, <unsigned int>(length + GCM_OVERHEAD - LENGTH_WORD))
    if _key_gcm(modules, key, key_length) != GCM_OK:
        return GCM_BACKEND
    return gcm_seal(modules.gcm, nonce, aad, aad_length, data, length, out + 16, out + 16 + length)


cdef int _open(
        Modules *modules, const uint8_t *key, size_t key_length, bint ctr, const uint8_t *aad, size_t aad_length,
        const uint8_t *data, int64_t length, uint8_t *out) noexcept nogil:
    if length < (CTR_OVERHEAD if ctr else GCM_OVERHEAD) or ags1_load_le32(data) != <unsigned int>(length - LENGTH_WORD):
        return MODULE_BAD_LENGTH
    if ctr:
        if _key_ctr(modules, key, key_length) != GCM_OK:
            return GCM_BACKEND
        return ctr_crypt(modules.ctr, data + LENGTH_WORD, data + 16, length - CTR_OVERHEAD, out)
    if _key_gcm(modules, key, key_length) != GCM_OK:
        return GCM_BACKEND
    return gcm_open(
        modules.gcm, data + LENGTH_WORD, aad, aad_length, data + 16, length - GCM_OVERHEAD, data + length - 16, out)


cdef int module_seal(
        Modules *modules, const uint8_t *key, size_t key_length, bint ctr, int module_type, int row_group, int column,
        int page, const uint8_t *nonce, const uint8_t *data, int64_t length, uint8_t *out) noexcept nogil:
    cdef size_t aad_length
    if length > MAX_MODULE_LENGTH - GCM_OVERHEAD:
        return MODULE_BAD_LENGTH
    aad_length = _write_aad(modules.aad, modules.file_aad_length, module_type, row_group, column, page)
    return _seal(modules, key, key_length, ctr, nonce, modules.aad, aad_length, data, length, out)


cdef int module_open(
        Modules *modules, const uint8_t *key, size_t key_length, bint ctr, int module_type, int row_group, int column,
        int page, const uint8_t *data, int64_t length, uint8_t *out) noexcept nogil:
    cdef size_t aad_length = _write_aad(modules.aad, modules.file_aad_length, module_type, row_group, column, page)
    return _open(modules, key, key_length, ctr, modules.aad, aad_length, data, length, out)


def check_ordinal(ordinal, str what, str name=None):
    """Refuse an ordinal that does not fit the AAD's int16.

    Raises
    ------
    LimitError
        Below 0 or above 32767. Wrapping round would give two modules the same AAD.
    """
    if not 0 <= ordinal <= MAX_ORDINAL:
        where = f"{name}: " if name else ""
        raise LimitError(
            f"{where}{what} {ordinal} is outside 0 to {MAX_ORDINAL}: encrypted Parquet files can have no more than "
            f"{MAX_ORDINAL + 1} row groups, columns, and pages in a column chunk"
        )
    return ordinal


def module_aad(file_aad, int module_type, row_group=None, column=None, page=None):
    """AAD of a module: the AAD of the file, the type (0 to 9), and the ordinals that the type needs.

    Raises
    ------
    LimitError
        An ordinal outside 0 to 32767.
    ValueError
        No such type, or an ordinal missing or too many.
    """
    cdef BufferView view = readable(file_aad, "file_aad")
    cdef bint has_page = module_type == MODULE_DATA_PAGE or module_type == MODULE_DATA_PAGE_HEADER
    cdef bytearray aad
    # Literal numbers: a comparison with an enum would be unsigned.
    if not 0 <= module_type <= 9:
        raise ValueError(f"module type {module_type} is not one of 0 to 9")
    if page is not None and not has_page:
        raise ValueError(f"a {NAMES[module_type]} has no page ordinal")
    for what, ordinal, needed in (
        ("row group", row_group, module_type != MODULE_FOOTER), ("column", column, module_type != MODULE_FOOTER),
        ("page", page, has_page),
    ):
        if needed and ordinal is None:
            raise ValueError(f"a {NAMES[module_type]} needs the ordinal of its {what}")
        if needed:
            check_ordinal(ordinal, what)
    aad = bytearray(view.nbytes + 7)
    memcpy(<uint8_t *>aad, view.data, view.nbytes)
    length = _write_aad(aad, view.nbytes, module_type, row_group or 0, column or 0, page or 0)
    return bytes(aad[:length])


def module_name(int module_type, row_group=None, str column=None, page=None):
    """Name of a module for messages: ``data page 3 of column 'a.b' in row group 0``."""
    text = NAMES[module_type]
    if page is not None and module_type in (MODULE_DATA_PAGE, MODULE_DATA_PAGE_HEADER):
        text = f"{text} {page}"
    if column is not None:
        text = f"{text} of column {column!r}"
    if row_group is not None:
        text = f"{text} in row group {row_group}"
    return text


def seal_module(data, key, aad, bint ctr=False):
    """Seal one module, length word included. CTR modules do not use the AAD.

    Raises
    ------
    LimitError
        The key has sealed 2^32 messages, or this one is longer than 2^31 - 1 bytes.
    BackendError
    """
    cdef Key secret = as_key(key)
    cdef BufferView plain = readable(data, "data"), extra = readable(aad, "aad")
    cdef uint8_t nonce[12]
    cdef bytearray out
    cdef uint8_t *target
    cdef Modules modules
    cdef int status
    if plain.nbytes > MAX_MODULE_LENGTH - GCM_OVERHEAD:
        raise LimitError(f"a module of {plain.nbytes} bytes is above the limit of {MAX_MODULE_LENGTH}")
    # CTR modules use the same source of nonces as GCM modules.
    count_messages(secret, 1)
    draw_nonces(nonce, 12)
    out = bytearray(plain.nbytes + (CTR_OVERHEAD if ctr else GCM_OVERHEAD))
    target = out
    status = modules_init(&modules, NULL, 0, True)
    if status == GCM_OK:
        with nogil:
            status = _seal(
                &modules, secret.octets, secret.length, ctr, nonce, extra.data, extra.nbytes, plain.data, plain.nbytes,
                target)
    modules_free(&modules)
    if status != GCM_OK:
        raise_status(status, gcm_last_error(status), "sealing a module")
    return bytes(out)


def seal_modules(file_aad, modules):
    """Seal modules of one file, (data, key, type, row group, column) each, with one context; no pages, no CTR modules.

    Without a key the data are returned as they are. Return their bytes in the same order. Errors are those of
    :func:`seal_module`, and LimitError for an ordinal.
    """
    cdef BufferView aad = readable(file_aad, "file_aad"), plain
    cdef Key key
    cdef bytes sealed
    cdef uint8_t *out
    cdef uint8_t *nonces
    cdef Modules state
    cdef int module_type, group_ordinal, column_ordinal, status
    cdef int64_t index
    cdef tuple wanted = tuple(modules)
    made = []
    # Keys must not be freed before the context that knows them by their addresses.
    keys = []
    if not wanted:
        return made
    nonces = new_nonces(len(wanted))
    status = modules_init(&state, aad.data, aad.nbytes, True)
    try:
        for index, (data, given, module_type, row_group, column) in enumerate(wanted):
            if given is None:
                made.append(bytes(data))
                continue
            key, plain = as_key(given), readable(data, "data")
            keys.append(key)
            if plain.nbytes > MAX_MODULE_LENGTH - GCM_OVERHEAD:
                raise LimitError(f"a module of {plain.nbytes} bytes is above the limit of {MAX_MODULE_LENGTH}")
            group_ordinal, column_ordinal = check_ordinal(row_group, "row group"), check_ordinal(column, "column")
            count_messages(key, 1)
            sealed = PyBytes_FromStringAndSize(NULL, plain.nbytes + GCM_OVERHEAD)
            out = <uint8_t *>PyBytes_AS_STRING(sealed)
            with nogil:
                if status == GCM_OK:
                    status = module_seal(
                        &state, key.octets, key.length, False, module_type, group_ordinal, column_ordinal, 0,
                        nonces + 12 * index, plain.data, plain.nbytes, out)
            if status != GCM_OK:
                raise_status(status, gcm_last_error(status), "sealing modules")
            made.append(sealed)
        return made
    finally:
        modules_free(&state)
        PyMem_Free(nonces)


def open_module(data, key, aad, bint ctr=False, str name="module"):
    """Open one module, with its length word and nothing after it; errors name it `name`.

    The plaintext of parquet-java's may have zero bytes behind the structure that is meant.

    Raises
    ------
    AuthenticationError
        The tag does not verify.
    FormatError, TruncatedError
        A length word that does not agree with the bytes.
    """
    cdef Key secret = as_key(key)
    cdef BufferView sealed = readable(data, "data"), extra = readable(aad, "aad")
    cdef int64_t stated
    cdef int overhead = CTR_OVERHEAD if ctr else GCM_OVERHEAD
    cdef bytearray out
    cdef uint8_t *target
    cdef Modules modules
    cdef int status
    if sealed.nbytes < overhead:
        raise TruncatedError(f"{name}: {sealed.nbytes} bytes are too few for an encrypted module")
    stated = ags1_load_le32(sealed.data)
    if stated + LENGTH_WORD > sealed.nbytes:
        raise TruncatedError(
            f"{name}: its length word says {stated} bytes, but there are {sealed.nbytes - LENGTH_WORD}"
        )
    if stated + LENGTH_WORD < sealed.nbytes:
        raise FormatError(
            f"{name}: its length word says {stated} bytes, but {sealed.nbytes - LENGTH_WORD} belong to it"
        )
    out = bytearray(sealed.nbytes - overhead)
    target = out
    status = modules_init(&modules, NULL, 0, False)
    if status == GCM_OK:
        with nogil:
            status = _open(
                &modules, secret.octets, secret.length, ctr, extra.data, extra.nbytes, sealed.data, sealed.nbytes,
                target)
    modules_free(&modules)
    if status == GCM_BAD_TAG:
        raise AuthenticationError(f"{name}: wrong key, wrong AAD prefix, or damaged data")
    if status != GCM_OK:
        raise_status(status, gcm_last_error(status), "opening a module")
    return bytes(out)


@cython.final
cdef class ModuleOpener:
    """Opens small modules of one file with one context; no CTR modules. Thread-safe, because it keeps the GIL."""

    def __cinit__(self, file_aad):
        cdef BufferView aad = readable(file_aad, "file_aad")
        cdef int status = modules_init(&self.modules, aad.data, aad.nbytes, False)
        if status != GCM_OK:
            raise_status(status, gcm_last_error(status), "opening modules")

    def __dealloc__(self):
        modules_free(&self.modules)

    cdef bytes open(self, data, Key key, int module_type, int row_group, int column, int64_t page):
        cdef BufferView sealed = readable(data, "data")
        cdef bytes plain
        if not GCM_OVERHEAD <= sealed.nbytes <= LONG_MODULE:
            return None
        if row_group > MAX_ORDINAL or column > MAX_ORDINAL or page > MAX_ORDINAL or row_group < 0 or column < 0:
            return None
        if self.key is not key:
            # The context knows a key by its address, which another key may get when this one is freed.
            self.modules.gcm_key = NULL
            self.key = key
        plain = PyBytes_FromStringAndSize(NULL, sealed.nbytes - GCM_OVERHEAD)
        if module_open(
                &self.modules, key.octets, key.length, False, module_type, row_group, column, <int>page, sealed.data,
                sealed.nbytes, <uint8_t *>PyBytes_AS_STRING(plain)) != GCM_OK:
            return None
        return plain


def sign_footer(footer, key, aad):
    """Signature of a plaintext footer exactly as it is stored: nonce and tag, 28 bytes."""
    module = seal_module(footer, key, aad)
    return module[LENGTH_WORD : LENGTH_WORD + 12] + module[len(module) - 16 :]


def verify_footer(footer, signature, key, aad, str name="footer"):
    """Check the signature of a plaintext footer, over its stored bytes.

    Raises
    ------
    AuthenticationError
        The signature does not belong to these bytes, this key and this AAD.
    """
    cdef Key secret = as_key(key)
    cdef BufferView plain = readable(footer, "footer"), extra = readable(aad, "aad")
    cdef BufferView given = readable(signature, "signature")
    cdef bytearray out = bytearray(plain.nbytes)
    cdef uint8_t *target = out
    cdef uint8_t tag[16]
    cdef uint8_t difference = 0
    cdef Modules modules
    cdef int status, index
    if given.nbytes != 28:
        raise TruncatedError(f"{name}: a footer signature has 28 bytes, not {given.nbytes}")
    status = modules_init(&modules, NULL, 0, True)
    try:
        with nogil:
            if status == GCM_OK:
                status = _key_gcm(&modules, secret.octets, secret.length)
            if status == GCM_OK:
                status = gcm_seal(
                    modules.gcm, given.data, extra.data, extra.nbytes, plain.data, plain.nbytes, target, tag)
    finally:
        modules_free(&modules)
    if status != GCM_OK:
        raise_status(status, gcm_last_error(status), "verifying a footer's signature")
    for index in range(16):
        difference |= tag[index] ^ given.data[12 + index]
    if difference:
        raise AuthenticationError(
            f"{name}: its signature does not verify: wrong footer key, wrong AAD prefix, or a changed footer"
        )
