# Two commands: `make run` starts the demo, `make test` runs every check. The rest is their parts.
#
# Python lives in .venv, JavaScript in node_modules, logs of the steps in build/log. A step leaves a stamp file beside what
# it made, so that it is only repeated when what it was made from has changed. Works with GNU make 3.81 and newer.

VENV := .venv
BIN := $(VENV)/bin
STEP := tools/step.sh
PART := tools/part.sh
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input
# A lock file names every package, so pip has nothing to resolve. Older pips resolve all the same, and refuse a lock as soon as a
# package that another one asks for with an extra has a newer version. `pip check` says whether something is missing.
PIP_LOCKED := --quiet --disable-pip-version-check --no-input --require-hashes --no-deps
# What the tests import is compiled when they do; the rest of the test tools, which is more, never is.
PIP_TOOLS := $(PIP_LOCKED) --no-compile
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
# So has what makes the documentation site.
DOCS := build/docs-tools/.headgate-docs
SITE_BUILD := NO_MKDOCS_2_WARNING=1 build/docs-tools/bin/mkdocs
UNIT_TESTS := py-test-unit-1 py-test-unit-2
WEB_SOURCES := $(shell find web \( -name node_modules -o -name dist -o -name test \) -prune -o -type f -print 2>/dev/null)

# The load generator is C: its tests run where there is a compiler.
BENCH_TESTS := $(shell command -v cc >/dev/null 2>&1 && echo bench/tests)

# Node's test runner takes one file at a time where there are two processors; most of a file is waiting. Node 20.10 and later can
# be told, and print the results in the order of the files all the same. No test may wait for ever, where Node can be told that too.
NODE_TEST = --test-reporter=$(CURDIR)/tools/node_report.mjs $(foreach option,--test-concurrency=4 --test-timeout=300000,$(shell \
	node $(option) --version >/dev/null 2>&1 && echo $(option)))

# The tests start hundreds of processes: they are not to compile the same modules again and again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# By default one step goes after the other. The checks of the test command, and what sets it up, go beside each other where make can keep
# their outputs apart (4.0 and newer): most of them use one processor, or wait.
ifndef BESIDE
.NOTPARALLEL:
endif
BESIDE_EACH_OTHER := $(if $(filter output-sync,$(.FEATURES)),BESIDE=1 -j 2 --output-sync=target)
# Commands of the tests may call make themselves, which is not to take part in this one.
ALONE := env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u BESIDE
.PHONY: help run build dist floors test test-setup lint style types imports docs-check web-check web-test client-test py-test $(UNIT_TESTS) site-check \
	py-test-together py-test-alone unit coverage e2e chromium format settings requirements screenshot console-pictures diagrams bench bench-quick examples example-pictures http-api monitoring tracing compose faults nightly soak fuzz socketio-suites \
	deployments sbom audit docs release clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: build ## Set up everything and start the gateway with the demo (HEADGATE_* settings are honoured)
	@exec $(BIN)/headgate demo $(ARGS)

build: $(RUNTIME) $(WEB) $(SBOM) ## Install pinned dependencies, build the browser client and the demo, list what is in them

