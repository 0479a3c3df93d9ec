# A module of somebody else's: compiled against what the installed wheel ships in ags1.get_include().
from libc.stdint cimport int64_t

from ags1.core.layout cimport AGS1_DEFAULT_BLOCK_LENGTH, AGS1_LAYOUT_OK, ags1_encrypted_length, ags1_plaintext_length

DEFAULT_BLOCK_LENGTH = AGS1_DEFAULT_BLOCK_LENGTH


def encrypted_length(int64_t plaintext_length, int64_t block_length=AGS1_DEFAULT_BLOCK_LENGTH):
    cdef int64_t length = 0
    if ags1_encrypted_length(plaintext_length, block_length, &length) != AGS1_LAYOUT_OK:
        raise ValueError("no such stream")
    return length


def plaintext_length(int64_t encrypted_length, int64_t block_length=AGS1_DEFAULT_BLOCK_LENGTH):
    cdef int64_t length = 0
    if ags1_plaintext_length(encrypted_length, block_length, &length) != AGS1_LAYOUT_OK:
        raise ValueError("no such stream")
    return length
