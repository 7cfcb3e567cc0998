# Each target sets up all it needs: Python ≥ 3.11 and a package registry are enough to start.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test coverage stress simulate site lint format help

help:
	@echo "make demo      compare six rules on real MNIST with 16 simulated workers"
	@echo "make test      lint, type-check and test"
	@echo "make coverage  test, and list the lines that no test runs"
	@echo "make stress    the long repetitions that make test leaves out"
	@echo "make simulate  runs under simulated faults: SEEDS=0:1000, or SEEDS=7 for one with its story"
	@echo "make site      the documentation as pages, in site/"
	@echo "make lint      only lint and type-check"
	@echo "make format    rewrite the code in the project's format"

demo: $(READY)
	$(BIN)/tardigrad demo

# One thread each: tests start processes of their own, and threads that wait for a core spin.
test coverage stress simulate: export OMP_NUM_THREADS = 1

# Two processes: tests on Ray mostly wait, and all others run beside them.
test: lint
	$(BIN)/python -m pytest -m "not stress" --numprocesses 2

# Processes that tests start are measured too, but for those that they kill.
coverage: $(READY)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m "not stress" --timeout=1200
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

stress: $(READY)
	$(BIN)/python -m pytest -m stress

# SEEDS=7: one, with its story. MUTATIONS=1: with each safeguard taken out, until that is found.
SEEDS ?= 500:1500
simulate: $(READY)
	$(BIN)/python -m tests.simulation.simulate $(if $(MUTATIONS),3000 --mutations,$(SEEDS) --processes 2)

# Its tools are installed only for who builds it.
site: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Done once, and again when what is to be installed has changed.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "tardigrad needs Python 3.11 or newer, this is " + sys.version.split()[0] + ": make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray,dev]'
	@touch $@