dist: build ## Make dist/headgate-*.whl for pip and dist/headgate-*.tgz for npm (BUILD=compiled: with the C extension, for this platform)
	@rm -rf dist && mkdir -p dist
	@$(STEP) "making the wheel" wheel $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--wheel-dir dist $(addprefix --config-settings compiled=,$(patsubst compiled,yes,$(BUILD))) .
	@$(STEP) "making the npm package" npm-pack npm pack --silent --ignore-scripts --workspace web --pack-destination dist
	@ls dist/*

# Of PY_TESTS one part runs after the other: each keeps two processors busy, and with less to share a part waits for more. The
# short ones of CHECKS come last, so that both processors are busy until the end.
# TYPED: what mypy reads. The tests are most of the code, and `make lint` and continuous integration read them, too.
CHECKS := web-test $(UNIT_TESTS) types client-test web-check docs-check imports style
PY_TESTS := py-test-together py-test-alone
test: ## Run every check but those of the nightly tier: lint, types, import rules, docs, JavaScript and Python tests, end to end
	@rm -rf build/parts
	@$(MAKE) --no-print-directory $(BESIDE_EACH_OTHER) test-setup
	@$(MAKE) --no-print-directory --keep-going $(BESIDE_EACH_OTHER) $(CHECKS) TYPED="gateway server tools" || true
	@$(MAKE) --no-print-directory --keep-going $(PY_TESTS) || true
	@$(PART) summary $(CHECKS) $(PY_TESTS)

test-setup: $(DEV) build

lint: $(DEV) ## ruff, mypy --strict, import rules, generated docs
	@$(MAKE) --no-print-directory --keep-going style types imports docs-check

style: $(DEV)
	@$(PART) begin $@ "ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(PART) passed $@

types: $(DEV)
	@$(PART) begin $@ "mypy --strict"
	@$(BIN)/mypy $(TYPED)
	@$(PART) passed $@

imports: $(DEV)
	@$(PART) begin $@ "import rules"
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.house --check
	@$(PART) passed $@

docs-check: $(DEV)
	@$(PART) begin $@ "generated docs"
	@$(BIN)/python -m tools.settings_page --check
	@$(BIN)/python -m tools.consumers_page --check
	@$(BIN)/python -m tools.logs_page --check
	@$(BIN)/python -m tools.http_api_page --check
	@$(BIN)/python -m bench.page --check
	@$(BIN)/python -m bench.scale.page --check
	@$(BIN)/python -m tools.reference_pages --check
	@$(BIN)/python -m tools.diagrams --check
	@$(BIN)/python -m tools.claims
	@$(PART) passed $@

MAKE_SITE = $(SITE_BUILD) build --strict --config-file site/mkdocs.yml && build/docs-tools/bin/python site/links.py build/site
site-check: $(DOCS) $(DEV) $(NODE) ## Build the documentation site, check its links, open some of its pages in Chromium (CI does so for every change)
	@$(PART) begin $@ "documentation site"
	@$(MAKE_SITE)
	@$(BIN)/python -m tools.chromium
	@FAILED_TESTS=$$($(PART) failed-tests $@) $(ALONE) $(BIN)/python -m pytest tests/site $(ARGS)
	@$(PART) passed $@

docs: $(DOCS) ## Build the documentation site into build/site, and check its links (ARGS=serve: show it, on port 8100, while you write)
	@if [ "$(ARGS)" = serve ]; then exec $(SITE_BUILD) serve --config-file site/mkdocs.yml --dev-addr 127.0.0.1:8100; \
	else $(MAKE_SITE); fi

web-check: $(NODE) ## Types and lint of the JavaScript
	@$(PART) begin $@ "JavaScript: types and lint"
	@npm run --silent check
	@$(PART) passed $@

web-test: build ## JavaScript tests, on the built package
	@$(PART) begin $@ "JavaScript: tests"
	@NODE_TEST="$(NODE_TEST)" FAILED_TESTS=$$($(PART) failed-tests $@) npm --silent test --ignore-scripts
	@$(PART) passed $@

client-test: build ## The browser client, from Node, against a real gateway
	@$(PART) begin $@ "JavaScript: the client against a real gateway"
	@FAILED_TESTS=$$($(PART) failed-tests $@) $(ALONE) node --test $(NODE_TEST) tests/integration/client/*.test.mjs
	@$(PART) passed $@

# Without a browser the end-to-end tests fail and say so; that must not keep the others from running.
py-test: ## All Python tests, end to end included
	@$(MAKE) --no-print-directory --keep-going $(UNIT_TESTS) $(PY_TESTS)

# Random histories and random bytes compute for seconds each, so they run with the tests below, of which most wait. These compute
# and do not wait, so each half is one plain process. The processes of xdist would each collect all of them, and a third one would
# direct them, which takes a fifth more of the processor.
HISTORIES := tests/unit/bus/test_feed.py tests/unit/delivery/test_delivery_histories.py tests/unit/delivery/test_state.py \
	tests/unit/redis/test_lineage_model.py tests/unit/transport/test_fuzz.py tests/unit/node/test_garbage.py
FIRST_HALF := $(addprefix tests/unit/,auth cli consumers node redis server transport)
py-test-unit-1: HALF := $(FIRST_HALF)
py-test-unit-2: HALF := tests/contract $(filter-out $(FIRST_HALF) %/__pycache__,$(wildcard tests/unit/*))
$(UNIT_TESTS): $(DEV) build
	@$(PART) begin $@ "Python: unit and contract tests, $(@:py-test-unit-%=half %)"
	@FAILED_TESTS=$$($(PART) failed-tests $@) $(ALONE) $(BIN)/python -m pytest $(HISTORIES:%=--ignore=%) $(HALF) $(ARGS) \
		$(if $(ARGS),|| [ $$? -eq 5 ] # ARGS may choose no test of this half)
	@$(PART) passed $@

# To trace each line makes these tests take twice as much of the processor, so the test command runs them without. A million steps
# of random histories would take minutes, so they are left out here, as are the tests that count objects, of which the tracer keeps
# some for each greenlet. Long tests of random examples have the marker `no_cover`.
coverage: $(DEV) build ## The same with branch coverage, and each package held to its floor (CI does so for every change)
	@$(ALONE) $(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-report=json:build/coverage.json \
		$(HISTORIES:%=--ignore=%) tests/contract tests/unit $(ARGS)
	@$(BIN)/python -m tools.coverage_floors build/coverage.json

# Most tests wait most of the time, so five at a time; a file's tests stay together. tests/conftest.py has the order. With browsers
# and hundreds of processes on a few processors, one test in a thousand meets a pause that it does not expect: up to three that
# failed are tried once more, and the summary names them. Tests of units and of faults get no second try.
py-test-together: $(DEV) build
	@$(PART) begin $@ "Python: integration, end to end"
	@$(BIN)/python -m tools.chromium || true
	@$(if $(BENCH_TESTS),,echo "headgate: no C compiler here: the tests of the load generator (bench/tests) are left out")
	@export FAILED_TESTS=$$($(PART) failed-tests $@); $(ALONE) $(BIN)/python -m pytest -n 5 --dist loadfile --no-loadscope-reorder \
		tests/e2e tests/integration $(BENCH_TESTS) $(HISTORIES) $(ARGS) || $(PART) again $@ $(ALONE) $(BIN)/python -m pytest
	@$(PART) passed $@

# Faults are tried with nothing else beside them, but in their short form five files at a time, of which most wait. `make faults`
# measures their figures, one after the other. The longest begin, or one would run alone at the end.
LONG_FAULTS := $(patsubst %,tests/fault/test_%.py,f34_primary_moves f31_slow_http mixture f38_unread_output f26_whole_gateway)
py-test-alone: $(DEV) build
	@$(PART) begin $@ "Python: faults"
	@FAILED_TESTS=$$($(PART) failed-tests $@) $(ALONE) $(BIN)/python -m pytest -n 5 --dist loadfile --no-loadscope-reorder \
		$(LONG_FAULTS) tests/fault $(ARGS)
	@$(PART) passed $@

unit: $(DEV) build ## Unit and contract tests only (a minute)
	@$(MAKE) --no-print-directory --keep-going $(BESIDE_EACH_OTHER) HISTORIES= $(UNIT_TESTS)

e2e: $(DEV) build chromium ## End-to-end tests in Chromium only
	@$(BIN)/python -m pytest tests/e2e $(ARGS)

chromium: $(DEV) ## Find Chromium, or bring one
	@$(BIN)/python -m tools.chromium

format: $(DEV) ## Format the Python code and sort its imports
	@$(BIN)/ruff check --quiet --fix-only --select I .
	@$(BIN)/ruff format .

settings: $(DEV) ## Write docs/settings.md, docs/reference, and the tables of docs/consumers.md, docs/logs.md and docs/http-api.md, from the code
	@$(BIN)/python -m tools.settings_page
	@$(BIN)/python -m tools.consumers_page
	@$(BIN)/python -m tools.logs_page
	@$(BIN)/python -m tools.http_api_page
	@$(BIN)/python -m tools.reference_pages

requirements: $(DEV) ## Pin requirements*.txt anew after a change of dependencies (UPGRADE=1: to the newest versions)
	@$(STEP) "pinning requirements.txt" requirements sh -c '$(PIP_COMPILE) --extra server --extra consumers --extra embedded --extra schemas --extra gunicorn -o requirements.txt pyproject.toml requirements.in'
	@$(STEP) "pinning requirements-dev.txt" requirements-dev sh -c '$(PIP_COMPILE) -o requirements-dev.txt requirements-dev.in'
	@$(STEP) "pinning requirements-audit.txt" requirements-audit sh -c '$(PIP_COMPILE) -o requirements-audit.txt requirements-audit.in'
	@$(STEP) "pinning requirements-docs.txt" requirements-docs sh -c '$(PIP_COMPILE) -o requirements-docs.txt requirements-docs.in'

release: $(RUNTIME) ## Write VERSION=1.2.3 everywhere, date the changelog, commit and tag (nothing is pushed)
	@$(BIN)/python -m tools.release $(VERSION)

sbom: $(SBOM) ## The software bill of materials (CycloneDX) from the lock files, in build/

audit: $(AUDIT) $(NODE) ## Ask for known vulnerabilities in what the lock files pin (needs the network, and says what it could not ask)
	@build/audit/bin/python -m tools.audit

screenshot: $(DEV) build chromium ## Make docs/screenshot.png with the tests' own browser
	@$(BIN)/python -m tests.e2e.screenshot

console-pictures: $(DEV) build chromium ## Make the pictures of docs/console.md, and look at every view at every width with axe (minutes)
	@$(BIN)/python -m tests.e2e.console_pictures
	@$(BIN)/python -m pytest -m nightly tests/e2e/test_console.py $(ARGS)

# Mermaid is none of the project's dependencies: it draws where it is asked to.
diagrams: $(DEV) chromium ## Draw the Mermaid diagrams of docs/ for the site, into docs/diagrams (needs the npm registry)
	@$(STEP) "installing Mermaid" mermaid npm install --prefix build/mermaid --no-save --ignore-scripts --no-audit --no-fund \
		--loglevel=error mermaid@11.17.2
	@$(BIN)/python -m tools.diagrams

bench: $(DEV) build ## Install the peers and measure against them (bench/README.md), short version (ARGS: more for the bench)
	@$(BIN)/python -m bench --quick --install $(ARGS)

bench-quick: $(DEV) build ## Compare a few ratios with the last committed ones, in about two minutes (ARGS=--write: commit to these)
	@$(BIN)/python -m bench.quick $(ARGS)

examples: $(DEV) build chromium ## Build every example with the packed client, and click through it (some minutes, needs the npm registry)
	@node tools/examples.mjs
	@$(BIN)/python -m pytest -m nightly tests/examples $(ARGS)

example-pictures: ## Run `make examples`, and write the picture of each example (examples/*/*.png)
	@EXAMPLE_PICTURES=1 $(MAKE) --no-print-directory examples
	@EXAMPLE_PICTURES=1 $(BIN)/python -m pytest -m nightly tests/e2e/test_bell.py

