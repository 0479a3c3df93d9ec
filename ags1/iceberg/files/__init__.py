"""The files of a table: the key of each, and a FileIO that opens them."""
