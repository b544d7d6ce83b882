# make demo: set up, and see objects found.   make test: set up, and run the tests.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test lint bench results clean
.DEFAULT_GOAL := demo

setup: .venv/installed

# Installs again only when what is to be installed has changed.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/vonet demo

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist loadfile

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks

results: setup
	$(BIN)/python -m results

clean:
	rm -rf .venv demo bench.json bench-attention.*
