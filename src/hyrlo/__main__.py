"""`python -m hyrlo`."""

from hyrlo.cli import run

run()
