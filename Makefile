# Everything here sets itself up: a virtual environment in .venv, made from PYTHON.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
GUESTS := .venv-peers
CELERY := .venv-celery
MAVPROXY := .venv-mavproxy
DJANGO := .venv-django
# Django 6.0 needs Python 3.12 or later.
NEWER ?= $(lastword $(sort $(wildcard /usr/bin/python3.1[2-9] $(HOME)/.pyenv/versions/3.1[2-9]*/bin/python3)))
JOBS ?= 2
# Most tests wait for another process, so more of them than processors are under way: with 5 on
# two cores `make test` takes a tenth less than with 3.
TEST_JOBS ?= $(shell expr $(JOBS) + 3)
# Of the long ones two at a time fly in real time, and one computes.
LONG_JOBS ?= $(shell expr $(JOBS) + 1)
# Tests start hundreds of interpreters: without bytecode each would compile what it imports.
export PYTHONDONTWRITEBYTECODE :=
SOAK ?= 200000
KILLS ?= 1000
FUZZ ?= 1000000
CUTS ?= 20

.DEFAULT_GOAL := help
.PHONY: help demo quick test long show pictures coverage guests check docs format bench
.PHONY: troubles faults boundaries kills server-kills stop-kills flight-kills mutants soak canvas releases events fuzz celery django servers platforms box box-test release clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /  make \1\t/' | expand -t 22

demo: $(VENV)/demo.installed ## fly a simulated mission, commanded through the queue, and watch it
	@$(BIN)/blimp demo $(DEMO)

quick: $(VENV)/dev.installed ## at every save: lint, types, and the quick tests that need no process
	$(BIN)/ruff check .
	$(BIN)/dmypy run --timeout 3600 -- --no-error-summary
	$(BIN)/pytest -q -n $(JOBS) --dist worksteal -m "not long and not process and not slow" $(TESTS)

test: $(VENV)/dev.installed guests ## run the tests, but for the long ones
	$(BIN)/pytest -n $(TEST_JOBS) --dist worksteal -m "not long" $(TESTS)

long: $(VENV)/dev.installed guests ## run the tests that take long: flights, running stacks, kills
	$(BIN)/pytest -n $(LONG_JOBS) --dist worksteal -m long $(TESTS)

show: $(VENV)/dev.installed ## fly the demo's show in front of browsers, and take the documents' pictures: 5 minutes
	$(BIN)/pytest -q tests/ground_station/page/whole_show.py

