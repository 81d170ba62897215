# Everything here sets itself up: a virtual environment in .venv, made from PYTHON.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
GUESTS := .venv-peers
CELERY := .venv-celery
JOBS ?= 2
# Without a flight, tests wait more than they compute: two for each processor.
UNIT_JOBS ?= $(shell expr 2 \* $(JOBS))
SOAK ?= 200000

.DEFAULT_GOAL := help
.PHONY: help demo test coverage guests check format bench events celery faults releases clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /  make \1\t/' | expand -t 18

demo: $(VENV)/demo.installed ## fly a simulated mission, commanded through the queue, and watch it
	@$(BIN)/blimp demo $(DEMO)

test: $(VENV)/dev.installed guests ## run the tests: units, then flights and kills
	$(BIN)/pytest -n $(UNIT_JOBS) -m "not flight" $(TESTS)
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m flight $(TESTS)

coverage: $(VENV)/dev.installed guests ## run the units with branch coverage: a quarter slower
	$(BIN)/pytest -n $(JOBS) --cov -m "not flight" $(TESTS)

# Where they cannot be had, the tests that need them say so, and under CI fail.
guests: $(VENV)/dev.installed
	@$(MAKE) --no-print-directory $(CELERY)/installed || \
	  echo "make: no Celery and Flower to be had: tests/interop does not run" >&2

check: $(VENV)/dev.installed ## format, lint, types and the import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev.installed ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/dev.installed $(GUESTS)/installed ## measure the figures this project quotes
	$(BIN)/python -m benchmarks.queue
	$(BIN)/python -m benchmarks.lockstep
	$(BIN)/python -m benchmarks.missions
	$(BIN)/python -m benchmarks.loop
	$(BIN)/python -m benchmarks.observe
	$(BIN)/python -m benchmarks.sql_results

events: $(VENV)/dev.installed $(CELERY)/installed ## count the events of 100,000 tasks on each executor, with Celery's receiver
	$(BIN)/python -m benchmarks.events

celery: $(VENV)/dev.installed $(CELERY)/installed ## run Celery's own integration tests on its transport and on ours
	$(BIN)/python -m benchmarks.celery_suite
	$(BIN)/python -m benchmarks.remote_ping

faults: $(VENV)/dev.installed ## kill at every command boundary, 200 kills under load, a soak
	$(BIN)/python -m tests.faults.boundary
	$(BIN)/python -m tests.faults.boundary --crowd --target worker
	$(BIN)/python -m benchmarks.kill --kills 200
	$(BIN)/python -m benchmarks.soak --tasks $(SOAK)
	$(BIN)/python -m benchmarks.canvas

releases: $(VENV)/dev.installed ## 100,000 releases with both callbacks firing, under kill -9
	$(BIN)/python -m benchmarks.releases --links 2000 --tasks 600 --out benchmarks/results/releases.json

clean: ## remove the virtual environment and what the tools left
	rm -rf $(VENV) $(GUESTS) $(CELERY) build *.egg-info .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# CPython 3.11 is the first with tomllib; the message names the cure.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: $(PYTHON) is older than Python 3.11; try: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[demo]'
	@touch $@

$(VENV)/dev.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[demo,dev]'
	@touch $@ $(VENV)/demo.installed

# The queue's peers live apart: what they need is none of this project's dependencies.
$(GUESTS)/installed: benchmarks/queue/peers/requirements.txt | $(VENV)/bin/python
	$(PYTHON) -m venv $(GUESTS)
	$(GUESTS)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

# Celery and Flower as they are, used against our worker; our package is beside them, so that
# they can use its transport.
$(CELERY)/installed: tests/interop/requirements.txt pyproject.toml | $(VENV)/bin/python
	$(PYTHON) -m venv $(CELERY)
	$(CELERY)/bin/pip install --quiet --disable-pip-version-check --requirement $< --editable .
	@touch $@
