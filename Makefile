# `make help` lists the targets. Each installs its dependencies; PYTHON=/path/to/python3 chooses the Python.
.PHONY: help setup demo fast test check versions lint types layers docs unit long bench sim fuzz deploy clean
.NOTPARALLEL:

bin := .venv/bin

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## prepare .venv for development
	@scripts/setup test

demo: ## install the runtime, and make calls while workers and broker are killed
	@scripts/setup runtime
	@$(bin)/requite demo
	@echo "To watch workers die and come back in a browser: $(bin)/requite demo --watch"

fast: ## compile the core and install it in .venv, until `make setup`; needs a C compiler
	@scripts/setup runtime fast

test: lint layers unit ## all checks except `make long`

check: lint types layers ## the first three minutes of `make test`: checks without further processes
	@$(bin)/python -m tests.lanes engines $(if $(SEED),--seed $(SEED))

versions: ## run the tests on each installed CPython from 3.11 to 3.14
	@scripts/test-versions

lint: setup ## ruff: rules and formatting
	$(bin)/ruff check
	$(bin)/ruff format --check

types: setup ## mypy, strict
	$(bin)/mypy

layers: setup ## check the layers: imports run downhill, engines do no I/O
	$(bin)/lint-imports --no-logo --no-cache

docs: setup ## build docs/_build/html, warnings are errors
	$(bin)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

unit: setup ## the tests, `types` and `docs`, in lanes; choose with LANES="spark sim" and SEED=7
	@$(bin)/python -m tests.lanes $(LANES) $(if $(SEED),--seed $(SEED))

long: setup ## the long form of the tests, with fresh examples for hypothesis, and with a compiled core
	$(bin)/python -m pytest -m long
	$(bin)/python -m tests.compiled --long
	HYPOTHESIS_PROFILE=fresh $(bin)/python -m pytest -m "hypothesis and not nng"

bench: ## make docs/performance.md anew, in 50 minutes; BESIDE=/other/.venv/bin/python adds the other build
	@scripts/setup bench
	@$(bin)/python -m bench.all --docs docs/performance.md $(if $(BESIDE),--beside $(BESIDE))

sim: ## run 500 seeds of the deterministic simulator
	@scripts/setup runtime
	@$(bin)/requite sim --seeds 500

fuzz: ## run the coverage-guided fuzzers
	@scripts/setup fuzz
	@$(bin)/python -m fuzz

deploy: setup ## check deploy/ with Helm, hadolint and systemd
	@scripts/setup deploy
	$(bin)/python -m pytest -q tests/deploy

clean: ## remove all generated files
	rm -rf .venv .setup.lock build dist docs/_build .hypothesis .*_cache
