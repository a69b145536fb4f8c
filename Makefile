# Every command a person types. They make .venv when it is missing and reinstall only when the lock changed.
SHELL := /bin/sh
.DEFAULT_GOAL := help
# Two installs into one .venv must not run at once.
.NOTPARALLEL:
.PHONY: help serve demo demo-table test check fix models bench clean

# A python that starts and is new enough: a name on the path may be an empty promise.
NEW_ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python; do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && command -v $$p && break; done)
BIN := .venv/bin
LOCK := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
SERVE := .venv/installed-serve-$(LOCK)
DEV := .venv/installed-dev-$(LOCK)

help:    ## list these commands
	@grep -E '^[a-z-]+: .*##' Makefile | sed 's/:.*##/\t/'

serve: $(SERVE) models  ## start the service on 127.0.0.1:8000; Ctrl-C stops it
	@$(BIN)/python -m deployments.serve $(ARGS)

demo: $(SERVE)  ## ask the running service a dozen real questions, twice
	@$(BIN)/python -m examples.demo $(ARGS)

demo-table: $(SERVE)  ## teach the running service a support-routing task, and see what its table answers
	@$(BIN)/python -m examples.demo_table $(ARGS)

test: $(DEV) models  ## every test: fast, validity, service, cluster, browser
	@$(BIN)/python -m pytest $(ARGS)

check: $(DEV)  ## ruff, formatting, types, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

fix: $(DEV)  ## format and apply safe fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

models: $(SERVE)  ## prepare the embedded model, once
	@$(BIN)/python -m jobs.models

bench: $(DEV) models  ## measure, and write benchmarks/results/<date>-<commit>.json
	@$(BIN)/python -m benchmarks.run $(ARGS)

clean:   ## forget the environment, the models and the decisions
	rm -rf .venv .precedent build dist *.egg-info

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Precedent needs Python 3.11 or newer with venv and pip, and none is on the" \
		"path; install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
	"$(PYTHON)" -m venv .venv

$(SERVE): .venv/bin/python
	@test -e $(DEV) || { echo "installing what the service needs into .venv (a few minutes the first time)"; \
		$(PIP) --editable '.[models]'; }
	@rm -f .venv/installed-serve-*; touch $@

$(DEV): .venv/bin/python
	@echo "installing what the checks and tests need into .venv (a few minutes the first time)"
	@$(PIP) --editable '.[models,dev]'
	@rm -f .venv/installed-dev-*; touch $@
