# Needs only make and Python 3.11 or newer. `make demo` and `make test` are the two to know.
# PYTHON=… chooses the interpreter for .venv; ARGS=… goes to the program a target runs.

VENV := .venv
BIN  := $(VENV)/bin
ARGS ?=

# A candidate counts only if it runs: version managers leave commands on PATH that do not.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)

INSTALL = if command -v uv >/dev/null 2>&1; then uv pip install --quiet --python $(BIN)/python $(1); \
	else $(BIN)/python -m pip install --quiet --disable-pip-version-check $(1); fi

.PHONY: help demo test soak lint format wheel clean

help:
	@echo "make demo    install the library into $(VENV) and run its demo"
	@echo "make test    lint, then all tests but the long ones (ARGS='-k claim' to choose)"
	@echo "make soak    the long tests"
	@echo "make lint    ruff, mypy, import layers        make format   let ruff rewrite"
	@echo "make wheel   build dist/*.whl                 make clean    remove what make made"

demo: $(VENV)/.core
	@$(BIN)/rowlock demo $(ARGS)

test: lint
	$(BIN)/pytest -n auto --dist loadscope $(ARGS)

soak: $(VENV)/.dev
	$(BIN)/pytest -m soak --timeout=3600 $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(VENV)/.core
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# A stamp older than pyproject.toml means that the install is done again.
$(VENV)/.core: pyproject.toml | $(BIN)/python
	@echo "installing rowlock into $(VENV)"
	@$(call INSTALL,--editable .)
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing rowlock with its test and lint tools into $(VENV)"
	@$(call INSTALL,--editable ".[all$(,)test$(,)lint]")
	@touch $@ $(VENV)/.core

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer on PATH; install one or run make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "error: PYTHON=$(PYTHON) is not a working Python 3.11 or newer" >&2; exit 1; }
	@rm -rf $(VENV)
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --seed --python "$$(command -v "$(PYTHON)")" $(VENV); \
	elif "$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null; then "$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; \
	else echo "error: $(PYTHON) lacks venv or ensurepip; install them (Debian, Ubuntu: the package python3-venv) or uv" >&2; exit 1; fi

, := ,
