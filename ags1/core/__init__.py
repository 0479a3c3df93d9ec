"""The native core: AES-GCM by OpenSSL on raw memory, blocks, batches, descriptors; the GIL is released."""
