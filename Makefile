# Prismline's two front doors are `make demo` and `make test`; both install what they need into .venv.

PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
# Every package of the repository, in the order of their dependencies.
PACKAGES := contracts libs/runtime libs/ledger libs/coordination libs/web libs/cube libs/gaussline $(patsubst %/pyproject.toml,%,$(sort $(wildcard services/*/pyproject.toml))) cli localstack
# What is compiled: a change has to be installed anew.
KERNEL   := libs/gaussline/setup.py $(wildcard libs/gaussline/src/kernel/*)
SOURCES  := $(addsuffix /src,$(PACKAGES))
CHECKED  := conftest.py contracts libs services localstack cli tests benchmarks docs/pages.py releases.py
# Tests that need neither emulator nor services nor much time.
QUICK    := not e2e and not emulator and not slow and not compose and not browser
# Tests run in two processes, those that wait for services in four; each process has an emulator of its own.
# The browser tests share one system and one browser, so they run in one process.
PYTEST   := $(BIN)/pytest -n 2 --dist worksteal
WAITING  := $(BIN)/pytest -n 4 --dist worksteal

.PHONY: contracts pacts deploy-local docs format model help screenshots demo demo-faults demo-captions demo-urls test test-fast check check-types check-style check-templates check-versions check-docs mutants install install-dev schemas lock wheels clean
.DEFAULT_GOAL := help

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.installed  ## Decompose a cube with everything running here; CUBE=path.fits for your own, KEEP=1 to look.
	$(BIN)/prismline demo $(if $(CUBE),--cube '$(CUBE)') $(if $(KEEP),--keep)

demo-faults: $(VENV)/.installed  ## Break things on purpose and watch every chunk come out right.
	$(BIN)/prismline demo-faults

demo-captions: $(VENV)/.installed  ## Caption a recording through a GPU outage: the alert, the mute, the captions.
	$(BIN)/prismline demo-captions

demo-urls: $(VENV)/.installed  ## Fetch 20,000 URLs through the HTTP interface while things die; URLS=1000 for fewer.
	$(BIN)/prismline demo-urls $(if $(URLS),--urls $(URLS))

# Measuring coverage costs half as much processor time again, so the quick tests alone are measured.
test: check  ## Run all checks and all tests; SERVICE=worker for one service's.
ifdef SERVICE
	$(BIN)/pytest -m 'not compose' services/$(SERVICE)
else
	$(PYTEST) -m '$(QUICK)' --cov --cov-report=
	@echo "The quick tests cover $$($(BIN)/coverage report --format=total) % of the lines."
	$(WAITING) -m 'not compose and not browser and not ($(QUICK))'
	$(BIN)/pytest -m browser tests/console
endif

format: $(VENV)/.installed-dev  ## Format and sort imports.
	$(BIN)/ruff format $(CHECKED)
	$(BIN)/ruff check --select I --fix $(CHECKED)

test-fast: check  ## Run the checks and the quick tests that need neither emulator nor services (under two minutes).
	$(PYTEST) -m '$(QUICK)'

# The checks do not depend on each other: two run at a time.
check: $(VENV)/.installed-dev  ## Format, lint, types, imports, templates, versions, documentation.
	@$(MAKE) --no-print-directory --jobs=2 --output-sync check-types check-style check-templates check-versions check-docs

check-types:
	$(BIN)/mypy $(SOURCES) tests/simulation

check-style:
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/lint-imports --no-logo

check-templates:
	$(BIN)/cfn-lint platform/template.yaml services/*/template.yaml

check-versions:
	$(BIN)/python releases.py check

check-docs:
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

deploy-local: $(VENV)/.installed-dev  ## Deploy everything as Lambda functions, here; upgrade and roll back a service in mid-run.
	$(BIN)/pytest -p no:xdist -v -m e2e tests/e2e/test_functions.py

docs: $(VENV)/.installed-dev  ## Build the documentation site, which opens from disk.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open file://$(CURDIR)/site/index.html"

screenshots: $(VENV)/.installed-dev  ## Take the pictures of docs/console.md anew. Needs Chromium.
	$(BIN)/python -m tests.console.screenshots

compose-up:  ## Build and start everything in containers; WORKERS=4 for more workers.
	docker compose up --build -d --wait $(if $(WORKERS),--scale worker=$(WORKERS)) || { docker compose logs --tail 5; exit 1; }

compose-down:  ## Remove what compose-up made, data included.
	docker compose down --volumes

compose-test: $(VENV)/.installed-dev  ## Run the stack in real containers, kill it, cut it off, and check every chunk.
	$(BIN)/pytest -m compose tests/compose

model: | $(BIN)/python  ## Exhaust the model of how a run ends; WHOLE=1 for the large spaces too. Needs Debian's spin, and gcc.
	$(BIN)/python tests/model/check.py $(if $(WHOLE),--whole)

simulate: $(VENV)/.installed-dev  ## Search random schedules of the simulated system for broken promises; SEEDS=100000 CORES=2.
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),1000) --cores $(or $(CORES),1)

mutants: $(VENV)/.installed-dev  ## Put deliberate faults into a copy of the code; the simulation has to find each.
	$(BIN)/python -m tests.simulation.mutants

install: $(VENV)/.installed  ## Install what a run needs.

install-dev: $(VENV)/.installed-dev  ## Install what the tests need, too.

schemas: $(VENV)/.installed  ## Write the schemas of the contracts, their AsyncAPI document and their catalogue anew.
	$(BIN)/python -m prismline_contracts.schemas contracts
	$(BIN)/python -m prismline_contracts.catalogue contracts

contracts: $(VENV)/.installed-dev $(VENV)/.installed-asyncapi  ## Compare with the last release, verify the pacts, say whom a change breaks and what can be deployed.
	$(BIN)/python -m tests.contracts

pacts: $(VENV)/.installed-dev  ## Write contracts/pacts anew from the services, and verify every sender against them.
	$(BIN)/python -m tests.contracts.pacts

# Any installation has the tools. Setuptools packs what it finds in `build`, that of earlier sources, too.
wheels: $(if $(wildcard $(VENV)/.installed),,$(VENV)/.installed)  ## Build a wheel of each package into dist/.
	rm -rf dist $(addsuffix /build,$(PACKAGES))
	$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation --no-index \
	  --wheel-dir dist $(addprefix ./,$(PACKAGES))
	rm -rf $(addsuffix /build,$(PACKAGES))

lock: $(VENV)/.installed-dev  ## Resolve the *.in files into hash-locked requirements.
	for file in requirements/runtime.in requirements/dev.in services/*/requirements.in localstack/requirements.in cli/requirements.in; do \
	  (cd $$(dirname $$file) && $(CURDIR)/$(BIN)/uv pip compile -q --python-version 3.11 --universal --no-strip-extras \
	    --generate-hashes --no-annotate --no-header $$(basename $$file) -o $$(basename $$file .in).txt) || exit 1; done

clean:  ## Remove what make made.
	rm -rf $(VENV) .prismline demo-output dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements/runtime.txt $(addsuffix /pyproject.toml,$(PACKAGES)) $(KERNEL) | $(BIN)/python
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/runtime.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation $(addprefix -e ./,$(PACKAGES))
	@touch $@

$(VENV)/.installed-asyncapi: tests/contracts/package.json $(VENV)/.installed
	mkdir -p $(VENV)/asyncapi && cp tests/contracts/package.json $(VENV)/asyncapi/
	cd $(VENV)/asyncapi && npm install --silent --no-audit --no-fund --ignore-scripts
	@touch $@

$(VENV)/.installed-dev: requirements/dev.txt $(VENV)/.installed
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@
