"""Storage: opens, reads, writes, lists and removes files, on this machine and in object stores.

    Location ---> open_source(...) ---> Source   ranges by position: memory, descriptor, object, file object, pipe
             ---> open_output(...) ---> Output   appears whole when it is committed, or not at all
             ---> list_files, match, status, remove, create

Three backends stand behind a Location: local files (positioned native I/O), object stores through obstore (S3, GCS,
Azure), and fsspec for everything else. This package knows no format and no key. Its errors are OSErrors that name the
file in one line.

What each backend promises:

                      local                object store                 fsspec
    whole or nothing  rename               last request                 S3, GCS, memory: yes; others when closed
    create if absent  link of a whole file conditional put              no
    changed content   mtime, length        etag of every response       no
    forked children   yes                  if not used before the fork  as the file system says
"""

from __future__ import annotations

from ags1.storage._clients import option_name, s3_environment
from ags1.storage._errors import UnnamedError, as_os_error, pass_unnamed
from ags1.storage._fsspec import RemoteFiles, file_system_of, guarded
from ags1.storage._requests import Request, in_order, start, within
from ags1.storage.atomic import TEMPORARY_SUFFIX, AtomicFile, temporary_name
from ags1.storage.creation import can_create, create, creates_once
from ags1.storage.directories import Directories, below, change_mode
from ags1.storage.durability import Unsynced
from ags1.storage.listing import (
    Entry,
    identity_of,
    is_directory,
    is_directory_mark,
    iterate_files,
    list_files,
    list_names,
    make_parent,
    match,
    remove,
    remove_directories,
    status,
)
from ags1.storage.location import Location, inside, is_url, located
from ags1.storage.output import Output
from ags1.storage.outputs import FsspecOutput, LocalOutput, open_output
from ags1.storage.pin_files import no_pins, read_pins, write_pins
from ags1.storage.read_ahead import SEQUENTIAL_PIECE, STREAM_BUDGET, Budget, PlannedSource, ReadAhead
from ags1.storage.same_file import is_same, refuse_same, refuse_writing_into
from ags1.storage.side_by_side import REQUESTS_AT_ONCE, SMALL_FILES_AT_ONCE, are_small_objects, files_at_once
from ags1.storage.sorted_listing import SortedListing
from ags1.storage.sources import (
    SMALL,
    DescriptorSource,
    HeldSource,
    MemorySource,
    PipeSource,
    Source,
    octets,
    open_regular,
    open_source,
    read_identified,
    read_whole,
)
from ags1.storage.stored_file import StoredFile
from ags1.storage.tree_directories import (
    TreeDirectories,
    Twins,
    directories_like,
    directory_mode,
    make_parent_like,
    refuse_twins,
)
