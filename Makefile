# Every target sets up what it needs: a virtualenv in .venv with plain pip, and the embedded server from its wheel.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORE := $(VENV)/.installed-core
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup lock audit sbom release docs demo demo-web test test-pythons test-beside test-others check format test-unit test-redis test-system drills drills-node drills-archive soak bench bench-peers run protocols clean

help: ## show this help
	@echo "mqworker: make <target>"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16 | sed 's/^/  /'

$(CORE): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing mqworker into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(STAMP): $(CORE)
	@echo "installing what development needs into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

setup: $(STAMP) ## build the virtualenv with everything for development

demo: $(CORE) ## see it work: thousands of tasks of every kind, with kill -9 in the middle, and the status screen
	@$(BIN)/python examples/demo.py

demo-web: $(STAMP) ## the same, and then the console on http://127.0.0.1:8780/, until Ctrl-C
	@$(BIN)/python examples/demo.py --web

# Most tests wait for processes most of the time, so two halves run beside each other: about as long, by `pytest --durations=0`.
BESIDE := tests/docs tests/drills tests/examples tests/gq tests/interop tests/operate tests/pipeline
BESIDE_LOG := $(VENV)/tests-beside.log

test: $(STAMP) ## all tests, on real servers; in two halves beside each other
	@$(MAKE) --no-print-directory --jobs=2 test-beside test-others

test-others: $(STAMP)
	$(BIN)/python -m pytest --durations=15 $(addprefix --ignore=,$(BESIDE))

test-beside: $(STAMP)
	@$(BIN)/python -m pytest --durations=15 $(BESIDE) >$(BESIDE_LOG) 2>&1; status=$$?; \
		echo "$(BESIDE):"; cat $(BESIDE_LOG); exit $$status

check: $(STAMP) ## format, lint, types, import directions, unit tests: under a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/unit tests/architecture

format: $(STAMP) ## rewrite the layout of the code and sort imports
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

PYTHONS := python3.11 python3.12 python3.13 python3.14 $(wildcard $(HOME)/.pyenv/versions/3.1[1-9]*/bin/python)

test-pythons: ## the unit tests on every Python from 3.11 that this machine has, each in a virtualenv of its own
	@for python in $(PYTHONS); do \
		version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue; \
		place=$(VENV)/python$$version; test ! -e $$place/.tested || continue; \
		echo "Python $$version:"; $$python -m venv $$place && \
		$$place/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[crypto,grpc,otel,sentry,sql,testing,web]' hypothesis prometheus-client pyarrow && \
		$$place/bin/python -m pytest tests/unit && touch $$place/.tested || exit 1; \
	done; rm -f $(VENV)/python*/.tested

test-redis: $(STAMP) ## only the tests of the store and the queues
	$(BIN)/python -m pytest tests/redis tests/conformance

test-system: $(STAMP) ## only the tests that start and kill processes
	$(BIN)/python -m pytest tests/system

DRILLS_LOG := $(VENV)/drills-archive.log

drills: $(STAMP) ## kill everything at full size and count: lost 0, acked twice 0; about five minutes
	@$(MAKE) --no-print-directory --jobs=2 drills-archive drills-node

drills-node: $(STAMP)
	DRILL_SIZE=full $(BIN)/python -m pytest --durations=5 tests/drills tests/unit/actors/worker/test_mail_thread.py

drills-archive: $(STAMP)
	@DRILL_SIZE=full $(BIN)/python -m pytest tests/pipeline/test_archive_killed.py >$(DRILLS_LOG) 2>&1; status=$$?; \
		cat $(DRILLS_LOG); exit $$status

MINUTES ?= 30

soak: $(STAMP) ## 1,500 tasks of every kind a second for MINUTES=30, results awaited: nothing lost, stuck or grown
	$(BIN)/python -m tests.drills.soak --minutes $(MINUTES)

bench: $(STAMP) ## measure mqworker on this machine, beside raw clients; some minutes
	$(BIN)/python -m benchmarks

bench-peers: $(STAMP) ## measure it beside Celery and eight others; 25 minutes, on a quiet machine; writes docs/benchmarks
	@$(BIN)/python -c 'import matplotlib' 2>/dev/null || $(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m benchmarks --peer all --json docs/benchmarks/results.json --pages docs/benchmarks $(BENCH)

lock: $(STAMP) ## write requirements-dev.lock: what this virtualenv has, by exact version
	$(BIN)/python deploy/release.py lock

audit: $(STAMP) ## is what is installed consistent, as locked, and without known flaws; what cannot be asked is skipped
	$(BIN)/python deploy/release.py audit

sbom: $(STAMP) ## write dist/mqworker-sbom.json: what an installation brings, as CycloneDX
	$(BIN)/python deploy/release.py sbom

release: check audit sbom ## what is published: the wheel, the source, the bill of materials and their checksums
	$(BIN)/python -m hatchling build --directory dist
	cd dist && sha256sum *.whl *.tar.gz mqworker-sbom.json > SHA256SUMS

docs: $(STAMP) ## build the documentation site into site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html"

run: $(STAMP) ## start the Procfile with Honcho: the embedded server, a node with the demo's tasks, gateways, archiver
	cd examples && PATH="$(abspath $(BIN)):$$PATH" honcho --procfile ../Procfile --app-root . start

protocols: $(STAMP) ## make services/mqworker_services/gateways/gomq/generated anew from its .proto
	$(BIN)/python -m grpc_tools.protoc --proto_path=services/mqworker_services/gateways/gomq --python_out=services/mqworker_services/gateways/gomq/generated \
		--pyi_out=services/mqworker_services/gateways/gomq/generated services/mqworker_services/gateways/gomq/gomq.proto

clean: ## stop the embedded server; remove its data, the virtualenv and the caches
	@test ! -x $(BIN)/mqworker || $(BIN)/mqworker redis --stop
	rm -rf $(VENV) site .mqworker .mypy_cache .ruff_cache .pytest_cache .hypothesis
