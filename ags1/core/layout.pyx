"""Sizes, offsets and the header of AGS1: pure arithmetic, overflow-checked; no crypto, no I/O.

    offset 0      4          8                     8 + (B + 28)
           | AGS1 | B (u32) | block 0             | block 1             | ...  | last block         |
                            | nonce ct(B)     tag | nonce ct(B)     tag |      | nonce ct(1..B) tag |
                              12    B         16

The arithmetic itself is C, in ``include/ags1/layout.h``; this module gives it Python's argument checks and errors.
A caller that plans reads does::

    first = plaintext_to_block(offset, block_length)
    start = block_to_ciphertext(first, block_length)

Source: AES GCM Stream specification, "File structure"; offsets: the discussion of its pull request, with an
overhead of 28 bytes a block (the discussion says 24, which forgets that a GCM tag has 16 bytes).
"""

from libc.stdint cimport int64_t, uint8_t

import operator

from ags1.errors import FormatError, LimitError, TruncatedError

ctypedef int (*Measure)(int64_t length, int64_t block_length, int64_t *out) noexcept nogil

MAGIC = b"AGS1"
HEADER_LENGTH = AGS1_HEADER_LENGTH
NONCE_LENGTH = AGS1_NONCE_LENGTH
TAG_LENGTH = AGS1_TAG_LENGTH
BLOCK_OVERHEAD = AGS1_BLOCK_OVERHEAD
MIN_ENCRYPTED_LENGTH = AGS1_MIN_ENCRYPTED_LENGTH
DEFAULT_BLOCK_LENGTH = AGS1_DEFAULT_BLOCK_LENGTH
MAX_BLOCK_LENGTH = AGS1_MAX_BLOCK_LENGTH
MAX_BLOCKS = AGS1_MAX_BLOCKS

