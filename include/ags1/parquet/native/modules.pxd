# Declarations of ags1.parquet.native.modules for cimport: modules of Parquet Modular Encryption on raw memory, no GIL.
cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from ags1.core.gcm cimport Key
from ags1.core.gcm_library cimport CtrContext, GcmContext

cdef enum ModuleType:
    MODULE_FOOTER = 0
    MODULE_COLUMN_METADATA = 1
    MODULE_DATA_PAGE = 2
    MODULE_DICTIONARY_PAGE = 3
    MODULE_DATA_PAGE_HEADER = 4
    MODULE_DICTIONARY_PAGE_HEADER = 5
    MODULE_COLUMN_INDEX = 6
    MODULE_OFFSET_INDEX = 7
    MODULE_BLOOM_FILTER_HEADER = 8
    MODULE_BLOOM_FILTER_BITSET = 9

cdef enum:
    LENGTH_WORD = 4
    GCM_OVERHEAD = 32            # length word, nonce, tag
    CTR_OVERHEAD = 16            # length word, nonce
    MAX_ORDINAL = 32767
    MODULE_BAD_LENGTH = 32       # beside GcmStatus: a length word that contradicts the bytes there are

# One worker's contexts for modules of one file in one direction, keyed when the key changes.
cdef struct Modules:
    GcmContext *gcm
    CtrContext *ctr
    const uint8_t *gcm_key       # whose key schedule the context holds, by address: set it to NULL where keys may die
    const uint8_t *ctr_key
    uint8_t *aad
    size_t file_aad_length
    bint encrypt

# GcmStatus. modules_free may be called after a failed modules_init, and twice.
cdef int modules_init(Modules *modules, const uint8_t *file_aad, size_t file_aad_length, bint encrypt) noexcept nogil
cdef void modules_free(Modules *modules) noexcept nogil

# Seals `length` bytes into length + GCM_OVERHEAD (CTR_OVERHEAD) bytes at out. Ordinals that a type does not have are
# not looked at; those that it has are in 0..MAX_ORDINAL. data may be out + 16 or apart from it.
cdef int module_seal(
    Modules *modules, const uint8_t *key, size_t key_length, bint ctr, int module_type, int row_group, int column,
    int page, const uint8_t *nonce, const uint8_t *data, int64_t length, uint8_t *out) noexcept nogil
# Opens the module of exactly `length` bytes, its length word included, into length - GCM_OVERHEAD (CTR_OVERHEAD) bytes
# at out, which are zero after GCM_BAD_TAG.
cdef int module_open(
    Modules *modules, const uint8_t *key, size_t key_length, bint ctr, int module_type, int row_group, int column,
    int page, const uint8_t *data, int64_t length, uint8_t *out) noexcept nogil


@cython.final
cdef class ModuleOpener:
    cdef Modules modules
    cdef Key key                 # whose key schedule the context holds
    # Page -1: the type has none. None: `open_module` says why.
    cdef bytes open(self, data, Key key, int module_type, int row_group, int column, int64_t page)
