# Two commands: `make run` starts the demo, `make test` runs every check. The rest is their parts.
#
# Python lives in .venv, JavaScript in node_modules, logs of the steps in build/log. A step leaves a stamp file beside what
# it made, so that it is only repeated when what it was made from has changed. Works with GNU make 3.81 and newer.

VENV := .venv
BIN := $(VENV)/bin
STEP := tools/step.sh
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input
PIP_COMPILE := CUSTOM_COMPILE_COMMAND="make requirements" $(BIN)/pip-compile --quiet --strip-extras --allow-unsafe --generate-hashes \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links $(if $(UPGRADE),--upgrade)
NPM_CI := npm ci --no-audit --no-fund --loglevel=error

RUNTIME := $(VENV)/.headgate-runtime
DEV := $(VENV)/.headgate-dev
NODE := node_modules/.headgate-node
WEB := web/dist/.headgate-built
SBOM := build/sbom.cdx.json
# pip-audit has dependencies of its own, which must not decide what the product is tested with.
AUDIT := build/audit/.headgate-audit
WEB_SOURCES := $(shell find web \( -name node_modules -o -name dist -o -name test \) -prune -o -type f -print 2>/dev/null)

# The load generator is C: its tests run where there is a compiler.
BENCH_TESTS := $(shell command -v cc >/dev/null 2>&1 && echo bench/tests)

# Node's test runner takes one file at a time where there are two processors; most of a file is waiting. Node 20.10 and later can
# be told, and print the results in the order of the files all the same.
NODE_JOBS = $(shell node --test-concurrency=4 --version >/dev/null 2>&1 && echo --test-concurrency=4)

# The tests start hundreds of processes: they are not to compile the same modules again and again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# What builds goes one step after the other. Checks that only read stand beside each other where make can keep their outputs apart
# (4.0 and newer): most of them use one processor, or wait.
ifndef BESIDE
.NOTPARALLEL:
endif
BESIDE_EACH_OTHER := $(if $(filter output-sync,$(.FEATURES)),BESIDE=1 -j 2 --output-sync=target)
.PHONY: help run build dist floors test lint checks style types imports docs-check web-check web-test client-test py-test py-test-unit \
	py-test-together py-test-alone unit e2e chromium format settings requirements screenshot bench bench-quick examples faults soak fuzz \
	sbom audit clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: build ## Set up everything and start the gateway with the demo (HEADGATE_* settings are honoured)
	@exec $(BIN)/headgate serve --demo --with-consumers --config "$${HEADGATE_CONFIG:-server/headgate_server/demo/demo.toml}" $(ARGS)

build: $(RUNTIME) $(WEB) $(SBOM) ## Install pinned dependencies, build the browser client and the demo, list what is in them

