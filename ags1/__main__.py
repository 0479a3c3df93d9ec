"""``python -m ags1``, for when the `ags1` script is not on the path."""

import sys

from ags1.cli import main

sys.exit(main())
