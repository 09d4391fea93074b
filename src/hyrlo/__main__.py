"""`python -m hyrlo`."""

from hyrlo.cli.main import run

run()