monitoring: $(DEV) build ## The real Prometheus and Grafana's own types read examples/monitoring (needs apt and the npm registry)
	@$(BIN)/python -m tools.prometheus
	@mkdir -p build/grafana && $(STEP) "installing Grafana's types" grafana npm install --prefix build/grafana --no-save --ignore-scripts \
		--no-audit --no-fund --loglevel=error @grafana/schema@11.6.0
	@$(BIN)/python -m pytest -m nightly tests/monitoring $(ARGS)

compose: $(DEV) build ## Start what examples/deploy/compose composes, without containers, and end a gateway under load (needs nginx and apt)
	@$(BIN)/python -m tools.prometheus
	@$(BIN)/python -m pytest -m nightly tests/compose $(ARGS)

tracing: $(DEV) build ## The real OpenTelemetry Collector takes the spans of an event (needs otelcol, or Go and its module proxy: some minutes)
	@$(STEP) "building the OpenTelemetry Collector" otelcol $(BIN)/python -m tools.collector
	@$(BIN)/python -m pytest -m nightly tests/integration/test_opentelemetry.py $(ARGS)

faults: $(DEV) build ## The whole fault suite at full load, and its figures into docs/faults.md (an hour)
	@$(BIN)/python -m pytest -m nightly tests/fault $(ARGS)

