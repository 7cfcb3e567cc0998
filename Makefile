# Each target sets up all it needs: Python ≥ 3.11 and a package registry are enough to start.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test stress lint format help

help:
	@echo "make demo    compare six rules on real MNIST with 16 simulated workers"
	@echo "make test    lint, type-check and test"
	@echo "make stress  the long repetitions that make test leaves out"
	@echo "make lint    only lint and type-check"
	@echo "make format  rewrite the code in the project's format"

demo: $(READY)
	$(BIN)/tardigrad demo

# One thread each: tests start processes of their own, and threads that wait for a core spin.
test stress: export OMP_NUM_THREADS = 1

test: lint
	$(BIN)/python -m pytest -m "not stress"

stress: $(READY)
	$(BIN)/python -m pytest -m stress

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
