"""The cipher of one stream: key, AAD prefix and block length in one object.

    BlockCipher.open(data, out)          memory  -> memory
               .seal(data, out)
               .open_from(source, out)   source  -> memory    straight from a descriptor, where the source has one
               .seal_to(output, data)    memory  -> output    straight into a descriptor, where the output has one
               .seal_file, .open_file    descriptor -> descriptor

Functions that move blocks take a BlockCipher instead of its parts.
"""

from __future__ import annotations

from collections.abc import Callable

from ags1 import layout
from ags1.core import blocks as native_blocks
from ags1.core import descriptors
from ags1.core.gcm import Key
from ags1.storage import Output, Source
from ags1.support.typing import Buffer

Tell = Callable[[int], object]
"""Called now and then with the bytes of plaintext that are done so far; an exception stops the work."""

# An impossible end of a stream: too few bytes for a block, too many for the rest of a tag that a failed write cut.
# (A single byte would be the right last byte of a tag in one case of 256.)
INCOMPLETE = bytes(layout.BLOCK_OVERHEAD - 1)


class BlockCipher:
    """Seals and opens ranges of whole blocks, by default on every usable CPU. Immutable and thread-safe."""

    __slots__ = ("aad_prefix", "block_length", "key", "threads")

    def __init__(self, key: Key, aad_prefix: bytes, block_length: int, threads: int | None = None) -> None:
        self.key = key
        self.aad_prefix = aad_prefix
        self.block_length = block_length
        self.threads = threads

    def alone(self) -> BlockCipher:
        """The same cipher on one thread."""
        return BlockCipher(self.key, self.aad_prefix, self.block_length, 1)

    def offset_of(self, block: int) -> int:
        """Offset in the stream of a stored block."""
        return layout.block_to_ciphertext(block, self.block_length)

    def stored(self, length: int) -> int:
        """Bytes that `length` bytes of plaintext take as blocks."""
        return layout.stored_length(length, self.block_length)

    def open(self, data: Buffer, out: Buffer, first_block: int, name: str | None) -> None:
        """Open whole blocks into `out`, which is wiped if a tag fails: the error names the first block."""
        native_blocks.open_blocks(
            data, out, self.key, self.aad_prefix, self.block_length, first_block, self.threads, name
        )

    def seal(self, data: Buffer, out: Buffer, first_block: int) -> None:
        """Seal plaintext into consecutive blocks."""
        native_blocks.seal_blocks(data, out, self.key, self.aad_prefix, self.block_length, first_block, self.threads)

    def sealed(self, data: Buffer, first_block: int) -> bytes:
        """Seal plaintext into new memory."""
        length = memoryview(data).nbytes
        out = native_blocks.fresh_bytes(self.stored(length))
        with native_blocks.writable_view(out) as view:
            self.seal(data, view, first_block)
        return out

    def open_from(self, source: Source, out: memoryview, first_block: int) -> None:
        """Open blocks of a source, from `first_block` on, until `out` is full."""
        offset = self.offset_of(first_block)
        with source.descriptor() as descriptor:
            if descriptor is not None:
                descriptors.open_from_file(
                    descriptor, offset, out, self.key, self.aad_prefix, self.block_length, first_block, self.threads,
                    source.name,
                )  # fmt: skip
                source.check()
                return
        self.open(source.read(offset, self.stored(len(out))), out, first_block, source.name)

    def seal_to(self, output: Output, data: Buffer, first_block: int) -> None:
        """Seal plaintext into blocks and append them to the output."""
        length = memoryview(data).nbytes
        if output.descriptor is None:
            output.write_owned(self.sealed(data, first_block))
            return
        descriptors.seal_into_file(
            data, output.descriptor, output.position, self.key, self.aad_prefix, self.block_length, first_block,
            self.threads, output.name,
        )  # fmt: skip
        output.position += self.stored(length)

    def seal_file(
        self, source: int, name: str | None, begin: int, length: int, output: Output, first_block: int, tell: Tell
    ) -> None:
        """Seal `length` bytes at `begin` of a file into blocks, and append them to the output."""
        assert output.descriptor is not None
        descriptors.seal_file(
            source, begin, output.descriptor, output.position, length, self.key, self.aad_prefix, self.block_length,
            first_block, self.threads, tell, name, output.name,
        )  # fmt: skip
        output.position += self.stored(length)

    def open_file(
        self, source: int, name: str | None, first_block: int, length: int, output: Output, tell: Tell
    ) -> None:
        """Open the blocks of a file that have the next `length` bytes, and append these to the output."""
        assert output.descriptor is not None
        descriptors.open_file(
            source, self.offset_of(first_block), output.descriptor, output.position, length, self.key, self.aad_prefix,
            self.block_length, first_block, self.threads, tell, name, output.name,
        )  # fmt: skip
        output.position += length