nightly: $(DEV) build chromium ## The full form of what the test command leaves out or shortens, in browsers and packages (CI does so every night)
	@$(BIN)/python -m pytest -m nightly tests/e2e tests/integration/node tests/integration/packaging tests/integration/presence \
		tests/integration/workers tests/unit/redis tests/unit/tools $(ARGS)
	@cd web && HEADGATE_NIGHTLY=1 node --test $(NODE_TEST) test/types.test.js test/package.test.js

http-api: $(DEV) build ## schemathesis sends /api/v1 thousands of requests, by its OpenAPI document (two minutes; HTTP_API_REQUESTS: how many of each kind)
	@$(BIN)/python -m pytest -m nightly tests/integration/server/test_api_v1_served.py $(ARGS)

socketio-suites: $(DEV) ## python-socketio's and Flask-SocketIO's own test suites on headgate.socketio (a minute, needs the package index)
	@$(BIN)/python -m tools.socketio_suites

# The servers are none of the product's dependencies: they go into an environment of their own that has the product's packages too.
DEPLOYMENTS := build/deployments
deployments: $(DEV) ## headgate.socketio under the servers that people use, on a Redis that restarts (a minute, needs the package index)
	@test -x $(DEPLOYMENTS)/bin/python || $(BIN)/python -m venv $(DEPLOYMENTS)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(DEPLOYMENTS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/product.pth
	@$(STEP) "installing the servers" deployments $(DEPLOYMENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
		--requirement tests/integration/socketio/deployments.txt
	@PYTHONPATH=$(CURDIR)/gateway:$(CURDIR)/server DEPLOYMENTS_PYTHON=$(CURDIR)/$(DEPLOYMENTS)/bin/python $(BIN)/python -m pytest -m nightly $(ARGS) \
		tests/integration/socketio/test_deployments.py tests/integration/socketio/test_redis_manager.py

soak: $(DEV) build ## A gateway under churn for an hour, and what it keeps of clients that are gone; then a million joins
	@HEADGATE_SOAK_S=$${HEADGATE_SOAK_S:-3600} $(BIN)/python -m pytest -m nightly -s tests/fault/test_f24_soak.py $(ARGS)
	@$(BIN)/python -m pytest -m nightly tests/unit/node/test_garbage.py $(ARGS)

fuzz: $(DEV) $(NODE) ## A million fuzzed frames and packets each (an hour), and new examples for the rest
	@FUZZ=nightly $(BIN)/python -m pytest --timeout=7200 tests/unit $(ARGS)
	@HEADGATE_HISTORIES=100000 $(BIN)/python -m pytest --timeout=7200 -s tests/unit/bus/test_feed.py
	@HEADGATE_HISTORIES=100000 $(BIN)/python -m pytest --timeout=7200 -s tests/unit/delivery/test_delivery_histories.py
	@HEADGATE_HISTORIES=5000 $(BIN)/python -m pytest --timeout=7200 tests/unit/node/requests/test_stream_histories.py
	@HEADGATE_HISTORIES=1000000 $(BIN)/python -m pytest --timeout=7200 tests/unit/redis/test_lineage_model.py
	@HEADGATE_HISTORIES=20000 $(BIN)/python -m pytest --timeout=7200 tests/unit/presence/test_rooms_world.py
	@HEADGATE_HISTORIES=5000 $(BIN)/python -m pytest --timeout=7200 tests/unit/socketio/test_histories.py
	@HEADGATE_HISTORIES=100000 node --test web/test/no-silent-loss.test.js
	@HEADGATE_HISTORIES=3000 node --test web/test/dispatcher-model.test.js web/test/load-model.test.js web/test/inbox/inbox.test.js \
		web/test/offline/outbox.test.js
	@HEADGATE_TABS_HISTORIES=3000 node --conditions=source --test web/test/tabs/no-silent-loss.test.js

floors: dist ## The Python tests with the lowest and the newest versions that pyproject.toml allows, on every Python here (an hour or more)
	@$(BIN)/python -m tools.floors $(ARGS)

clean: ## Remove everything that was made, but for the private Redis data in .headgate
	rm -rf $(VENV) node_modules web/node_modules web/dist build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis test-results

$(RUNTIME): requirements.txt pyproject.toml setup.py $(wildcard gateway/headgate/_native*.[ch])
	@tools/machine.sh check
	@$(STEP) "making .venv" venv tools/machine.sh venv
	@$(STEP) "installing the pinned Python packages" pip $(BIN)/python -m pip install $(PIP_LOCKED) -r requirements.txt
	@$(STEP) "installing headgate itself" headgate $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(DEV): $(RUNTIME) requirements-dev.txt
	@$(STEP) "installing the pinned test tools" pip-dev $(BIN)/python -m pip install $(PIP_TOOLS) -r requirements-dev.txt
	@$(STEP) "looking for packages that are missing" pip-check $(BIN)/python -m pip --disable-pip-version-check check
	@touch $@

$(SBOM): tools/sbom.py requirements.txt requirements-dev.txt package-lock.json gateway/headgate/installation.py | $(RUNTIME)
	@$(BIN)/python -m tools.sbom $@

$(AUDIT): requirements-audit.txt | $(RUNTIME)
	@$(STEP) "installing the pinned audit tools" audit sh -c '$(BIN)/python -m venv build/audit && build/audit/bin/python -m pip install \
		$(PIP_LOCKED) -r requirements-audit.txt'
	@touch $@

$(DOCS): requirements-docs.txt | $(RUNTIME)
	@$(STEP) "installing what makes the documentation site" docs-tools sh -c '$(BIN)/python -m venv build/docs-tools && build/docs-tools/bin/python \
		-m pip install $(PIP_LOCKED) -r requirements-docs.txt'
	@touch $@

$(NODE): package.json package-lock.json web/package.json
	@$(STEP) "installing the pinned JavaScript packages" npm $(NPM_CI)
	@touch $@

# tools/build_backend.py builds the same, with the same stamp, where pip is asked for a wheel of a checkout.
$(WEB): $(NODE) $(WEB_SOURCES)
	@$(STEP) "building the browser client" web npm run --silent build
	@mkdir -p $(@D) && touch $@
