# `make serve` and `make test` do everything on a fresh machine. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Asked only when pip's own indexes do not have the CPU build of torch.
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu
PIP := $(BIN)/python -m pip --disable-pip-version-check
SERVE_ARGS ?=
MUTANTS ?=

.PHONY: help setup serve check audit sbom test test-slow test-agents test-cluster test-all mutants lint format bench bench-decode bench-render bench-media bench-prefix bench-serve clean

help:
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

setup: $(VENV)/.installed ## create .venv, install, build the mini checkpoint
	@$(BIN)/python -m engine.mini.build

serve: setup ## run the service on the mini checkpoint (no GPU needed)
	@$(BIN)/k3 serve $(SERVE_ARGS)

check: setup $(VENV)/.dev ## while you work: lint, types, and the tests that need no engine, few random cases, on all cores
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy & types=$$!; \
	K3_TEST_PROFILE=dev $(BIN)/python -m pytest -m "not slow and not engine and not server" -n auto --dist worksteal --durations=0 --no-header -q; \
	wait $$types

audit: setup $(VENV)/.dev ## known vulnerabilities of the pinned packages (asks the package index)
	@$(BIN)/pip-audit --no-deps --disable-pip -r requirements/cpu.txt

sbom: setup $(VENV)/.dev ## dist/sbom.json, the bill of materials of the service (CycloneDX)
	@mkdir -p dist
	@$(BIN)/cyclonedx-py requirements --of JSON -o dist/sbom.json requirements/cpu.txt

test: setup $(VENV)/.dev ## run the tests (about 15 minutes on 2 cores)
	@$(BIN)/python -m pytest -rs -m "not slow"

test-slow: setup $(VENV)/.dev ## what takes long: the patches on other vLLM releases, fuzzing, npm clients
	@$(BIN)/python -m pytest -rs -m slow

test-agents: setup $(VENV)/.dev tests/agents/node/node_modules/.installed ## npm agents (Codex, Claude Code, ...) through whole sessions
	@$(BIN)/python -m pytest -rs tests/agents

test-cluster: setup $(VENV)/.dev ## two data-parallel ranks in real processes (prints in which form they ran)
	@$(BIN)/python -m pytest -rs tests/cluster

test-all: test test-slow ## all tests

mutants: setup $(VENV)/.dev ## would the tests notice small changes? A seeded sample (MUTANTS="decode --sample 100")
	@$(BIN)/python -m tests.mutants $(MUTANTS)

lint: $(VENV)/.installed $(VENV)/.dev ## ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/.dev ## format the code
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

bench: bench-decode bench-render bench-media bench-prefix bench-serve ## all benchmarks

bench-decode bench-render bench-media bench-prefix bench-serve: bench-%: setup $(VENV)/.dev
	@$(BIN)/python -m bench.$*

clean: ## remove the environment (the checkpoint cache stays)
	rm -rf $(VENV)

$(BIN)/python:
	@echo "==> creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
		|| { echo "k3-gateway needs Python 3.11 to 3.13; set PYTHON=python3.12 or the like" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements/cpu.txt pyproject.toml | $(BIN)/python
	@trap 'exit 130' INT; stage() { echo "==> $$1 (after $$SECONDS s)"; }; \
	torch=$$(grep '^torch==' requirements/cpu.txt); \
	stage "1/4 installing $$torch for CPU"; \
	$(PIP) install -q --no-deps "$$torch" 2>$(VENV)/torch.log \
		|| $(PIP) install -q --no-deps --index-url $(TORCH_CPU_INDEX) "$$torch" \
		|| { echo "==> before that, pip said of its own indexes:" >&2; cat $(VENV)/torch.log >&2; exit 1; }; \
	vllm=$$(grep '^vllm' requirements/cpu.txt); \
	stage "2/4 installing $$vllm"; \
	$(PIP) install -q --no-deps "$$vllm"; \
	stage "3/4 installing the other $$(grep -c == requirements/cpu.txt) pinned packages"; \
	$(PIP) install -q --no-deps -r requirements/cpu.txt; \
	stage "4/4 installing this project"; \
	$(PIP) install -q --no-deps --no-build-isolation -e .; \
	stage "installed"
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.installed
	@echo "==> installing test and lint tools"
	@$(PIP) install -q --no-deps -r requirements/dev.txt
	@touch $@

# Programs come inside the packages, so no install script of theirs is run.
tests/agents/node/node_modules/.installed: tests/agents/node/package-lock.json
	@echo "==> installing the agents (1.7 GB)"
	@npm ci --prefix tests/agents/node --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@
