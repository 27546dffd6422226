# Each target makes its virtual environment when it is missing. Set PYTHON to choose the interpreter.
PYTHON ?= python3
VENV ?= .venv
PHOTOGRAPHS ?= 14
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check docs release bench clean

demo: $(READY)  ## judge five explainers on four axes on real photographs; ends with the path of a report
	$(BIN)/holdfast demo --out demo-run --limit $(PHOTOGRAPHS)

test: $(READY)  ## all tests, doctests included; warnings are errors
	$(BIN)/python -m pytest --numprocesses 2 --dist loadscope -rs

check: $(READY)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(READY)  ## the documentation as a site, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

release:  ## build the wheel, install it in an empty environment and try it
	.ci/release

bench: $(READY)  ## every benchmark that runs on this machine
	set -e; for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file; done

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[demo,dev,ray]'
	touch $@

clean:
	rm -rf $(VENV) demo-run build dist site
