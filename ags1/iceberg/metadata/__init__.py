"""A table's metadata: the metadata file, manifest lists and manifests, and the locations in them."""
