# Everything a developer or a user runs. `make demo` and `make test` work on a fresh machine with Python and make.
# pyenv builds Python without optimisations unless told otherwise, with which all that is Python here takes a tenth
# longer: where `python3` is such a build, the distribution's is taken if it will do.
OPTIMISED := import sysconfig; raise SystemExit("--enable-optimizations" not in sysconfig.get_config_var("CONFIG_ARGS"))
SUITABLE := import ensurepip, sys; raise SystemExit(not (3, 11) <= sys.version_info < (3, 14))
PYTHON ?= $(shell python3 -c '$(OPTIMISED)' 2> /dev/null || ! /usr/bin/python3 -c '$(SUITABLE)' 2> /dev/null \
  && echo python3 || echo /usr/bin/python3)
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

# Tests start hundreds of processes: each would compile the package again where the environment says not to keep it.
unexport PYTHONDONTWRITEBYTECODE

# In each of them threads of OpenBLAS wait for work by looking for it, with nothing to do in what tests compute.
test soak: export OMP_NUM_THREADS := 1

# They write thousands of small files, and wait for a disk until each is safe: memory will do, where there is enough.
MEMORY := /dev/shm
test soak: export TMPDIR := $(shell free=$$(df -m --output=avail $(MEMORY) 2> /dev/null | tail -n 1); \
  [ "$${free:-0}" -ge 2000 ] && echo $(MEMORY) || echo "$${TMPDIR:-/tmp}")

# What some tests use beside Python's packages, and skip without: a browser, compilers, circuit simulators, a database,
# PyTorch for CPUs (150 MB; the registry of Python packages has gigabytes of CUDA libraries with it).
DEBIAN_PACKAGES := chromium-headless-shell g++ clang iverilog verilator yosys postgresql libxrt-dev python3-torch
PROGRAMS := chromium-headless-shell g++ clang++ iverilog verilator yosys '/usr/lib/postgresql/*/bin/postgres'
FILES := /usr/include/xrt/xrt/xrt_device.h /usr/lib/python3/dist-packages/torch

.PHONY: setup system-packages demo test soak lint docs dist bench clean

PIP := $(BIN)/python -m pip --disable-pip-version-check

# uv installs several times as fast. It does not read pip's configuration: where that names another index, and where uv
# cannot install, pip does. As pip does, it trusts the certificates of the system.
define install
$(PYTHON) -m venv $(VENV)
@if $(PIP) config list | grep -q '[.]index-url' || ! $(PIP) install --quiet -c constraints.txt uv || \
  ! $(BIN)/uv pip install --quiet --system-certs --python $(BIN)/python -c constraints.txt -e '$(1)'; then \
  $(PIP) install --quiet -c constraints.txt -e '$(1)'; fi
endef

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(call install,.[dev])
	touch $@ $(VENV)/.usable

# What a user needs: without what only tests and the RTL flow use.
$(VENV)/.usable: pyproject.toml constraints.txt
	$(call install,.)
	touch $@

system-packages:
	@missing=; for program in $(PROGRAMS); do command -v $$program > /dev/null || missing="$$missing $$program"; done; \
	for file in $(FILES); do [ -e $$file ] || missing="$$missing $$file"; done; \
	if [ -n "$$missing" ]; then echo "not installed:$$missing"; apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(DEBIAN_PACKAGES); fi

demo: $(VENV)/.usable
	$(BIN)/allo-tune studies/gemm_npu.py $(ARGS)

test: setup
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=25 $(ARGS)

soak: setup
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),2) $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/budgets.py

docs: setup
	$(BIN)/sphinx-build -q -W --keep-going -b html docs build/docs
	@echo build/docs/index.html

dist: setup
	$(BIN)/python -m build --outdir dist

bench: setup
	failed=0; for script in $$(grep -l __main__ benchmarks/*.py | grep -v -e /quiet.py -e /mutants.py); do \
	  echo "== $$script"; $(BIN)/python -m benchmarks.quiet $$script || failed=1; done; exit $$failed

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
