# Each target makes its virtual environment when it is missing. Set PYTHON to choose the interpreter.
PYTHON ?= python3
VENV ?= .venv
PHOTOGRAPHS ?= 14
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ECOSYSTEM ?= .venv-ecosystem

.PHONY: demo test check docs release bench clean
.PHONY: ecosystem test-ecosystem test-lowest test-newest test-pythons test-processor

demo: $(READY)  ## four methods and three controls on six axes, on real photographs; ends with the path of a report
	$(BIN)/heatproof demo --out demo-run --limit $(PHOTOGRAPHS)

test: $(READY)  ## all tests, doctests included; warnings are errors
	$(BIN)/python -m pytest --numprocesses 2 --dist loadscope -rs

ecosystem: $(ECOSYSTEM)/.ready  ## a second environment with the libraries that heatproof works with (7 GB)

test-ecosystem: ecosystem  ## the tests that `make test` skips for want of a package; here a skip is a failure
	HEATPROOF_NO_SKIPS=1 $(ECOSYSTEM)/bin/python -m pytest --numprocesses 2 --dist loadscope -rs @tests/ecosystem.txt

test-lowest:  ## all tests with the lowest versions that pyproject.toml allows
	.ci/compat lowest

test-newest:  ## all tests with the newest release of everything
	.ci/compat newest

test-pythons:  ## all tests with each Python of PYTHONS that is installed
	.ci/compat pythons

test-processor:  ## all tests with the instructions that every x86-64 processor has
	.ci/compat processor

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

# pip installs dependency groups since 25.1, newer than what `venv` brings with Python 3.11.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[demo,ray]' --group dev
	touch $@

$(ECOSYSTEM)/.ready: pyproject.toml constraints-ecosystem.txt
	$(PYTHON) -m venv $(ECOSYSTEM)
	$(ECOSYSTEM)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(ECOSYSTEM)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints-ecosystem.txt --editable '.[demo]' --group dev --group ecosystem
	touch $@

clean:
	rm -rf $(VENV) $(ECOSYSTEM) demo-run build dist site
