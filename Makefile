# Every target works from a fresh clone: what it needs is installed into .venv first, and not again until that changes.
# ARGS adds to the last command: make quickstart ARGS="--seed_everything 2", make test ARGS="tests/clipping -x".

PY := .venv/bin/python
MODEL := models/SmolLM2-135M-Instruct

# Tests run beside other work: two OpenMP threads on a busy machine can be twenty times slower than one.
TEST_ENV := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
# Two files of tests at a time; a file stays in one process, as its tests share what is costly to make.
PARALLEL := -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help install model quickstart test test-slow lint format clean
MAKEFLAGS += --no-print-directory

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## Create .venv and install everything (about five minutes the first time)
	@bash scripts/install.sh

model: install ## Fetch SmolLM2-135M-Instruct into models/
	@$(PY) scripts/fetch_model.py --to $(MODEL)

# vLLM has no wheel for some machines (macOS, for one): there the same recipe samples with transformers.
quickstart: model ## Train a small language model with GAPO and report what it learned
	@engine=$$($(PY) -c 'import importlib.util as u; print("" if u.find_spec("vllm") else "--data.engine TransformersEngine")') && \
		set -x && .venv/bin/gapo-lit fit --config recipes/quickstart.yaml $$engine $(ARGS)

test: install ## Run the tests
	@$(TEST_ENV) $(PY) -m pytest $(PARALLEL) $(ARGS)

test-slow: install ## Run the tests that take minutes each
	@$(TEST_ENV) $(PY) -m pytest -m slow $(ARGS)

lint: install ## ruff check, ruff format --check and strict mypy
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

format: install ## Let ruff fix and format the code
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

clean: ## Remove caches, builds and half-fetched models; .venv, models/ and runs/ stay
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis models/.partial-*
	find gapo_lit tests scripts examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