# What a file that is not AGS1 most likely is, by its first bytes: said in the error, since the cure differs.
_OTHER_FORMATS = (
    (b"PAR1", "a Parquet file (plaintext footer)"),
    (b"PARE", "an encrypted Parquet file: Parquet Modular Encryption, not AGS1"),
    (b"Obj\x01", "an unencrypted Avro file"),
    (b"ORC", "an ORC file"),
    (b"ARROW1", "an unencrypted Arrow IPC file"),
    (b"PFA1", "an unencrypted Puffin file"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file"),
    (b"PK\x03\x04", "a zip file"),
)


cdef int64_t _to_int64(object value, str name) except? -1:
    value = operator.index(value)
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")
    if value > 0x7FFFFFFFFFFFFFFF:
        raise LimitError(f"{name} {value} is beyond what a stream of 2^31 - 1 blocks can hold")
    return value


cdef int64_t _to_block_length(object value) except -1:
    value = operator.index(value)
    if not 1 <= value <= AGS1_MAX_BLOCK_LENGTH:
        raise ValueError(f"block_length must be 1 to {AGS1_MAX_BLOCK_LENGTH} bytes, got {value}")
    return value


cdef object _length_error(int status, int64_t length, int64_t block_length):
    if status == AGS1_LAYOUT_TOO_SHORT:
        return TruncatedError(
            f"{length} bytes is shorter than the shortest AGS1 stream ({AGS1_MIN_ENCRYPTED_LENGTH} bytes, "
            "a header and one empty block): the data is truncated or is not AGS1"
        )
    if status == AGS1_LAYOUT_PARTIAL_BLOCK:
        tail = (length - AGS1_HEADER_LENGTH) % (block_length + AGS1_BLOCK_OVERHEAD)
        return TruncatedError(
            f"{length} bytes ends {tail} bytes into a block of which nonce and tag alone take "
            f"{AGS1_BLOCK_OVERHEAD}: the stream is truncated, or its block length is not {block_length}"
        )
    if status == AGS1_LAYOUT_TRAILING_BLOCK:
        return FormatError(
            f"{length} bytes ends with an empty block after full ones, which no writer makes: "
            f"the stream is truncated or was altered, or its block length is not {block_length}"
        )
    if status == AGS1_LAYOUT_TOO_MANY_BLOCKS:
        return LimitError(
            f"{length} bytes needs more than {AGS1_MAX_BLOCKS} blocks of {block_length} bytes: "
            "use a larger block_length or several files"
        )
    return ValueError(f"bad length {length} or block length {block_length}")


cdef int64_t _measured(Measure measure, object value, str name, object block_length) except? -1:
    cdef int64_t out
    cdef int64_t block = _to_block_length(block_length)
    cdef int64_t length = _to_int64(value, name)
    cdef int status = measure(length, block, &out)
    if status:
        raise _length_error(status, length, block)
    return out


def encrypted_length(plaintext_length, block_length=AGS1_DEFAULT_BLOCK_LENGTH):
    """Length in bytes of the AGS1 stream that holds `plaintext_length` bytes.

    Parameters
    ----------
    plaintext_length : int
        Bytes of plaintext, 0 or more.
    block_length : int
        Bytes of plaintext in a block.

    Returns
    -------
    int
        Bytes of ciphertext, header included; 36 for an empty plaintext.

    Raises
    ------
    ValueError
        A negative length, or a block length outside 1 .. 2^31 - 1.
    LimitError
        More than 2^31 - 1 blocks.
    """
    return _measured(ags1_encrypted_length, plaintext_length, "plaintext_length", block_length)


def plaintext_length(encrypted_length, block_length=AGS1_DEFAULT_BLOCK_LENGTH):
    """Length in bytes of the plaintext in an AGS1 stream of `encrypted_length` bytes.

    Parameters
    ----------
    encrypted_length : int
        Bytes of the whole stream, header included.
    block_length : int
        The block length in the stream's header.

    Raises
    ------
    TruncatedError
        Fewer than 36 bytes, or a last block of 1 to 27 bytes.
    FormatError
        An empty block after full ones.
    LimitError
        More than 2^31 - 1 blocks.
    ValueError
        A negative length, or a block length outside 1 .. 2^31 - 1.
    """
    return _measured(ags1_plaintext_length, encrypted_length, "encrypted_length", block_length)


def block_count(plaintext_length, block_length=AGS1_DEFAULT_BLOCK_LENGTH):
    """Number of blocks that hold `plaintext_length` bytes: 1 for an empty plaintext.

    Raises
    ------
    ValueError, LimitError
        As :func:`encrypted_length`.
    """
    return _measured(ags1_block_count, plaintext_length, "plaintext_length", block_length)


def stored_length(plaintext_length, block_length=AGS1_DEFAULT_BLOCK_LENGTH):
    """Bytes that the blocks of this much plaintext take, without a header: whole blocks of a stream, or its last ones.

    Raises
    ------
    ValueError, LimitError
        As :func:`encrypted_length`.
    """
    return encrypted_length(plaintext_length, block_length) - AGS1_HEADER_LENGTH


def plaintext_to_block(offset, block_length=AGS1_DEFAULT_BLOCK_LENGTH):
    """Index of the block that holds the plaintext byte at `offset`."""
    return _to_int64(offset, "offset") // _to_block_length(block_length)


def block_to_ciphertext(block_index, block_length=AGS1_DEFAULT_BLOCK_LENGTH):
    """Offset in the encrypted stream at which a block starts, that is, of its nonce.

    Parameters
    ----------
    block_index : int
        0 .. 2^31 - 1; the index one past the last block gives the length of a stream of full blocks.

    Raises
    ------
    LimitError
        An index above 2^31 - 1.
    """
    cdef int64_t block = _to_block_length(block_length)
    cdef int64_t index = _to_int64(block_index, "block_index")
    if index > AGS1_MAX_BLOCKS:
        raise LimitError(f"block index {index} is above {AGS1_MAX_BLOCKS}, the most blocks that a stream can have")
    return ags1_block_offset(index, block)


cdef int64_t _behind_header(object offset) except -1:
    """Bytes from the end of the header to an offset in the encrypted stream."""
    cdef int64_t position = _to_int64(offset, "offset") - AGS1_HEADER_LENGTH
    if position < 0:
        raise ValueError(f"offset {offset} is inside the {AGS1_HEADER_LENGTH}-byte header: it stores no plaintext")
    return position


def cipher_block_index(offset, block_length=AGS1_DEFAULT_BLOCK_LENGTH):
    """Index of the block that stores the byte at `offset` of the encrypted stream, nonce and tag included.

    The inverse of :func:`block_to_ciphertext`, under the name that the AGS1 discussion uses.

    Parameters
    ----------
    offset : int
        Offset in the encrypted stream, at least 8 (behind the header).
    block_length : int
        The stream's block length.

    Raises
    ------
    ValueError
        An offset inside the header.
    LimitError
        An offset beyond the 2^31 - 1 blocks that a stream can have.
    """
    cdef int64_t block = _to_block_length(block_length)
    cdef int64_t index = _behind_header(offset) // (block + AGS1_BLOCK_OVERHEAD)
    if index > AGS1_MAX_BLOCKS:
        raise LimitError(f"offset {offset} is beyond the {AGS1_MAX_BLOCKS} blocks that a stream can have")
    return index


def ciphertext_to_plaintext(offset, block_length=AGS1_DEFAULT_BLOCK_LENGTH, *, plaintext_size=None, exact=False):
    """Plaintext offset for an offset in the encrypted stream, for planning splits.

    The function never decreases, and maps the start of a block to the block's first byte, so split points that are
    converted with it tile the plaintext exactly when they tile the ciphertext.

    Parameters
    ----------
    offset : int
        Offset in the encrypted stream, at least 8 (behind the header).
    block_length : int
        The stream's block length.
    plaintext_size : int, optional
        Bytes of plaintext in the stream; the result is clamped to it.
    exact : bool
        False counts from the start of the block, as the AGS1 discussion does. True counts from the first byte of
        ciphertext, 12 bytes later, so that the result is the very byte that is stored at `offset`.

    Raises
    ------
    ValueError
        An offset inside the header.
    """
    cdef int64_t block = _to_block_length(block_length)
    cdef int64_t index = cipher_block_index(offset, block), local, result
    local = _behind_header(offset) % (block + AGS1_BLOCK_OVERHEAD)
    if exact:
        local -= AGS1_NONCE_LENGTH
    local = min(max(local, 0), block)
    result = index * block + local
    if plaintext_size is not None:
        return min(result, _to_int64(plaintext_size, "plaintext_size"))
    return result


def split_offsets(plaintext_size, split_size, block_length=AGS1_DEFAULT_BLOCK_LENGTH):
    """Plaintext offsets at which to start the splits of a stream, each on a block boundary.

    A split that starts on a block boundary shares no block with its neighbours, so no block is decrypted twice.

    Parameters
    ----------
    plaintext_size : int
        Bytes of plaintext in the stream.
    split_size : int
        Wanted bytes of plaintext in a split; splits are no larger, unless one block is.
    block_length : int
        The stream's block length.

    Returns
    -------
    list of int
        Ascending, starting with 0. An empty stream has one (empty) split.

    Raises
    ------
    ValueError
        `split_size` below 1, a negative size, a bad block length.
    """
    cdef int64_t size = _to_int64(plaintext_size, "plaintext_size")
    cdef int64_t block = _to_block_length(block_length)
    split = operator.index(split_size)
    if split < 1:
        raise ValueError(f"split_size must be at least 1 byte, got {split}")
    step = max(split - split % block, block)
    return list(range(0, max(size, 1), step))


def write_header(block_length=AGS1_DEFAULT_BLOCK_LENGTH):
    """The 8 bytes that open a stream: magic and block length."""
    cdef uint8_t out[AGS1_HEADER_LENGTH]
    ags1_write_header(out, _to_block_length(block_length))
    return out[:AGS1_HEADER_LENGTH]


def read_header(data, name=None):
    """Block length from the first bytes of a stream.

    Parameters
    ----------
    data : bytes
        The first 8 bytes of the stream, or fewer if it has fewer; more are ignored.
    name : str, optional
        What to call the stream in an error.

    Raises
    ------
    TruncatedError
        The bytes agree with an AGS1 header but end before it does.
    FormatError
        Not AGS1, or a block length of 0 or above 2^31 - 1.
    """
    cdef bytes head = bytes(data[:16])
    cdef int64_t block_length = 0
    cdef int status
    where = f"{name}: " if name else ""
    if len(head) < AGS1_HEADER_LENGTH:
        if head[:4] == MAGIC[:len(head)]:
            raise TruncatedError(
                f"{where}only {len(head)} bytes, but an AGS1 stream has at least {AGS1_MIN_ENCRYPTED_LENGTH}: "
                "it is empty or truncated"
            )
        status = AGS1_LAYOUT_NOT_AGS1
    else:
        status = ags1_read_header(<const uint8_t *>head, &block_length)
    if status == AGS1_LAYOUT_NOT_AGS1:
        for magic, description in _OTHER_FORMATS:
            if head.startswith(magic):
                raise FormatError(f"{where}not an AGS1 stream: it starts like {description}")
        raise FormatError(
            f"{where}not an AGS1 stream: it starts with {head[:4].hex(' ')} instead of 41 47 53 31 (\"AGS1\"); "
            "it may be plaintext, or damaged at its start"
        )
    if status == AGS1_LAYOUT_BAD_BLOCK_LENGTH:
        raise FormatError(
            f"{where}the header's block length is {int.from_bytes(head[4:8], 'little')} bytes, outside "
            f"1 to {AGS1_MAX_BLOCK_LENGTH}: the header is damaged"
        )
    return block_length
