# Two commands do all on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: .venv/ready ## see it work: no data, no network, no GPU needed
	$(BIN)/centerclip demo

test: .venv/ready ## run all tests
	$(BIN)/python -m pytest

lint: .venv/ready ## format check, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/ready ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/ready ## measure the speed claims (about ten minutes)
	$(BIN)/python benchmarks/clustering.py
	$(BIN)/python benchmarks/decode.py --quick
	$(BIN)/centerclip bench encoder --quick
	$(BIN)/centerclip bench memory --quick

clean: ## remove the virtual environment
	rm -rf .venv

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[research,dev]'
	@touch $@

.PHONY: help demo test lint format bench clean
.DEFAULT_GOAL := help
