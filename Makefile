# make demo: the console on simulated Sparks. make test: the tests, in minutes. Each installs what it needs into .venv.

# The first Python 3.11 or later that runs (a version manager's shim may be there and not run).
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
# More than processors: tests on real parts mostly wait.
WORKERS ?= 5
EXAMPLES ?= 8000
BIN = $(VENV)/bin

# Tests start Python some hundred times: each would compile the whole package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all real check fuzz mutate bench faults moving readme man snapshots engine-flags clean

$(VENV)/.demo: pyproject.toml
	@test -n "$(PYTHON)" || { echo "sparktop needs Python 3.11 or later with venv: make PYTHON=/path/to/python3.12"; exit 1; }
	@echo "Installing sparktop into $(VENV), once: about half a minute, 90 MB."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

demo: $(VENV)/.demo
	@$(BIN)/sparktop demo $(ARGS)

# The tests' tools besides.
$(VENV)/.made: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --group dev
	touch $@

PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --no-loadscope-reorder

# Five minutes on two processors: sshd and Docker are real, few inputs are tried, and of what is slow the most telling.
test: $(VENV)/.made
	$(PYTEST) --hypothesis-profile=fast -m "not real and (not slow or fast)" $(ARGS)

test-all: WORKERS = 4  # machines and engines need their processor time
test-all: $(VENV)/.made
	$(PYTEST) $(ARGS)

# What tests/real runs on, built once outside the tree (SPARKTOP_REAL, else ~/.cache/sparktop-real), as root: machines
# with systemd 3 min, llama.cpp 2 min, vLLM 8 min and 8 GB, SGLang 1 min; what can't be had here says why.
# PARTS="machine llama" for some.
# Only if named, PARTS=vm: an emulated machine with a kernel of its own, 2 to 10 min, 1.5 GB.
real: $(VENV)/.made
	$(BIN)/python -m tests.real.parts $(PARTS)

check: $(VENV)/.made
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

# Every property test with EXAMPLES inputs in place of two hundred. An input costs the 136
# tests 0.3 s of a processor together, so that 8,000 take some 25 minutes on two.
fuzz: $(VENV)/.made
	SPARKTOP_FUZZ=$(EXAMPLES) $(BIN)/python -m pytest --numprocesses $(WORKERS) -m hypothesis $(ARGS)

# One change at a time in a module that holds a door, and what its own tests don't notice: see docs/mutation.md.
mutate: $(VENV)/.made
	$(BIN)/python -m pip install --quiet --group mutate
	$(BIN)/python -m tests.mutate $(ARGS)

bench: $(VENV)/.made
	$(BIN)/python -m tests.bench $(ARGS)

# Faults at random moments of each action.
faults: $(VENV)/.made
	$(BIN)/python -m tests.faults $(ARGS)

# The README's picture: some four minutes, as the demo is played in real time.
moving: $(VENV)/.made
	$(BIN)/python -m tests.ui.moving .github/moving.svg

readme: $(VENV)/.made
	$(BIN)/python -m tests.ui.readme
	$(BIN)/python -m tests.rules_page
	$(BIN)/python -m tests.bringup_page
	$(BIN)/python -m tests.prometheus_page

man: $(VENV)/.made
	$(BIN)/python -m tests.man_page

snapshots: $(VENV)/.made
	SPARKTOP_UPDATE_SNAPSHOTS=1 $(BIN)/python -m pytest tests/ui

# The flags of an installed engine into the table: make engine-flags ENGINE=vllm ENGINE_PYTHON=/path/to/its/python
engine-flags: $(VENV)/.made
	dump=$$(mktemp) && $(ENGINE_PYTHON) tests/real/flags/dump.py $(ENGINE) < /dev/null > $$dump && $(BIN)/python -m tests.real.flags.table $$dump

clean:
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
