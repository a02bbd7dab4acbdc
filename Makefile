# make demo   set up, then run the main job
# make test   set up, then run all that CI runs
# make docs   set up, then build the documentation into site/
# make test-gpu   the tests of the kernels, on a machine with an NVIDIA GPU
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check test-all test-gpu docs clean
.DEFAULT_GOAL := help

help:
	@sed -n '1,4p' Makefile

# Set-up runs again only when one of these files has changed.
$(READY): pyproject.toml constraints.txt
	python3 -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/python -m upright.demo

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: check
	$(BIN)/pytest -m "not slow"

test-all: check
	$(BIN)/pytest

# A machine with a GPU has a torch of its own, so nothing is set up: its Python needs pytest and hypothesis.
PYTHON ?= $(or $(wildcard $(BIN)/python),python3)
GPU_TESTS := $(wildcard tests/test_gpu*.py) tests/test_fused_ascent.py tests/test_fused_cuda.py

test-gpu:
	$(PYTHON) -c 'import torch; assert torch.cuda.is_available(), "no GPU: torch does not see any"'
	PYTHONPATH=src:$$PYTHONPATH $(PYTHON) -m pytest $(GPU_TESTS)

# A test builds it too, so that CI does.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open site/index.html, or any page of it: no server is needed."

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis
