# The Makefile of each service includes this: `make -C services/worker lint test image plan deploy rollback ENV=prod`.
# A checkout of the service, contracts/ and libs/ is enough: the other tools come with the wheels of the harness and of
# the deploy tool.

SERVICE := $(notdir $(CURDIR))
ROOT    := $(abspath ../..)
VENV    ?= $(ROOT)/.venv
BIN     := $(VENV)/bin
PYTHON  ?= python3.11
# Folder that `make wheels` wrote: the wheels of the harness, the deploy tool and gaussline's kernel, and the locks of what
# they need of others. Empty: all come from the package index, without a lock. It then has to be the only index: of two
# indexes pip takes the higher version, whoever published it.
WHEELS  ?=
# Installs into the environment, or into that of the interpreter which is the argument.
pip      = $(BIN)/python -m pip $(if $(1),--python $(1)) install -q --disable-pip-version-check
locked   = $(call pip,$(2)) --require-hashes --only-binary :all: -r $(1)
# Installs packages of ours: names, lock, interpreter. From a folder they come without an index, after the lock.
define install-ours
$(if $(WHEELS),$(call locked,'$(WHEELS)/$(2)',$(3)))
	$(call pip,$(3)) $(if $(WHEELS),--no-index --find-links '$(WHEELS)') $(1)
endef
# The deploy tool, with what `make bill` needs.
DEPLOY  := prismline-deploy[bill]
# Name of the image that `make image` builds.
IMAGE   ?= prismline/$(SERVICE)
# Base image of `make image`, for instance from a mirror. Empty: the one that the Dockerfile names by its digest.
PYTHON_IMAGE ?=
BASE    := $(if $(PYTHON_IMAGE),--build-arg PYTHON_IMAGE='$(PYTHON_IMAGE)',--pull)

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
	$(call locked,requirements.txt)
	$(call install-ours,'prismline-localstack[test]' '$(DEPLOY)',service.txt)
	test -x $(VENV)/emulator/bin/python || $(PYTHON) -m venv --without-pip $(VENV)/emulator
	$(call install-ours,'prismline-emulator[server]',emulator.txt,$(VENV)/emulator/bin/python)

install-deploy:  ## Install only what plan, deploy, rollback and bill need.
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(call install-ours,'$(DEPLOY)',deploy.txt)

lint:  ## Format, lint, types, version and changelog.
	cd $(ROOT) && $(BIN)/python -m ruff format --check services/$(SERVICE)
	cd $(ROOT) && $(BIN)/python -m ruff check services/$(SERVICE)
	cd $(ROOT) && $(BIN)/python -m mypy services/$(SERVICE)/src
	$(BIN)/python $(ROOT)/releases.py check services/$(SERVICE)

test:  ## Run the service's tests; TESTS='-m "not emulator"' for some.
	cd $(ROOT) && $(BIN)/python -m pytest $(TESTS) services/$(SERVICE)/tests

image:  ## Build the image locally; `deploy` builds and pushes its own.
	docker build $(BASE) --file Dockerfile --tag $(IMAGE) \
	  $$($(BIN)/python -m prismline_deploy.labels --root $(ROOT) $(SERVICE)) $(ROOT)

bill:  ## Write the bill of materials of the image that `make image` built to dist/, in CycloneDX.
	mkdir -p dist
	$(BIN)/python -m prismline_deploy.bill --root $(ROOT) --image $(IMAGE) $(SERVICE) > dist/$(SERVICE).cdx.json

plan: needs-env  ## Show what a deployment to ENV would change.
	$(BIN)/prismline deploy --env $(ENV) --service $(SERVICE) --root $(ROOT) --plan

deploy: needs-env  ## Deploy the service to ENV.
	$(BIN)/prismline deploy --env $(ENV) --service $(SERVICE) --root $(ROOT)

rollback: needs-env  ## Restore the previous release in ENV.
	$(BIN)/prismline rollback --env $(ENV) --service $(SERVICE) --root $(ROOT)

.PHONY: needs-env
needs-env:
	@test -n '$(ENV)' || { echo 'Name the environment, for example ENV=prod'; exit 2; }
