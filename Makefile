VENV := .venv
BIN := $(VENV)/bin
PACKAGE := $(VENV)/.package
READY := $(VENV)/.ready
FLOORS := .venv-floors
INSTALL := install --quiet --disable-pip-version-check --constraint

.PHONY: help demo test check test-all test-gpu test-floors docs clean
.DEFAULT_GOAL := help

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

# The package alone, which is what the demo needs. Set-up runs again only when one of these files has
# changed.
$(PACKAGE): pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(BIN)/pip $(INSTALL) constraints.txt torch
	$(BIN)/pip $(INSTALL) constraints.txt --editable .
	touch $@

# And what the checks, the tests and the documentation need, Ray among it.
$(READY): $(PACKAGE)
	$(BIN)/pip $(INSTALL) constraints.txt --editable '.[dev]'
	touch $@

$(FLOORS)/.ready: pyproject.toml constraints-floors.txt
	python3 -m venv $(FLOORS)
	$(FLOORS)/bin/pip $(INSTALL) constraints-floors.txt torch
	$(FLOORS)/bin/pip $(INSTALL) constraints-floors.txt --editable '.[dev]'
	touch $@

demo: $(PACKAGE) ## set up, then run the main job
	$(BIN)/upright demo

# Two processes share the files of tests: as many as CI has cores, and few enough for tests that watch the time.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile

test: check ## set up, then run all that CI runs
	$(PYTEST) -m "not slow"

check: $(READY) ## ruff, mypy and import-linter alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-all: check ## with the slow tests
	$(PYTEST)

# A machine with a GPU has a torch of its own, so nothing is set up: its Python needs pytest and hypothesis.
PYTHON ?= $(or $(wildcard $(BIN)/python),python3)
GPU_TESTS := $(wildcard tests/*/test_gpu*.py) tests/models/test_fused_ascent.py tests/models/test_fused_cuda.py \
	tests/models/test_recorded.py

test-gpu: ## the tests of the kernels, on a machine with an NVIDIA GPU
	$(PYTHON) -c 'import torch; assert torch.cuda.is_available(), "no GPU: torch does not see any"'
	PYTHONPATH=src:$$PYTHONPATH $(PYTHON) -m pytest $(GPU_TESTS)

# Old releases warn of each other's new ones, and of files that they leave open: not ours to mend.
test-floors: $(FLOORS)/.ready ## the tests with the oldest versions that pyproject.toml allows
	$(FLOORS)/bin/pytest -n 2 --dist loadfile -m "not slow" -W default

# A test builds it too, so that CI does.
docs: $(READY) ## set up, then build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html, or any page of it: no server is needed."

clean: ## all that was set up or built
	rm -rf $(VENV) $(FLOORS) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
