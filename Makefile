# make setup: install into .venv.   make demo: train and segment.   make test, make lint: check.   make format: fix style.
# make docs: build the documentation into site/.
PYTHON ?= python3
BIN := .venv/bin
MARKDOWN := README.md CHANGELOG.md CONTRIBUTING.md RELEASING.md docs results src/vonet/pretrained \
	.github/pull_request_template.md

.PHONY: setup demo test lint format docs fuzz mutants bench results clean
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
	$(BIN)/mdformat --check $(MARKDOWN)

format: setup
	$(BIN)/ruff format .
	$(BIN)/mdformat $(MARKDOWN)

# The site, site/index.html. A link or a reference that leads nowhere is an error.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Mutated files for every reader: 100,000 inputs, 10 to 20 minutes on one core.
fuzz: setup
	$(BIN)/python -m tests.fuzz

# Mistakes put into copies of the code, which the tests must find.
mutants: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants

bench: setup
	$(BIN)/python -m benchmarks

results: setup
	$(BIN)/python -m results

clean:
	rm -rf .venv demo site bench.json bench-attention.*
