# `make demo` and `make test` are all a newcomer needs; both make the environment where it is missing.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin

.PHONY: demo audit test compat lint types wheel clean help

help:            ## list the targets
	@grep -E '^[a-z]+: *.*##' $(MAKEFILE_LIST) | sed -E 's/: *[^#]*##/\t/'

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,report,gguf]'
	touch $@

demo: $(VENV)/.ready  ## detect the circuits of the four shipped models
	$(BIN)/imir-detect demo

audit: $(VENV)/.ready  ## audit a pretrained model of 135 million parameters from a PyPI wheel
	$(BIN)/python examples/02_audit_pretrained.py

test: $(VENV)/.ready  ## run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

compat: $(VENV)/.ready  ## run the subset for TransformerLens 3.9 and 2.18 in environments of their own
	tests/compat/run.sh $(BIN)/python

lint: $(VENV)/.ready  ## style (ruff)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready  ## types (mypy, strict)
	$(BIN)/mypy

wheel: $(VENV)/.ready  ## build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation --outdir dist .

clean:           ## remove what the targets made
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache
