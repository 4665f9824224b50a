# Start with `make demo` or `make test`; both install what they need into .venv.

PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
# Every package of the repository, each after the packages that it depends on.
PACKAGES := contracts libs/runtime libs/ledger libs/coordination libs/web libs/http libs/client libs/cube libs/gaussline libs/prismline $(patsubst %/pyproject.toml,%,$(sort $(wildcard services/*/pyproject.toml))) cli deploy localstack/emulator localstack tools/contracts
# Sources of the compiled kernel: after a change the package has to be installed again.
KERNEL   := libs/gaussline/setup.py $(wildcard libs/gaussline/src/kernel/*)
SOURCES  := $(addsuffix /src,$(PACKAGES))
# The folder of the console's scripts, their packages for checks, and the two programs.
SCRIPTS  := services/api
CHECKERS := $(VENV)/npm/node_modules/.bin
CHECKED  := conftest.py contracts libs services localstack cli deploy tools tests benchmarks docs/gallery.py docs/pages.py docs/reference.py releases.py updates.py
# Tests that need no emulator and no services, and take little time.
QUICK    := not e2e and not emulator and not slow and not compose and not browser
# Quick tests run in two processes, tests that wait for services in four. Each process has its own emulator.
# The browser tests share one system and one browser, so they run in one process.
PYTEST   := $(BIN)/pytest -n 2 --dist worksteal
WAITING  := $(BIN)/pytest -n 4 --dist worksteal

.PHONY: reference contracts pacts deploy-local docs format fuzz gallery model help updates screenshots demo demo-faults demo-captions demo-urls test test-fast test-quick check check-types check-style check-scripts check-templates check-versions check-docs mutants install install-dev schemas lock wheels clean
.DEFAULT_GOAL := help

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.installed  ## Decompose a cube with all services on this machine; CUBE=path.fits for your own, KEEP=1 keeps them running.
	$(BIN)/prismline demo $(if $(CUBE),--cube '$(CUBE)') $(if $(KEEP),--keep)

demo-faults: $(VENV)/.installed  ## Break things on purpose and check that every chunk is still processed correctly.
	$(BIN)/prismline demo-faults

demo-captions: $(VENV)/.installed  ## Caption a recording during a GPU outage: the alert, the mute, the captions.
	$(BIN)/prismline demo-captions

demo-urls: $(VENV)/.installed  ## Fetch 20,000 URLs through the HTTP interface while processes are killed; URLS=1000 for fewer.
	$(BIN)/prismline demo-urls $(if $(URLS),--urls $(URLS))

# Measuring coverage takes 50 % more processor time, so it is measured of the quick tests, and where COVERAGE is set.
test: check  ## Run all checks and all tests; SERVICE=worker for the tests of one service; COVERAGE=1 to measure.
ifdef SERVICE
	$(BIN)/pytest -m 'not compose' services/$(SERVICE)
else
	$(PYTEST) -m '$(QUICK)' $(if $(COVERAGE),$(addprefix --cov=,$(SOURCES)) --cov-report=)
	$(if $(COVERAGE),@echo "The quick tests cover $$($(BIN)/coverage report --format=total) % of the lines.")
	$(WAITING) -m 'not compose and not browser and not mixed and not ($(QUICK))'
	$(BIN)/pytest -n 2 --dist loadfile -m browser tests/console
endif

format: $(VENV)/.installed-dev  ## Format and sort imports.
	$(BIN)/ruff format $(CHECKED)
	$(BIN)/ruff check --select I --fix $(CHECKED)
	$(if $(wildcard $(CHECKERS)/biome),cd $(SCRIPTS) && $(CURDIR)/$(CHECKERS)/biome check --write --log-level=warn)

test-fast: check test-quick  ## Run the checks and the quick tests, which need no emulator and no services (under two minutes).

test-quick: $(VENV)/.installed-dev  ## Run the quick tests without the checks; PYTHON=python3.13 for the environment of another Python.
	$(PYTEST) -m '$(QUICK)'

# The checks do not depend on each other: two run at a time.
check: $(VENV)/.installed-dev  ## Check format, lint, types, imports, templates, versions, documentation.
	@$(MAKE) --no-print-directory --jobs=2 --output-sync check-types check-style check-scripts check-templates check-versions check-docs

check-types: export MYPYPATH := $(subst $() $(),:,$(SOURCES))
check-types:
	$(BIN)/mypy $(SOURCES) tests/simulation tests/fuzz

check-style:
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/python -m tests.imports
	$(BIN)/python -m tests.dependencies

check-scripts:
ifeq ($(shell command -v npm),)
	@echo "The console's scripts were NOT CHECKED: npm is not installed."
else
	@$(MAKE) --no-print-directory $(VENV)/.installed-npm
	$(CHECKERS)/tsc -p $(SCRIPTS)
	cd $(SCRIPTS) && $(CURDIR)/$(CHECKERS)/biome check --error-on-warnings --log-level=warn
endif

check-templates:
	$(BIN)/cfn-lint platform/template.yaml services/*/template.yaml services/worker/pool.yaml services/worker/gpu.yaml

check-versions:
	$(BIN)/python releases.py check

check-docs:
	$(BIN)/python docs/pages.py

deploy-local: $(VENV)/.installed-dev  ## Deploy everything as Lambda functions on this machine; upgrade and roll back a service during a run.
	$(BIN)/pytest -p no:xdist -v -m e2e tests/e2e/test_functions.py

docs: $(VENV)/.installed-dev  ## Build the documentation site, which opens from disk.
	$(BIN)/python docs/pages.py
	@echo "Open file://$(CURDIR)/site/index.html"

reference: $(VENV)/.installed-dev  ## Write the generated pages of docs/reference again, from the code.
	$(BIN)/python docs/reference.py

gallery: $(VENV)/.installed-dev  ## Run the notebooks and draw the pictures of docs/explanation/notebooks again.
	$(BIN)/python docs/gallery.py

screenshots: $(VENV)/.installed-dev  ## Take the pictures of docs/reference/console.md again. Needs Chromium.
	$(BIN)/python -m tests.console.screenshots

compose-up:  ## Build and start everything in containers; WORKERS=4 for more workers.
	docker compose up --build -d --wait $(if $(WORKERS),--scale worker=$(WORKERS)) || { docker compose logs --tail 5; exit 1; }

compose-down:  ## Remove everything that compose-up made, data included.
	docker compose down --volumes

compose-test: $(VENV)/.installed-dev  ## Run the stack in real containers, kill and disconnect them, and check every chunk.
	$(BIN)/pytest -m compose tests/compose

model: | $(BIN)/python  ## Explore every state of the model of how a run ends; WHOLE=1 for the large spaces too. Needs spin and gcc.
	$(BIN)/python tests/model/check.py $(if $(WHOLE),--whole)

simulate: $(VENV)/.installed-dev  ## Run random schedules of the simulated system and check the invariants; SEEDS=100000 CORES=2.
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),1000) --cores $(or $(CORES),1)

mutants: $(VENV)/.installed-dev  ## Put deliberate bugs into a copy of the code; the simulation has to find each of them.
	$(BIN)/python -m tests.simulation.mutants

fuzz: $(VENV)/.installed-dev  ## Search inputs from outside that break a parser; SECONDS=600 for each target, TARGET=manifest, CORES=2.
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),60) --cores $(or $(CORES),1) $(addprefix --target ,$(TARGET)) $(addprefix --engine ,$(ENGINE))
	$(if $(TARGET),,$(BIN)/python libs/gaussline/tests/fuzz_api.py $(or $(ROUNDS),100000))

install: $(VENV)/.installed  ## Install everything that the services and the command need.

install-dev: $(VENV)/.installed-dev  ## Also install what the tests need.

schemas: $(VENV)/.installed  ## Regenerate the schemas and the summaries of the contracts.
	$(BIN)/prismline-contracts schemas

contracts: $(VENV)/.installed-dev $(VENV)/.installed-npm  ## Compare the contracts with the last release, verify the pacts, say what breaks and what can be deployed.
	$(BIN)/python -m tests.contracts

pacts: $(VENV)/.installed-dev  ## Regenerate contracts/pacts from the services, and verify every sender against them.
	$(BIN)/python -m tests.contracts.pacts

# All files in the wheels have this time, the earliest that an archive can have: the same sources give the same wheels.
wheels: export SOURCE_DATE_EPOCH := 315532800
# Every installation has the build tools. Setuptools would also pack what an earlier build left in `build`.
wheels: $(if $(wildcard $(VENV)/.installed),,$(VENV)/.installed)  ## Build a wheel of each package into dist/, beside the locks of what they need.
	rm -rf dist $(addsuffix /build,$(PACKAGES))
	$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation --no-index \
	  --wheel-dir dist $(addprefix ./,$(PACKAGES))
	rm -rf $(addsuffix /build,$(PACKAGES))
	cp $(addprefix requirements/,uv.txt runtime.txt deploy.txt service.txt emulator.txt) dist/