pictures: show ## copy the pictures of a show that is flown for it into the documents
	cp build/pictures/*.png build/pictures/*.gif docs/pictures/

coverage: $(VENV)/dev.installed guests ## run the units with branch coverage: a quarter slower
	$(BIN)/pytest -n $(JOBS) --cov -m "not long" $(TESTS)

# Where they cannot be had, the tests that need them say so, and under CI fail, but for Django's.
guests: $(VENV)/dev.installed
	@[ -z "$(NEWER)" ] || $(MAKE) --no-print-directory $(DJANGO)/installed || \
	  echo "make: no Django 6.0 to be had: tests/interop/test_django_tasks.py does not run" >&2
	@$(MAKE) --no-print-directory $(CELERY)/installed || \
	  echo "make: no Celery and Flower to be had: tests/interop does not run" >&2
	@$(MAKE) --no-print-directory $(MAVPROXY)/installed || \
	  echo "make: no MAVProxy to be had: tests/ground_station/mavlink/test_mavproxy.py does not run" >&2

check: $(VENV)/dev.installed ## format, lint, types and the import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/docs.installed ## build the site of the documents in build/site; any warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

format: $(VENV)/dev.installed ## rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/dev.installed $(GUESTS)/installed ## measure the figures this project quotes
	$(BIN)/python -m benchmarks.queue
	$(BIN)/blimp sim speed --json
	$(BIN)/python -m benchmarks.cycle
	$(BIN)/python -m benchmarks.missions
	$(BIN)/python -m benchmarks.page

# --- campaigns: each prints its progress, then its figures and its command as JSON, and fails
# --- on any loss. Their durations are in docs/faults.md.

faults: boundaries kills server-kills canvas ## all kills but those of a flight: 20 minutes

boundaries: $(VENV)/dev.installed ## kill worker, client and server at every command boundary
	$(BIN)/python -m tests.faults.boundary
	$(BIN)/python -m tests.faults.boundary --crowd --target worker

kills: $(VENV)/dev.installed ## KILLS (1000) kills under load, aimed at the bodies of tasks
	$(BIN)/python -m benchmarks.kill --json --kills $(KILLS)

server-kills: $(VENV)/dev.installed ## kill the server with each appendfsync, and cut its power
	$(BIN)/python -m tests.faults.server_kills

stop-kills: $(VENV)/dev.installed ## press 1000 stops as a killed broker comes back, its streams harmed
	$(BIN)/python -m benchmarks.estop --deaths 1000

flight-kills: $(VENV)/demo.installed ## kill worker, flight process and supervisor in flight
	$(BIN)/python -m benchmarks.flight_kills

troubles: $(VENV)/dev.installed ## as root: stops in every state, pilots, clocks, and a flood of commands: 3 minutes
	$(BIN)/pytest -q -s tests/sim/whole_troubles.py
	$(BIN)/python -m benchmarks.stop_in_a_flood

mutants: $(VENV)/dev.installed ## break each line of tests/mutants once: the tests of its part must notice: MUTANTS="--only fence"
	$(BIN)/python -m tests.mutants $(MUTANTS)

soak: $(VENV)/dev.installed ## SOAK (200000) tasks with kills, and memory that must not grow
	$(BIN)/python -m benchmarks.kill --json --memory --tasks $(SOAK) --kills $(shell expr $(SOAK) / 2000)

canvas: $(VENV)/dev.installed ## chords under kills, and what large ones cost
	$(BIN)/python -m benchmarks.canvas --json

releases: $(VENV)/dev.installed ## 100,000 releases with both callbacks firing, under kill -9
	$(BIN)/python -m benchmarks.releases --json --out benchmarks/results/releases.json

fuzz: $(VENV)/dev.installed ## FUZZ (1000000) inputs to each reader of what comes from outside
	$(BIN)/pip install --quiet --disable-pip-version-check atheris || echo "make: no atheris: by mutation alone" >&2
	for target in mailbox serial configuration mission mavlink message broadcast; do \
	  $(BIN)/python -m tests.faults.fuzz --target $$target --inputs $(FUZZ) --json \
	    --out benchmarks/results/fuzz.json || exit 1; done

events: $(VENV)/dev.installed $(CELERY)/installed ## count the events of 100,000 tasks on each kind of pool, with Celery's receiver
	$(BIN)/python -m benchmarks.events --json

celery: $(VENV)/dev.installed $(CELERY)/installed ## run Celery's own integration tests on its transport and on ours
	$(BIN)/python -m benchmarks.celery_suite --json

django: $(VENV)/dev.installed $(DJANGO)/installed ## run Django's own tests of its backends for tasks on ours
	$(BIN)/python -m benchmarks.django_suite --json

servers: $(VENV)/dev.installed ## test queue and ship on each server that is promised: SERVERS="--only redis-7.0"
	$(BIN)/python -m tests.servers --jobs $(TEST_JOBS) $(SERVERS)

platforms: $(VENV)/bin/python ## as root: both commands and the wheel on Debian 12, 13 and sid: PLATFORMS="--quick"
	$(BIN)/python -m tests.platforms $(PLATFORMS)

box: $(VENV)/dev.installed ## as root: a Debian 12 with its own kernel for QEMU, in build/box: BOX="--suite trixie --arch arm64"
	$(BIN)/python -m tests.box.image $(BOX)

box-test: box ## as root: install in it by docs/pi.md as printed, try it, then cut its power CUTS (20) times
	[ -e build/box/bookworm/installed.raw ] || $(BIN)/python -m tests.box.page
	$(BIN)/pytest -q -rP tests/box/whole_*.py
	$(BIN)/python -m tests.box.power_cuts --record
	$(BIN)/python -m tests.box.power_cuts --states 60
	$(BIN)/python -m tests.box.power_cuts --cuts $(CUTS)

release: $(VENV)/release.installed ## build sdist and wheel of HEAD in dist/, compare them with git, and try both: 3 minutes
	$(BIN)/python -m tests.release $(RELEASE)

clean: ## remove the virtual environment and what the tools left
	rm -rf $(VENV) $(GUESTS) $(CELERY) $(MAVPROXY) $(DJANGO) build dist *.egg-info .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# CPython 3.11 is the first with tomllib; the message names the cure.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: $(PYTHON) is older than Python 3.11; try: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[demo,page]'
	@touch $@

$(VENV)/docs.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

$(VENV)/release.installed: $(VENV)/dev.installed
	$(BIN)/pip install --quiet --disable-pip-version-check 'build>=1.2' 'twine>=6.1' 'cyclonedx-bom>=7'
	@touch $@

$(VENV)/dev.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[demo,dev]'
	@touch $@ $(VENV)/demo.installed $(VENV)/docs.installed

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

$(DJANGO)/installed: tests/interop/django-requirements.txt pyproject.toml
	$(NEWER) -m venv $(DJANGO)
	$(DJANGO)/bin/pip install --quiet --disable-pip-version-check --requirement $< --editable .
	@touch $@

# A directory for PYTHONPATH and no environment of its own: it runs on .venv's Python and pymavlink.
$(MAVPROXY)/installed: tests/ground_station/mavlink/requirements.txt $(VENV)/dev.installed
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(MAVPROXY) --requirement $<
	@touch $@