dist: build ## Make dist/headgate-*.whl for pip and dist/headgate-*.tgz for npm
	@rm -rf dist && mkdir -p dist
	@$(STEP) "making the wheel" wheel $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--wheel-dir dist .
	@$(STEP) "making the npm package" npm-pack npm pack --silent --ignore-scripts --workspace web --pack-destination dist
	@ls dist/*

test: $(DEV) build ## Run everything: lint, types, import rules, docs, JavaScript and Python tests, end to end
	@$(MAKE) --no-print-directory --keep-going checks py-test

checks:
	@$(MAKE) --no-print-directory --keep-going $(BESIDE_EACH_OTHER) style imports docs-check web-test types web-check client-test

lint: $(DEV) ## ruff, mypy --strict, import rules, generated docs
	@$(MAKE) --no-print-directory --keep-going style types imports docs-check

style: $(DEV)
	@printf '\n== ruff ==\n'
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(DEV)
	@printf '\n== mypy --strict ==\n'
	@$(BIN)/mypy

imports: $(DEV)
	@printf '\n== import rules ==\n'
	@$(BIN)/lint-imports --no-logo

docs-check: $(DEV)
	@printf '\n== generated docs ==\n'
	@$(BIN)/python -m tools.settings_page --check
	@$(BIN)/python -m tools.consumers_page --check
	@$(BIN)/python -m bench.page --check

web-check: $(NODE) ## Types and lint of the JavaScript
	@printf '\n== JavaScript: types and lint ==\n'
	@npm run --silent check

web-test: build ## JavaScript tests, on the built package and on the sources
	@printf '\n== JavaScript: tests ==\n'
	@NODE_JOBS=$(NODE_JOBS) npm --silent test --ignore-scripts

client-test: build ## The browser client, from Node, against a real gateway
	@printf '\n== JavaScript: the client against a real gateway ==\n'
	@node --test $(NODE_JOBS) --test-reporter=spec tests/integration/client/*.test.mjs

# Without a browser the end-to-end tests fail and say so; that must not keep the others from running.
py-test: $(DEV) build ## All Python tests, end to end included
	@$(BIN)/python -m tools.chromium || true
	@$(MAKE) --no-print-directory --keep-going py-test-unit py-test-together py-test-alone

# Branch coverage is measured here, where it costs little: tools/coverage_floors.py holds each package to its floor. A million steps
# of random histories, and random bytes, would take minutes when each line is counted, so they run with the tests below, as do those
# that count objects, of which the tracer keeps some for each greenlet. Long tests of random examples have the marker `no_cover`.
# These tests compute and do not wait: each process beyond two would only collect them once more, which takes ten seconds.
HISTORIES := tests/unit/bus/test_feed.py tests/unit/delivery/test_delivery_histories.py tests/unit/delivery/test_state.py \
	tests/unit/redis/test_lineage_model.py tests/unit/transport/test_fuzz.py tests/unit/node/test_garbage.py
py-test-unit: $(DEV) build
	@printf '\n== Python: unit and contract tests, with branch coverage ==\n'
	@mkdir -p build
	@$(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-report=json:build/coverage.json \
		$(HISTORIES:%=--ignore=%) tests/contract tests/unit $(ARGS)
	@$(BIN)/python -m tools.coverage_floors build/coverage.json

# Most tests wait most of the time, so four at a time; a file's tests stay together. tests/conftest.py has the order.
py-test-together: $(DEV) build
	@printf '\n== Python: integration, end to end ==\n'
	@$(if $(BENCH_TESTS),,echo "headgate: no C compiler here: the tests of the load generator (bench/tests) are left out")
	@$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder tests/e2e tests/integration $(BENCH_TESTS) \
		$(HISTORIES) $(ARGS)

# Faults are tried with nothing else beside them, but in their short form three files at a time, of which most wait: their figures
# are measured by `make faults`, one after the other. The longest begin, or one would run alone at the end.
LONG_FAULTS := tests/fault/test_f31_slow_http.py tests/fault/test_f03_failover.py
py-test-alone: $(DEV) build
	@printf '\n== Python: faults ==\n'
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(LONG_FAULTS) tests/fault $(ARGS)

unit: $(DEV) ## Unit and contract tests only (seconds)
	@$(BIN)/python -m pytest tests/unit tests/contract $(ARGS)

e2e: $(DEV) build chromium ## End-to-end tests in Chromium only
	@$(BIN)/python -m pytest tests/e2e $(ARGS)

chromium: $(DEV) ## Find Chromium, or bring one
	@$(BIN)/python -m tools.chromium

format: $(DEV) ## Format the Python code and sort its imports
	@$(BIN)/ruff check --quiet --fix-only --select I .
	@$(BIN)/ruff format .

settings: $(DEV) ## Write docs/settings.md, and the tables of docs/consumers.md, from the code
	@$(BIN)/python -m tools.settings_page
	@$(BIN)/python -m tools.consumers_page

requirements: $(DEV) ## Pin requirements*.txt anew after a change of dependencies (UPGRADE=1: to the newest versions)
	@$(STEP) "pinning requirements.txt" requirements sh -c '$(PIP_COMPILE) --extra server --extra consumers --extra embedded --extra schemas --extra gunicorn -o requirements.txt pyproject.toml requirements.in'
	@$(STEP) "pinning requirements-dev.txt" requirements-dev sh -c '$(PIP_COMPILE) -o requirements-dev.txt requirements-dev.in'
	@$(STEP) "pinning requirements-audit.txt" requirements-audit sh -c '$(PIP_COMPILE) -o requirements-audit.txt requirements-audit.in'

sbom: $(SBOM) ## The software bill of materials (CycloneDX) from the lock files, in build/

audit: $(AUDIT) $(NODE) ## Ask for known vulnerabilities in what the lock files pin (needs the network, and says what it could not ask)
	@build/audit/bin/python -m tools.audit

screenshot: $(DEV) build chromium ## Make docs/screenshot.png with the tests' own browser
	@$(BIN)/python -m tests.e2e.screenshot

bench: $(DEV) build ## Install the peers and measure against them (bench/README.md), short version (ARGS: more for the bench)
	@$(BIN)/python -m bench --quick --install $(ARGS)

bench-quick: $(DEV) build ## Compare a few ratios with the last committed ones, in about two minutes (ARGS=--write: commit to these)
	@$(BIN)/python -m bench.quick $(ARGS)

examples: $(DEV) build chromium ## Build every example with the packed client, and click through it (some minutes, needs the npm registry)
	@node tools/examples.mjs
	@$(BIN)/python -m pytest -m nightly tests/examples $(ARGS)

faults: $(DEV) build ## The whole fault suite at full load, and its figures into docs/faults.md (an hour)
	@$(BIN)/python -m pytest -m nightly tests/fault tests/e2e $(ARGS)

soak: $(DEV) build ## A gateway under churn for an hour, and what it keeps of clients that are gone
	@HEADGATE_SOAK_S=$${HEADGATE_SOAK_S:-3600} $(BIN)/python -m pytest -m nightly -s tests/fault/test_f24_soak.py $(ARGS)

fuzz: $(DEV) $(NODE) ## Fuzzed frames and packets, a hundred times as many as in the test command (an hour), and new examples for the rest
	@HEADGATE_FUZZ=nightly $(BIN)/python -m pytest --timeout=7200 tests/integration/transport/test_fuzz.py tests/unit $(ARGS)
	@HEADGATE_HISTORIES=100000 $(BIN)/python -m pytest --timeout=7200 -s tests/unit/bus/test_feed.py
	@HEADGATE_HISTORIES=100000 $(BIN)/python -m pytest --timeout=7200 -s tests/unit/delivery/test_delivery_histories.py
	@HEADGATE_HISTORIES=1000000 $(BIN)/python -m pytest --timeout=7200 tests/unit/redis/test_lineage_model.py
	@HEADGATE_HISTORIES=100000 node --test web/test/no-silent-loss.test.js
	@HEADGATE_TABS_HISTORIES=3000 node --conditions=source --test web/test/tabs-no-silent-loss.test.js

floors: dist ## The Python tests with the lowest and the newest versions that pyproject.toml allows, on every Python here (an hour or more)
	@$(BIN)/python -m tools.floors $(ARGS)

clean: ## Remove everything that was made, but for the private Redis data in .headgate
	rm -rf $(VENV) node_modules web/node_modules web/dist build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis test-results

$(RUNTIME): requirements.txt pyproject.toml
	@tools/machine.sh check
	@$(STEP) "making .venv" venv tools/machine.sh venv
	@$(STEP) "installing the pinned Python packages" pip $(PIP_INSTALL) --require-hashes -r requirements.txt
	@$(STEP) "installing headgate itself" headgate $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): $(RUNTIME) requirements-dev.txt
	@$(STEP) "installing the pinned test tools" pip-dev $(PIP_INSTALL) --require-hashes -r requirements-dev.txt
	@touch $@

$(SBOM): tools/sbom.py requirements.txt requirements-dev.txt package-lock.json gateway/headgate/__init__.py | $(RUNTIME)
	@$(BIN)/python -m tools.sbom $@

$(AUDIT): requirements-audit.txt | $(RUNTIME)
	@$(STEP) "installing the pinned audit tools" audit sh -c '$(BIN)/python -m venv build/audit && build/audit/bin/python -m pip install \
		--quiet --disable-pip-version-check --no-input --require-hashes -r requirements-audit.txt'
	@touch $@

$(NODE): package.json package-lock.json web/package.json
	@$(STEP) "installing the pinned JavaScript packages" npm $(NPM_CI)
	@touch $@

# tools/build_backend.py builds the same, with the same stamp, where pip is asked for a wheel of a checkout.
$(WEB): $(NODE) $(WEB_SOURCES)
	@$(STEP) "building the browser client" web npm run --silent build
	@mkdir -p $(@D) && touch $@
