# Everything runs in .venv, made from pyproject.toml and the versions in constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
USABLE := $(VENV)/.usable
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --constraint constraints.txt --editable

.PHONY: setup demo test quick fuzz lint bench docs lock clean

setup: $(READY)

$(USABLE): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	touch $(USABLE)

$(READY): $(USABLE)
	$(INSTALL) '.[dev]'
	touch $(READY)

demo: $(USABLE)  ## train FOOBAR on the lock; leaves runs/demo/curve.png
	rm -rf runs/demo
	$(BIN)/hyrlo train foobar lock --horizon 50 --out runs/demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## everything
	$(BIN)/pytest --numprocesses 2 --dist worksteal

quick: lint  ## all but the tests that take long
	$(BIN)/pytest --numprocesses 2 --dist worksteal -m 'not learning and not slow'

fuzz: $(READY)  ## spoil files at random for HYRLO_FUZZ_SECONDS (an hour)
	$(BIN)/python -m tests.fuzz

bench: $(READY)
	$(BIN)/python -m benchmarks

docs: $(READY)  ## build the documentation site; leaves site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

lock: $(READY)  ## write the installed versions into constraints.txt
	$(PIP) freeze --exclude-editable > constraints.txt

clean:
	rm -rf $(VENV) site runs .jax_cache .pytest_cache .mypy_cache .ruff_cache
