# The Makefile of each service includes this: `make -C services/worker lint test image plan deploy rollback ENV=prod`.
# A checkout of the service, contracts/ and libs/ is enough: the other tools come with the wheels of the harness and of
# the deploy tool.

SERVICE := $(notdir $(CURDIR))
ROOT    := $(abspath ../..)
VENV    ?= $(ROOT)/.venv
BIN     := $(VENV)/bin
PYTHON  ?= python3.11
# Folder with the wheels of the harness, the deploy tool and gaussline's kernel. Empty: they come from the package index.
WHEELS  ?=
FOUND   := $(if $(WHEELS),--find-links '$(WHEELS)')
# The deploy tool, with what `make bill` needs.
DEPLOY  := prismline-deploy[bill]
# Name of the image that `make image` builds.
IMAGE   ?= prismline/$(SERVICE)

# The service and its libraries are imported from this checkout; gaussline is compiled, so it comes as a wheel.
LIBRARIES := $(filter-out %/gaussline/src,$(wildcard $(ROOT)/libs/*/src))
lint test: export PYTHONPATH := $(CURDIR)/src:$(ROOT)/contracts/src:$(subst $() $(),:,$(LIBRARIES))
lint: export MYPYPATH := $(PYTHONPATH):$(ROOT)/libs/gaussline/src

.PHONY: help install install-deploy lint test image bill plan deploy rollback
.DEFAULT_GOAL := help

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

install:  ## Install the service's locked packages, and what all targets need.
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check $(FOUND) 'prismline-localstack[test]' '$(DEPLOY)'

install-deploy:  ## Install only what plan, deploy, rollback and bill need.
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check $(FOUND) '$(DEPLOY)'

lint:  ## Format, lint, types, version and changelog.
	cd $(ROOT) && $(BIN)/python -m ruff format --check services/$(SERVICE)
	cd $(ROOT) && $(BIN)/python -m ruff check services/$(SERVICE)
	cd $(ROOT) && $(BIN)/python -m mypy services/$(SERVICE)/src
	$(BIN)/python $(ROOT)/releases.py check services/$(SERVICE)

test:  ## Run the service's tests; TESTS='-m "not emulator"' for some.
	cd $(ROOT) && $(BIN)/python -m pytest $(TESTS) services/$(SERVICE)/tests

image:  ## Build the image locally; `deploy` builds and pushes its own.
	docker build --file Dockerfile --tag $(IMAGE) \
	  --label org.opencontainers.image.version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml) \
	  --label org.opencontainers.image.revision=$$(git rev-parse HEAD) $(ROOT)

bill:  ## Write the bill of materials of the image to dist/, in CycloneDX.
	mkdir -p dist
	$(BIN)/python -m prismline_deploy.bill --root $(ROOT) $(SERVICE) > dist/$(SERVICE).cdx.json

plan: needs-env  ## Show what a deployment to ENV would change.
	$(BIN)/prismline deploy --env $(ENV) --service $(SERVICE) --root $(ROOT) --plan

deploy: needs-env  ## Deploy the service to ENV.
	$(BIN)/prismline deploy --env $(ENV) --service $(SERVICE) --root $(ROOT)

rollback: needs-env  ## Restore the previous release in ENV.
	$(BIN)/prismline rollback --env $(ENV) --service $(SERVICE) --root $(ROOT)

.PHONY: needs-env
needs-env:
	@test -n '$(ENV)' || { echo 'Name the environment, for example ENV=prod'; exit 2; }
