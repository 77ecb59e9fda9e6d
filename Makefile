# Two commands do everything on a clean machine: `make demo` and `make test`.
# They need Python 3.11+ and a package registry, nothing else.

PYTHON ?= python3
VENV   ?= .venv
RUN    := $(VENV)/bin
# Exactly one of the two engines: onnxruntime-gpu where a GPU answers, else onnxruntime.
ENGINE ?= $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
SETUP  := $(VENV)/.installed-$(ENGINE)

.PHONY: demo up test check bench lint types layers models dev lock clean

demo: $(SETUP)
	@$(RUN)/omnibus demo

up: $(SETUP) models
	@$(RUN)/omnibus up

test: $(SETUP)-dev models
	$(RUN)/python -m pytest

check: $(SETUP)-dev lint types layers

lint: $(SETUP)-dev
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .

types: $(SETUP)-dev
	$(RUN)/mypy

layers: $(SETUP)-dev
	$(RUN)/lint-imports

bench: $(SETUP)-dev models
	@for file in benchmarks/[a-z]*.py; do $(RUN)/python $$file || exit 1; done

models: $(SETUP)
	@$(RUN)/omnibus models pull demo

dev: $(SETUP)-dev

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage

# uv resolves and unpacks in seconds what takes pip a minute; it comes from the same registry.
$(VENV)/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Omnibus needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check uv

# Compiled once here, not in every worker that starts: that halves a worker's start where Python may not write.
INSTALL := $(RUN)/uv pip install --quiet --python $(RUN)/python --compile-bytecode --constraint requirements.lock
COMPILE := $(RUN)/python -m compileall -q bus functions infra runtime warmpool

$(SETUP): pyproject.toml requirements.lock $(VENV)/bin/uv
	$(INSTALL) -e ".[$(ENGINE)]"
	@$(COMPILE)
	@touch $@

# torch, which tests compare with, comes by pip and first: pip honours the settings of this machine (index, links,
# constraints), which a build without CUDA comes from where there is one, and uv keeps what it finds.
$(SETUP)-dev: pyproject.toml requirements.lock $(VENV)/bin/uv
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock torch
	$(INSTALL) -e ".[$(ENGINE),dev]"
	@$(COMPILE)
	@touch $@ $(SETUP)

# The exact set of packages, for every platform; run it after changing pyproject.toml.
lock: $(VENV)/bin/uv
	$(RUN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --extra cpu --extra gpu --extra dev \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links --upgrade --output-file requirements.lock
