# `make` prints what there is. Everything runs in .venv, which is made when it is needed.
PYTHON ?= python3
VENV := .venv/bin/python
.DEFAULT_GOAL := help
export PYTHON

.PHONY: help
help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile

.PHONY: run
run: server-environment ## start everything on this machine; Ctrl-C stops it
	@exec $(VENV) -m deploy.dev

.PHONY: regions
regions: server-environment ## start it in three regions on this machine; Ctrl-C stops it
	@exec $(VENV) -m deploy.regional

.PHONY: regions-status
regions-status: server-environment ## what each process does now, and what each site's keeper says
	@CLOCKHOUSE_HOME="$${CLOCKHOUSE_HOME:-.clockhouse-regions}" exec $(VENV) -m deploy.ctl status

.PHONY: dev-status
dev-status: server-environment ## what each process does now
	@exec $(VENV) -m deploy.ctl status

.PHONY: dev-stop
dev-stop: server-environment ## NAME=…: stop one process and keep it down
	@exec $(VENV) -m deploy.ctl stop "$(NAME)"

.PHONY: dev-start
dev-start: server-environment ## NAME=…: start it again
	@exec $(VENV) -m deploy.ctl start "$(NAME)"

.PHONY: test
test: test-environment ## lint and all tests; prints where the time went
	@exec $(VENV) -m deploy.testing $(GROUPS)

.PHONY: lint
lint: test-environment ## the linters and type checks alone
	@exec $(VENV) -m deploy.testing lint

.PHONY: format
format: test-environment ## format the code
	@$(VENV) -m ruff format . && $(VENV) -m ruff check --fix .

.PHONY: prove
prove: test-environment ## list the proofs; NAME=… runs one and prints one JSON line
	@exec $(VENV) -m deploy.prove $(NAME)

.PHONY: bench
bench: test-environment ## the default benches; NAME=… runs one
	@exec $(VENV) -m deploy.bench $(NAME)

.PHONY: openapi
openapi: test-environment ## write the API's OpenAPI document from the code
	@$(VENV) -m deploy.openapi

.PHONY: requirements
requirements: test-environment ## compile pyproject.toml into deploy/requirements/*.txt
	@$(VENV) -m pip install --quiet pip-tools && sh deploy/requirements/compile.sh

.PHONY: clean
clean: ## remove the environment and caches, but no data
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: server-environment
server-environment:
	@sh deploy/environment.sh server

.PHONY: test-environment
test-environment:
	@sh deploy/environment.sh test
