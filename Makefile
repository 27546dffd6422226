# Each target makes its virtual environment when it is missing. Set PYTHON to choose the interpreter.
PYTHON ?= python3
VENV ?= .venv
PHOTOGRAPHS ?= 14
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ECOSYSTEM ?= .venv-ecosystem

.PHONY: demo test ecosystem test-ecosystem check docs release bench clean

demo: $(READY)  ## four methods and three controls on six axes, on real photographs; ends with the path of a report
	$(BIN)/heatproof demo --out demo-run --limit $(PHOTOGRAPHS)

test: $(READY)  ## all tests, doctests included; warnings are errors
	$(BIN)/python -m pytest --numprocesses 2 --dist loadscope -rs

ecosystem: $(ECOSYSTEM)/.ready  ## a second environment with the libraries that heatproof works with (7 GB)

test-ecosystem: ecosystem  ## the tests that `make test` skips for want of a package; here a skip is a failure
	HEATPROOF_NO_SKIPS=1 $(ECOSYSTEM)/bin/python -m pytest --numprocesses 2 --dist loadscope -rs @tests/ecosystem.txt

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

$(ECOSYSTEM)/.ready: pyproject.toml constraints-ecosystem.txt
	$(PYTHON) -m venv $(ECOSYSTEM)
	$(ECOSYSTEM)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-ecosystem.txt --editable '.[demo,dev,ecosystem]'
	touch $@

clean:
	rm -rf $(VENV) $(ECOSYSTEM) demo-run build dist site
