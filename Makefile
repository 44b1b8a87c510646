# Everything is set up by the targets themselves: a fresh machine needs Python 3.11 and make, nothing else.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNS := $(VENV)/.runs# trainmaster and what it needs to run
STAMP := $(VENV)/.installed# the same with the tools of development
CORPUS ?= ../shared/corpus
FAULTS ?= *# leaders and watch are the strongest
KUBECTLS ?= kubectl-1_20 kubectl-1_32
WORKERS := $(shell echo $$(($$(nproc) + 1)))# many tests wait for something: one more than there are cores

ON_INTERRUPT := trap 'echo "interrupted: the same command starts over, with what was downloaded"; exit 130' INT;
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
NOT_INSTALLED := echo "the packages of pyproject.toml could not be installed: check the network (PIP_INDEX_URL names a mirror) and the room on disk"

.DEFAULT_GOAL := help
.PHONY: help demo test check unit test-sandbox test-machines test-corpus e2e e2e-light test-kubectl test-kubernetes test-faults test-mutants e2e-node bench generate golden clean

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

$(RUNS): pyproject.toml
	@command -v "$(PYTHON)" > /dev/null || { echo "there is no $(PYTHON) here: install Python 3.11 or newer, or name one with PYTHON=…"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed; set PYTHON=…")'
	@echo "setting up $(VENV): downloading trainmaster's own dependencies, 18 MB …"
	@$(ON_INTERRUPT) $(BIN)/python -m pip --version > /dev/null 2>&1 || { rm -rf $(VENV); $(PYTHON) -m venv $(VENV); } || \
	  { rm -rf $(VENV); echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@$(ON_INTERRUPT) $(PIP_INSTALL) -e . || { $(NOT_INSTALLED); exit 1; }
	@touch $@

$(STAMP): $(RUNS)
	@echo "completing $(VENV): downloading development tools, 50 MB …"
	@$(ON_INTERRUPT) $(PIP_INSTALL) -e '.[dev]' || { $(NOT_INSTALLED); exit 1; }
	@touch $@

test: check unit ## Check and test everything that needs nothing outside this clone

check: $(STAMP) ## Lint, types, layers, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.generate --check

unit: $(STAMP) ## Unit, golden and integration tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

test-sandbox: $(STAMP) ## Of the tests above, those that start containers: what they show may depend on the machine
	$(BIN)/python -m pytest -m sandbox -n $(WORKERS) --dist loadfile $(PYTEST)

test-machines: $(STAMP) ## The same without namespaces, as an ordinary user, and both (as root)
	$(BIN)/python -m tools.machines

test-corpus: $(STAMP) ## Plan other people's manifests from CORPUS=DIR and hold the plans against the rules
	CORPUS="$(CORPUS)" $(BIN)/python -m pytest tests/corpus

test-mutants: $(STAMP) ## Break each safety claim of docs/adr on purpose, and fail where no test notices
	$(BIN)/python -m tools.mutants

golden: $(STAMP) ## Rewrite the golden plans; review the difference as code
	GOLDEN_UPDATE=1 $(BIN)/python -m pytest -q tests/golden

generate: $(STAMP) ## Rewrite what is derived: deploy/, docs/kinds/, docs/reference/
	$(BIN)/python -m tools.generate

demo: $(RUNS) ## Train a model on three ranks: with PyTorch if it is installed or FRAMEWORK=pytorch, else XGBoost
	@$(BIN)/python -m tools.demo --python "$(PYTHON)" --framework "$(FRAMEWORK)"

e2e: $(STAMP) ## Train every example with its real framework, try their traps and the unmodified SDK; keep the table
	@$(BIN)/python -m tools.environments all > /dev/null
	$(BIN)/python -m pytest tests/e2e --table docs/proof/e2e.md

e2e-light: $(STAMP) ## The same with those frameworks that are installed in a minute or two
	@$(BIN)/python -m tools.environments light > /dev/null
	$(BIN)/python -m pytest tests/e2e -m light -n 2 --dist loadfile

test-kubernetes: $(STAMP) ## Run jobs of every kind on a real control plane (built once, or from KUBEBUILDER_ASSETS)
	@$(BIN)/python -m tools.kubernetes.binaries
	$(BIN)/python -m pytest tests/kubernetes tests/suite --server kubernetes --ignore-glob='*/test_faults_*'

test-kubectl: $(STAMP) ## Stock kubectl of several releases on the embedded cluster
	@for release in $(KUBECTLS); do \
	  kubectl=$$($(BIN)/python -m tools.kubectl $$release) && echo "$$release" && \
	  KUBECTL=$$kubectl $(BIN)/python -m pytest tests/integration/test_cluster*_kubectl.py || exit 1; \
	done

test-faults: $(STAMP) ## Kill operators, API servers, watches and clocks on a real control plane (a quarter of an hour)
	@$(BIN)/python -m tools.kubernetes.binaries
	$(BIN)/python -m pytest $(FAULTS:%=tests/kubernetes/test_faults_%.py)

e2e-node: $(STAMP) ## Run jobs of five kinds as containers on a real node (as root, in namespaces of its own)
	$(BIN)/python -m tools.kubernetes.node_stock
	$(BIN)/python -m tools.kubernetes.node_room $(BIN)/python -m pytest tests/node

bench: $(STAMP) ## Measure the API server, the operator, start-up and a thousand pods
	$(BIN)/python -m benchmarks

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
