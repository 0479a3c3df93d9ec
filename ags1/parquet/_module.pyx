"""Modules of Parquet Modular Encryption: what an encrypted Parquet file is made of.

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

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from ags1._buffer cimport BufferView, readable
from ags1._gcm cimport (
    GCM_BACKEND,
    GCM_BAD_TAG,
    GCM_NO_MEMORY,
    GCM_OK,
    Key,
    as_key,
    context_new,
    count_messages,
    ctr_context_rekey,
    ctr_crypt,
    gcm_context_free,
    gcm_context_rekey,
    gcm_last_error,
    gcm_open,
    gcm_random,
    gcm_seal,
    raise_status,
)
from ags1.layout cimport ags1_load_le32, ags1_store_le32

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
LARGEST_ORDINAL = MAX_ORDINAL
SIGNATURE_LENGTH = 28

NAMES = (
    "footer", "column metadata", "data page", "dictionary page", "data page header", "dictionary page header",
    "column index", "offset index", "Bloom filter header", "Bloom filter bitset",
)  # fmt: skip

# A length word is an int32 in the other implementations.
cdef int64_t MAX_MODULE_LENGTH = 0x7fffffff


cdef int modules_init(Modules *modules, const uint8_t *file_aad, size_t file_aad_length, bint encrypt) noexcept nogil:
    memset(modules, 0, sizeof(Modules))
    modules.encrypt = encrypt
    modules.file_aad_length = file_aad_length
    modules.aad = <uint8_t *>malloc(file_aad_length + 7)
    if modules.aad == NULL:
        return GCM_NO_MEMORY
    if file_aad_length:
        memcpy(modules.aad, file_aad, file_aad_length)
    modules.gcm = context_new()
    modules.ctr = context_new()
    if modules.gcm == NULL or modules.ctr == NULL:
        return GCM_BACKEND
    return GCM_OK


cdef void modules_free(Modules *modules) noexcept nogil:
    gcm_context_free(modules.gcm)
    gcm_context_free(modules.ctr)
    free(modules.aad)
    memset(modules, 0, sizeof(Modules))


cdef inline void _store_ordinal(uint8_t *out, int ordinal) noexcept nogil:
    out[0] = <uint8_t>(ordinal & 0xff)
    out[1] = <uint8_t>(ordinal >> 8)


cdef size_t _write_aad(
        uint8_t *aad, size_t file_aad_length, int module_type, int row_group, int column, int page) noexcept nogil:
    """Complete the AAD behind its file part; return its length."""
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
    # What a failure leaves in the context is no key at all.
    modules.gcm_key = NULL
    if gcm_context_rekey(modules.gcm, key, key_length, modules.encrypt) != GCM_OK:
        return GCM_BACKEND
    modules.gcm_key = key
    return GCM_OK


cdef inline int _key_ctr(Modules *modules, const uint8_t *key, size_t key_length) noexcept nogil:
    if modules.ctr_key == key:
        return GCM_OK
    modules.ctr_key = NULL
    if ctr_context_rekey(modules.ctr, key, key_length) != GCM_OK:
        return GCM_BACKEND
    modules.ctr_key = key
    return GCM_OK


cdef int module_seal(
        Modules *modules, const uint8_t *key, size_t key_length, bint ctr, int module_type, int row_group, int column,
        int page, const uint8_t *nonce, const uint8_t *data, int64_t length, uint8_t *out) noexcept nogil:
    cdef size_t aad_length
    if length > MAX_MODULE_LENGTH - GCM_OVERHEAD:
        return MODULE_BAD_LENGTH
    memcpy(out + LENGTH_WORD, nonce, 12)
    if ctr:
        ags1_store_le32(out, <unsigned int>(length + CTR_OVERHEAD - LENGTH_WORD))
        if _key_ctr(modules, key, key_length) != GCM_OK:
            return GCM_BACKEND
        return ctr_crypt(modules.ctr, nonce, data, length, out + 16)
    ags1_store_le32(out, <unsigned int>(length + GCM_OVERHEAD - LENGTH_WORD))
    if _key_gcm(modules, key, key_length) != GCM_OK:
        return GCM_BACKEND
    aad_length = _write_aad(modules.aad, modules.file_aad_length, module_type, row_group, column, page)
    return gcm_seal(modules.gcm, nonce, modules.aad, aad_length, data, length, out + 16, out + 16 + length)


cdef int module_open(
        Modules *modules, const uint8_t *key, size_t key_length, bint ctr, int module_type, int row_group, int column,
        int page, const uint8_t *data, int64_t length, uint8_t *out) noexcept nogil:
    cdef size_t aad_length
    if length < (CTR_OVERHEAD if ctr else GCM_OVERHEAD) or ags1_load_le32(data) != <unsigned int>(length - LENGTH_WORD):
        return MODULE_BAD_LENGTH
    if ctr:
        if _key_ctr(modules, key, key_length) != GCM_OK:
            return GCM_BACKEND
        return ctr_crypt(modules.ctr, data + LENGTH_WORD, data + 16, length - CTR_OVERHEAD, out)
    if _key_gcm(modules, key, key_length) != GCM_OK:
        return GCM_BACKEND
    aad_length = _write_aad(modules.aad, modules.file_aad_length, module_type, row_group, column, page)
    return gcm_open(
        modules.gcm, data + LENGTH_WORD, modules.aad, aad_length, data + 16, length - GCM_OVERHEAD, data + length - 16,
        out)


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
    """AAD of a module.

    Parameters
    ----------
    file_aad : bytes
        AAD prefix and file unique.
    module_type : int
        0 to 9, the constants of this module.
    row_group, column, page : int, optional
        Ordinals, as the type needs them.

    Raises
    ------
    LimitError
        An ordinal outside 0 to 32767.
    ValueError
        No such type, or an ordinal missing or too many.
    """
    needed = ()
    # In numbers: the compiler would compare as unsigned what it compares with an enum.
    if not 0 <= module_type <= 9:
        raise ValueError(f"module type {module_type} is not one of 0 to 9")
    if module_type != MODULE_FOOTER:
        needed = (("row group", row_group), ("column", column))
    if module_type == MODULE_DATA_PAGE or module_type == MODULE_DATA_PAGE_HEADER:
        needed = (*needed, ("page", page))
    elif page is not None:
        raise ValueError(f"a {NAMES[module_type]} has no page ordinal")
    ordinals = bytearray()
    for what, ordinal in needed:
        if ordinal is None:
            raise ValueError(f"a {NAMES[module_type]} needs the ordinal of its {what}")
        ordinals += check_ordinal(ordinal, what).to_bytes(2, "little")
    return bytes(file_aad) + bytes([module_type]) + bytes(ordinals)


def module_name(int module_type, row_group=None, str column=None, page=None):
    """What messages call a module: ``data page 3 of column 'a.b' in row group 0``."""
    text = NAMES[module_type]
    if page is not None and module_type in (MODULE_DATA_PAGE, MODULE_DATA_PAGE_HEADER):
        text = f"{text} {page}"
    if column is not None:
        text = f"{text} of column {column!r}"
    if row_group is not None:
        text = f"{text} in row group {row_group}"
    return text


def seal_modules(list data, list aads, key, bint ctr=False):
    """Seal many modules with one key in one call.

    Parameters
    ----------
    data : list of bytes
        Plaintext of each.
    aads : list of bytes
        AAD of each; not used by CTR.

    Returns
    -------
    list of bytes
        Modules, each with its length word.

    Raises
    ------
    LimitError
        The key has sealed 2^32 messages, or one is longer than 2^31 - 1 bytes.
    BackendError
    """
    cdef Key secret = as_key(key)
    cdef Py_ssize_t count = len(data), index
    cdef BufferView plain, aad
    cdef bytearray nonces = bytearray(12 * count)
    cdef bytearray out
    cdef uint8_t *nonce = nonces
    cdef uint8_t *target
    cdef Modules modules
    cdef int status
    cdef list sealed = []
    if len(aads) != count:
        raise ValueError(f"{len(aads)} AADs for {count} modules")
    # CTR modules draw their nonces from the same as GCM modules.
    count_messages(secret, count)
    status = gcm_random(nonce, 12 * count)
    if status != GCM_OK:
        raise_status(status, gcm_last_error(status), "drawing nonces")
    status = modules_init(&modules, NULL, 0, True)
    try:
        for index in range(count):
            if status != GCM_OK:
                break
            plain = readable(data[index], "data")
            aad = readable(aads[index], "aad")
            if plain.nbytes > MAX_MODULE_LENGTH - GCM_OVERHEAD:
                raise LimitError(f"a module of {plain.nbytes} bytes is above the {MAX_MODULE_LENGTH} that one can have")
            out = bytearray(plain.nbytes + (CTR_OVERHEAD if ctr else GCM_OVERHEAD))
            target = out
            memcpy(target + LENGTH_WORD, nonce + 12 * index, 12)
            ags1_store_le32(target, <unsigned int>(len(out) - LENGTH_WORD))
            with nogil:
                if ctr:
                    status = _key_ctr(&modules, secret.octets, secret.length)
                    if status == GCM_OK:
                        status = ctr_crypt(modules.ctr, target + 4, plain.data, plain.nbytes, target + 16)
                else:
                    status = _key_gcm(&modules, secret.octets, secret.length)
                    if status == GCM_OK:
                        status = gcm_seal(
                            modules.gcm, target + 4, aad.data, aad.nbytes, plain.data, plain.nbytes, target + 16,
                            target + 16 + plain.nbytes)
            sealed.append(bytes(out))
        if status != GCM_OK:
            raise_status(status, gcm_last_error(status), "sealing modules")
    finally:
        modules_free(&modules)
    return sealed


def open_modules(list data, list aads, key, bint ctr=False, list names=None):
    """Open many modules of one key in one call.

    Parameters
    ----------
    data : list of bytes-like
        Modules, each with its length word and nothing behind it.
    aads : list of bytes
        AAD of each; not used by CTR.
    names : list of str, optional
        What errors call each.

    Returns
    -------
    list of bytes
        Plaintext of each. parquet-java's may have zero bytes behind the structure that is meant.

    Raises
    ------
    AuthenticationError
        Names the first module whose tag does not verify.
    FormatError, TruncatedError
        A length word that does not agree with the bytes.
    """
    cdef Key secret = as_key(key)
    cdef Py_ssize_t count = len(data), index
    cdef int64_t stated
    cdef BufferView sealed, aad
    cdef Modules modules
    cdef bytearray out
    cdef uint8_t *target
    cdef int overhead = CTR_OVERHEAD if ctr else GCM_OVERHEAD
    cdef int status
    cdef list opened = []
    if len(aads) != count:
        raise ValueError(f"{len(aads)} AADs for {count} modules")
    status = modules_init(&modules, NULL, 0, False)
    try:
        for index in range(count):
            if status != GCM_OK:
                break
            name = names[index] if names is not None else f"module {index}"
            sealed = readable(data[index], "data")
            aad = readable(aads[index], "aad")
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
            with nogil:
                if ctr:
                    status = _key_ctr(&modules, secret.octets, secret.length)
                    if status == GCM_OK:
                        status = ctr_crypt(
                            modules.ctr, sealed.data + 4, sealed.data + 16, sealed.nbytes - overhead, target)
                else:
                    status = _key_gcm(&modules, secret.octets, secret.length)
                    if status == GCM_OK:
                        status = gcm_open(
                            modules.gcm, sealed.data + 4, aad.data, aad.nbytes, sealed.data + 16,
                            sealed.nbytes - overhead, sealed.data + sealed.nbytes - 16, target)
            if status == GCM_BAD_TAG:
                raise AuthenticationError(f"{name}: wrong key, wrong AAD prefix, or damaged data")
            opened.append(bytes(out))
        if status != GCM_OK:
            raise_status(status, gcm_last_error(status), "opening modules")
    finally:
        modules_free(&modules)
    return opened


def seal_module(data, key, aad, bint ctr=False):
    """One module of :func:`seal_modules`."""
    return seal_modules([data], [aad], key, ctr)[0]


def open_module(data, key, aad, bint ctr=False, str name="module"):
    """One module of :func:`open_modules`."""
    return open_modules([data], [aad], key, ctr, [name])[0]


def sign_footer(footer, key, aad):
    """Signature of a plaintext footer: nonce and tag, 28 bytes.

    Parameters
    ----------
    footer : bytes-like
        The serialized FileMetaData, exactly as it is stored.
    """
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
