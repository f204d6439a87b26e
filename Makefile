# Two commands do all of their own set-up: `make demo` and `make test`.
.DEFAULT_GOAL := help
.PHONY: help demo test test-full test-unit lint docs lock clean

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg

help: ## say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: ## deploy a real server to a real host, catch a faulty upgrade, roll it back (root or sudo)
	@tools/setup.sh demo
	@tools/as_root.sh tools/demo.sh

test: ## lint, unit tests, the lab: real hosts and a real server (root or sudo)
	@tools/setup.sh test
	@$(MAKE) --no-print-directory lint
	@tools/as_root.sh tools/test.sh -m "not full"

test-full: ## the same and what takes longer
	@tools/setup.sh test
	@$(MAKE) --no-print-directory lint
	@tools/as_root.sh tools/test.sh

test-unit: ## only what needs no root and no lab
	@tools/setup.sh unit
	pytest tests/unit -m "not full"

lint: ## ansible-lint (production profile), ruff, mypy, ansible-config
	@tools/setup.sh unit
	ansible-config validate -t all
	ruff check .
	ruff format --check .
	mypy module_utils filter_plugins
	ansible-lint --nocolor

docs: ## write the reference, docs/, from argument specs, module docs and the catalogue
	@tools/setup.sh unit
	@python tools/docs.py

lock: ## lock the controller's own packages again
	@tools/setup.sh unit
	tools/lock_requirements.sh

clean: ## take off everything that demo and test put on this machine
	@tools/as_root.sh tools/clean.sh