lock: $(VENV)/.installed-dev  ## Resolve the *.in files and package.json into locks with hashes.
	for file in requirements/uv.in requirements/runtime.in requirements/emulator.in requirements/dev.in requirements/deploy.in requirements/service.in services/*/requirements.in services/worker/phspectra.in localstack/requirements.in cli/requirements.in libs/gaussline/build.in; do \
	  (cd $$(dirname $$file) && $(CURDIR)/$(BIN)/uv pip compile -q --python-version 3.11 --universal --no-strip-extras \
	    --generate-hashes --no-annotate --no-header $$(basename $$file) -o $$(basename $$file .in).txt) || exit 1; done
	$(BIN)/python requirements/npm.py lock

# npm runs no script of a package, and npm.py compares what npm installed with the hashes of npm.txt.
$(VENV)/.installed-npm: requirements/package.json requirements/npm.txt | $(BIN)/python
	mkdir -p $(VENV)/npm && cp requirements/package.json $(VENV)/npm/
	cd $(VENV)/npm && npm install --silent --no-package-lock --no-audit --no-fund --ignore-scripts
	$(BIN)/python requirements/npm.py check $(VENV)/npm
	@touch $@

updates: $(VENV)/.installed-dev  ## Raise the digests of base images and the pinned versions of packages, and lock them.
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python updates.py images packages
	$(BIN)/python requirements/npm.py update
	$(MAKE) --no-print-directory lock

clean:  ## Remove everything that make created.
	rm -rf $(VENV) .prismline demo-output dist site .docs .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz .import_linter_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The emulator is a process of its own with an environment of its own: its lock does not constrain that of the services.
$(VENV)/emulator/.installed: requirements/emulator.txt localstack/emulator/pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv --without-pip $(VENV)/emulator
	requirements/install.sh $(BIN)/python --into $(VENV)/emulator/bin/python requirements/emulator.txt
	requirements/install.sh $(BIN)/python --into $(VENV)/emulator/bin/python --own ./localstack/emulator
	@touch $@

$(VENV)/.installed: requirements/runtime.txt $(VENV)/emulator/.installed $(addsuffix /pyproject.toml,$(PACKAGES)) $(KERNEL) | $(BIN)/python
	requirements/install.sh $(BIN)/python requirements/runtime.txt
	requirements/install.sh $(BIN)/python --own $(addprefix ./,$(PACKAGES))
	$(BIN)/python -m compileall -q $(SOURCES)
	@touch $@

$(VENV)/.installed-dev: requirements/dev.txt services/worker/phspectra.txt $(VENV)/.installed
	requirements/install.sh $(BIN)/python requirements/dev.txt
	requirements/install.sh $(BIN)/python services/worker/phspectra.txt
	@touch $@
