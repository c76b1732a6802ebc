# The entry point for people and for CI. Every target does its own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The first Python that is recent enough; /usr/bin first, because a python3 on PATH may be a shim that only its owner can read.
PYTHON ?= $(shell for p in /usr/bin/python3 python3; do "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
MACHINE ?= one
JOBS ?= 3
N ?= 20
NAME ?= default
SECONDS ?= 300
# The shells for the tests of completion. Ordinary users have to install them; otherwise the tests are skipped.
SHELLS = @if [ "$$(id -u)" = 0 ]; then bash scripts/prerequisites.sh "$(PYTHON)" shells; fi

# Programs of our own version: those of a control plane, kubeadm and the kubelet, with which tests compare kubewright, and etcdutl, which restores snapshots.
FETCH = @echo "-- programs of Kubernetes and etcd"; $(BIN)/kubewright binaries fetch && $(BIN)/kubewright binaries fetch kubeadm kubelet etcdutl

# Tests with a container runtime need root; otherwise they are skipped.
FETCH_RUNTIME = @if [ "$$(id -u)" = 0 ]; then echo "-- the container runtime"; bash scripts/prerequisites.sh "$(PYTHON)" runc; \
  $(BIN)/kubewright binaries fetch containerd containerd-shim-runc-v2 runc; fi

# What whole machines need: packages, Debian tree, programs, images. Needs root on Debian; elsewhere it says that their tests are skipped.
ENSURE_MACHINES = @echo "-- parts of the test machines"; PYTHONPATH=. $(BIN)/python -m testbed ensure

# kubeadm of the neighbouring minor releases, which no directory of binaries has, and the kubelet of one of them, which joins through a hub.
# Programs of one version are built together, because they share most packages.
FETCH_OTHERS = @echo "-- programs of other minor releases"; export KUBEWRIGHT_BINARIES_DIR=; \
  $(BIN)/kubewright binaries fetch kubeadm kubelet --kubernetes-version v1.35.4 && \
  $(BIN)/kubewright binaries fetch kubeadm --kubernetes-version v1.37.1

# All programs of the other minor releases, of which clusters of machines are made. The first time, building them takes many minutes.
FETCH_MACHINES_OF_OTHERS = @for version in v1.35.4 v1.37.1; do echo "-- programs of $$version"; KUBEWRIGHT_BINARIES_DIR= $(BIN)/kubewright \
  binaries fetch kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubeadm kubectl --kubernetes-version $$version; done

# The archive that is tested on machines without Python, and its image, if machines can be made here.
MAKE_IMAGE = @if [ "$$(id -u)" = 0 ] && command -v dpkg >/dev/null; then echo "-- the archive and its image"; $(MAKE) --no-print-directory image; fi

# The sources of the archive, and of the program that builds it.
BUNDLED = $(shell find src -type f ! -name '*.pyc') $(wildcard scripts/bundle.py scripts/launcher.c) requirements.lock pyproject.toml README.md LICENSE

.PHONY: help up down wheel bundle image machine-tree test test-all test-rest set-up set-up-rest test-unit test-controlplane test-machines machines enter copy test-compat lint format bench soak soak-tests soak-machines soak-conformance soak-hosts soak-controllers soak-hub soak-agent flaky fuzz mutants lock \
  proto clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 26

up: $(VENV)/.core ## Start a local cluster (for example ARGS='--nodes 10')
	@$(BIN)/kubewright up --name $(NAME) $(ARGS)

down: $(VENV)/.core ## Stop and remove the local cluster
	@$(BIN)/kubewright down --name $(NAME) $(ARGS)

wheel: $(VENV)/.core ## Build the wheel in dist
	$(BIN)/python -m hatchling build -t wheel

bundle: dist/.bundle ## Build the archive that runs on a machine without Python (Debian, Ubuntu)
	@ls dist/kubewright-*-linux-*.tar.gz

dist/.bundle: $(BUNDLED) | $(VENV)/.core
	@bash scripts/prerequisites.sh "$(PYTHON)" bundle
	$(BIN)/python scripts/bundle.py
	@touch $@

image: dist/.bundle ## Build an OCI image of that archive without Docker (IMAGE=registry.example/kubewright:1)
	$(BIN)/python -m scripts.image $(IMAGE)

machine-tree: $(VENV)/.core ## Make one file with all that whole machines are made of (root on Debian; KUBERNETES=v1.36.3)
	@bash scripts/prerequisites.sh "$(PYTHON)" runc machine-tree
	$(BIN)/python -m scripts.machine_tree $(KUBERNETES)

# Three processes keep two cores busy, because machines spend much of their time waiting. tests/lanes.py says which tests may run at the same time,
# tests/parts.py which part a test is in. `make lint` runs in parallel to the set-up and does not stop the tests, so that one run shows all problems.
TIERS = tests/controlplane tests/machines tests/compat tests/unit
RUN_PART = $(PYTEST) -n $(JOBS) --durations 50 $(TIERS) $(ARGS) --part

# pytest compiles a thousand modules with its own assertions, which takes half a minute in each process that finds no byte code of an earlier run.
# PYTHONDONTWRITEBYTECODE would prevent that there ever is any.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/pytest

test: $(VENV)/.test ## Check style, types and layers, and run a test of everything in ten minutes (JOBS=1 for one test at a time)
	@mkdir -p build; rm -f build/first.txt; $(MAKE) --no-print-directory lint >build/lint.txt 2>&1 & lint=$$!; \
	failed=; $(MAKE) --no-print-directory set-up build/.bytecode && $(RUN_PART) first || failed=" tests"; \
	wait $$lint || { cat build/lint.txt; failed="$$failed lint"; }; \
	echo "-- make test"; cat build/first.txt 2>/dev/null || true; \
	if [ "$$failed" ]; then echo "make test: failed:$$failed" >&2; exit 1; fi

test-all: ## Run every test: `make test`, then the tests that take longer
	@failed=; $(MAKE) --no-print-directory test || failed=" test"; $(MAKE) --no-print-directory test-rest || failed="$$failed test-rest"; \
	echo "-- make test-all"; cat build/first.txt build/rest.txt 2>/dev/null || true; \
	if [ "$$failed" ]; then echo "make test-all: failed:$$failed" >&2; exit 1; fi

test-rest: $(VENV)/.test ## Run only what `make test` leaves out
	@rm -f build/rest.txt
	@$(MAKE) --no-print-directory set-up set-up-rest build/.bytecode
	$(RUN_PART) rest

set-up: $(VENV)/.test
	$(FETCH)
	$(FETCH_RUNTIME)
	$(SHELLS)
	$(ENSURE_MACHINES)

set-up-rest: $(VENV)/.test
	$(FETCH_OTHERS)
	$(MAKE_IMAGE)

# One process compiles the tests before several run them. A module that cannot be imported is reported by the run itself.
build/.bytecode: $(shell find src tests -name '*.py') | $(VENV)/.test
	@echo "-- byte code of the tests"; mkdir -p build; $(PYTEST) --collect-only -q $(TIERS) >/dev/null 2>&1 || true
	@touch $@

test-unit: $(VENV)/.test ## Run the tests that need no root, no network and no components
	$(SHELLS)
	$(BIN)/pytest tests/unit $(ARGS)

test-controlplane: $(VENV)/.test ## Run the tests against real components as processes
	$(BIN)/kubewright binaries fetch
	$(BIN)/pytest tests/controlplane $(ARGS)

# The first run makes the machines' tree and images, which takes minutes.
test-machines: set-up set-up-rest ## Run the tests on whole machines (root on Debian)
	$(BIN)/pytest tests/machines $(ARGS)

machines: $(VENV)/.test ## Boot machines to use by hand (ARGS='one two'); Ctrl-C removes them
	$(ENSURE_MACHINES)
	@PYTHONPATH=. $(BIN)/python -m testbed up $(ARGS)

enter: ## Enter one of those machines (MACHINE=one)
	@PYTHONPATH=. $(BIN)/python -m testbed enter $(MACHINE) $(ARGS)

copy: ## Copy files between them (ARGS='one:/etc/kubernetes/admin.conf two:')
	@PYTHONPATH=. $(BIN)/python -m testbed copy $(ARGS)

test-compat: $(VENV)/.test ## Run the tests that compare with real kubeadm
	$(FETCH)
	$(FETCH_OTHERS)
	$(FETCH_RUNTIME)
	$(BIN)/pytest tests/compat $(ARGS)

lint: $(VENV)/.test ## Check style, types and layers
	$(BIN)/ruff check src tests testbed scripts
	$(BIN)/ruff format --check src tests testbed scripts
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.test ## Format the code
	$(BIN)/ruff format src tests testbed scripts
	$(BIN)/ruff check --fix src tests testbed scripts

bench: $(VENV)/.test ## Run the benchmarks and write docs/performance
	$(BIN)/kubewright binaries fetch
	$(BIN)/kubewright binaries fetch kubeadm
	$(BIN)/python -m tests.bench $(ARGS)

# About 40 minutes on two quiet cores: init 17, worker 5, control-plane 19.
soak: $(VENV)/.test ## Kill init and joins at all boundaries and 50 random moments each, write docs/soak.md (ARGS='--workflow init --count 8')
	$(BIN)/kubewright binaries fetch
	$(ENSURE_MACHINES)
	PYTHONPATH=tests:tests/machines $(BIN)/python -m tests.soak $(ARGS)

# About an hour on two quiet cores, half of it for tests/machines/test_upgrade_matrix.py. tests/parts.py lists them.
soak-tests: $(VENV)/.test ## Run the tests that `make test-all` leaves out: variants of its tests, and further kills
	@$(MAKE) --no-print-directory set-up build/.bytecode
	$(MAKE_IMAGE)
	$(FETCH_MACHINES_OF_OTHERS)
	export KUBEWRIGHT_KILL_SEED=$${KUBEWRIGHT_KILL_SEED:-$$RANDOM}; $(RUN_PART) soak

# About an hour on two quiet cores. Outcomes are kept in build/soak-machines: each run adds to them.
soak-machines: $(VENV)/.test ## Kill command, daemon and machines of a cluster of machines 100 times, write docs/soak-machines.md (ARGS='--count 10')
	$(BIN)/kubewright binaries fetch
	$(ENSURE_MACHINES)
	PYTHONPATH=tests:tests/machines $(BIN)/python -m tests.soak.machines $(ARGS)

# The first run builds the tests, which takes some minutes.
soak-conformance: $(VENV)/.test ## Run Kubernetes' own tests of pods on a cluster of machines; write docs/soak-conformance.md
	$(BIN)/kubewright binaries fetch
	$(ENSURE_MACHINES)
	PYTHONPATH=tests:tests/machines $(BIN)/python -m tests.soak.conformance $(ARGS)

# The first run makes the disks of a virtual machine, which takes some minutes, and without KVM builds Linux in user mode, which takes ten.
soak-hosts: $(VENV)/.test dist/.bundle ## Run a cluster of machines on Debian in a virtual machine, with each firewall; write docs/soak-hosts.md (ARGS='--only Debian')
	@bash scripts/prerequisites.sh "$(PYTHON)" virtual-hosts
	$(BIN)/kubewright binaries fetch
	$(ENSURE_MACHINES)
	$(BIN)/python -m tests.soak.hosts $(ARGS)

# About 15 minutes on two quiet cores.
soak-controllers: $(VENV)/.test ## Stop, kill, disconnect and flood controllers, send them a million generated requests, compare our decoders with Go's; write docs/soak-controllers.md
	$(BIN)/kubewright binaries fetch
	PYTHONPATH=tests:tests/controlplane:tests/unit/controllers:tests/compat $(BIN)/python -m tests.soak.controllers $(ARGS)

# About 15 minutes on two quiet cores.
soak-hub: $(VENV)/.test ## Kill hubs and nodes at 50 random moments of joins, send 5,000 hostile requests; write docs/soak-hub.md
	$(BIN)/kubewright binaries fetch
	PYTHONPATH=tests:tests/controlplane:tests/unit/enrollment $(BIN)/python -m tests.soak.hub $(ARGS)

# About 70 minutes: half an hour with each set of controllers, seven minutes for the zones.
soak-agent: $(VENV)/.test ## Run node agents with certificates of minutes through half an hour of faults, with each set of controllers; silence zones; write docs/soak-agent.md
	$(BIN)/kubewright binaries fetch
	PYTHONPATH=tests:tests/controlplane:tests/unit/host $(BIN)/python -m tests.soak.agent $(ARGS)

flaky: $(VENV)/.test ## Run tests N times alongside busy loops (N=20 ARGS='tests/unit/http'); failures go to build/flaky
	$(BIN)/python -m tests.flaky $(N) $(ARGS)

fuzz: $(VENV)/.test ## Compare with kubeadm on fresh seeds for SECONDS; failures go to build/fuzz
	$(BIN)/kubewright binaries fetch kubeadm
	$(BIN)/python -m tests.fuzz $(SECONDS)

mutants: $(VENV)/.test ## Remove rows of tables one at a time, and expect a test to fail (for example ARGS='rules --jobs 2')
	$(BIN)/kubewright binaries fetch kubeadm
	$(BIN)/python -m tests.mutation $(ARGS)

# Three files: what users run (exactly this is in the archive of `make bundle`), what builds the package, and what the tests need in addition.
# --no-strip-extras: pip before 23.1 does not match `name[extra]`, as other packages require it, with a pinned `name`.
LOCK = uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-emit-index-url --no-header --no-annotate \
  --exclude-newer "$$(date -u -d '7 days ago' +%F)"

lock: ## Resolve the dependencies again (needs uv)
	$(LOCK) --extra cri pyproject.toml -o requirements.lock
	$(LOCK) -c requirements.lock requirements-build.in -o requirements-build.lock
	$(LOCK) --extra test --extra cri -c requirements.lock -c requirements-build.lock pyproject.toml requirements-build.in -o requirements-test.lock

proto: $(VENV)/.test ## Generate the code for talking to container runtimes and etcd
	cd src && ../$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. kubewright/host/cri/api.proto kubewright/etcd/maintenance.proto

clean: ## Remove the virtual environment, caches of tools, and the cache of component binaries
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/kubewright"

$(VENV)/bin/python:
	@bash scripts/prerequisites.sh "$(PYTHON)"
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/.core: requirements.lock requirements-build.lock pyproject.toml | $(VENV)/bin/python
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(VENV) # its creation was killed
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --only-binary :all: -r requirements.lock -r requirements-build.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q src  # the environment may not allow Python to write byte code later
	@touch $@

$(VENV)/.test: requirements-test.lock $(VENV)/.core
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes --only-binary :all: -r requirements-test.lock
	@touch $@
