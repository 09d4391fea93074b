"""`python -m hyrlo`."""

import os
import sys

if sys.path and sys.path[0] in ("", os.getcwd()) and not sys.flags.safe_path:
    del sys.path[0]  # Python puts the current folder first; modules that a file names are not looked for there

from hyrlo.cli.main import run

run()
