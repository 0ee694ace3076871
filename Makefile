# Every target sets itself up; PYTHON chooses the interpreter (3.11 or newer). `setup` and `demo` install what the package
# needs, `test` and `lint` also the extras and tools of `dev`, into the same .venv and in either order.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
READY_DEV := $(VENV)/ready-dev
READY_DOCS := $(VENV)/ready-docs
LOWEST := .venv-lowest
PEERS := .benchmarks
RIVALS := fedavg,fedprox,scaffold,fednova,fedopt,fedavgm,fedrs,fedlc,fedlc:travel=1,fedla
USUAL := --momentum 0.9 --augment crop_flip
DIGITS := --dataset digits --partition dirichlet:0.1 --clients 20 --rounds 60 --lr 0.1 --batch-size 16 --runs demo/runs
export PIP_DISABLE_PIP_VERSION_CHECK := 1
ROUNDING := aggregators contracts core corrections diagnostics losses models optimizers readouts simulation test_algorithms.py

.NOTPARALLEL:
.PHONY: setup setup-dev demo test coverage test-portable test-gpu test-slow test-federation test-wheel test-lowest torture lint bench bench-peers reproduction evidence figures docs picture clean

define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, e.g. make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	@echo 'Installing into $(VENV). PyTorch is large, so the first time can take some minutes.'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '$(1)'
endef

# `pip install .` into .venv, as in the README, replaces the link to src by a copy, which later changes would not reach.
# Then the next target installs the link again.
ifeq ($(wildcard $(VENV)/lib/python*/site-packages/__editable__.fedskew-*),)
.PHONY: $(READY) $(READY_DEV) $(READY_DOCS)
endif

setup: $(READY)

setup-dev: $(READY_DEV)

$(READY): pyproject.toml constraints.txt
	$(call install,.)
	touch $(READY)

$(READY_DEV): pyproject.toml constraints.txt
	$(call install,.[dev])
	touch $(READY) $(READY_DEV)

$(READY_DOCS): pyproject.toml constraints.txt
	$(call install,.[docs])
	touch $(READY) $(READY_DOCS)

# A federation in which clients drift far in a round, one in which they hardly do, and one model looked at closely. Three
# seeds where methods are compared, since fewer decide nothing.
# One thread: two wait for one another at every small operation where another program is at work.
demo: export OMP_NUM_THREADS := 1
demo: $(READY)
	@echo '1 of 3: ten clients learn to tell ten shapes, and each has two of them. A convolutional network, with momentum.'
	$(BIN)/fedskew compare --dataset shapes --partition shards:2 --clients 10 --rounds 8 --lr 0.02 --batch-size 32 $(USUAL) \
	    --seeds 3 --algorithm fedavg,fedlc,fedlc+refit --runs demo/runs --out demo/shapes
	@echo '2 of 3: a hundred clients that differ in their labels and in more. A linear model, without momentum.'
	$(BIN)/fedskew compare --dataset synthetic:1,1 --clients 100 --rounds 80 --seeds 3 --eval-every 2 \
	    --algorithm $(RIVALS) --runs demo/runs --out demo/synthetic
	@echo '3 of 3: digits. What a client forgets when it trains on its own examples, above all of classes that it misses.'
	@hash=$$($(BIN)/fedskew run $(DIGITS) --algorithm fedavg --quiet | cut -d ' ' -f 2) && \
	    $(BIN)/fedskew diagnose $$hash --runs demo/runs --out demo/diagnosis/fedavg
	@hash=$$($(BIN)/fedskew run $(DIGITS) --algorithm fedlc --quiet | cut -d ' ' -f 2) && \
	    $(BIN)/fedskew diagnose $$hash --runs demo/runs --out demo/diagnosis/fedlc --quiet
	$(BIN)/fedskew report --runs demo/runs --out demo/report.html
	@echo 'Now open demo/report.html in a browser. docs/skew.md explains label skew, docs/report.md the page.'

PYTEST := -m pytest -n 2 --dist loadfile --no-loadscope-reorder
# Python counts lines at little cost from 3.12 on (sysmon). Before, a tracer makes tests a fifth to a half slower.
SYSMON := $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 12))'
TOTAL := echo "lines of the package that the tests ran: $$($(BIN)/coverage report --format=total) %"

test: $(READY_DEV) lint
	@if $(SYSMON); then \
	    COVERAGE_CORE=sysmon $(BIN)/python $(PYTEST) --durations 5 --cov --cov-report= && $(TOTAL); \
	else \
	    $(BIN)/python $(PYTEST) --durations 5 && echo "lines of the package that the tests ran: make coverage"; \
	fi

coverage: $(READY_DEV)
	@if $(SYSMON); then export COVERAGE_CORE=sysmon; fi; $(BIN)/python $(PYTEST) --cov --cov-report= && $(TOTAL)

# With kernels that add in another order than this processor's own: a test that holds with one rounding only fails here.
test-portable: $(READY_DEV)
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE $(BIN)/python -m pytest -n 2 --dist loadfile $(ROUNDING:%=tests/%)

test-federation: $(READY_DEV)
	$(BIN)/python -m pytest -m 'slow or not slow' --durations 5 tests/flower tests/engine/test_distributed.py

test-gpu: $(READY_DEV)
	$(BIN)/python -m pytest -m gpu -rs tests/gpu

test-slow: $(READY_DEV)
	$(BIN)/python -m pytest -m slow

test-wheel: $(READY_DEV)
	$(BIN)/python -m pytest -m slow tests/test_wheel.py

# The lowest versions that pyproject.toml allows.
test-lowest: $(LOWEST)/ready
	$(LOWEST)/bin/python -m pytest -n 2 --dist loadfile $(ROUNDING:%=tests/%) tests/cli tests/runs/test_store.py

$(LOWEST)/ready: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --constraint constraints-lowest.txt --editable '.[parquet,tensorboard,mlflow]' \
	    hypothesis packaging pytest pytest-xdist
	touch $@

torture: $(READY_DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture

lint: $(READY_DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks.core --json results/benchmark_core.json
	$(BIN)/python -m benchmarks.convnet --json results/benchmark_convnet.json

bench-peers: $(READY) $(PEERS)/flwr/ready $(PEERS)/pfl/ready $(PEERS)/fluke/ready
	$(BIN)/python -m benchmarks.peers --environments $(PEERS) --json results/benchmark_peers.json

$(PEERS)/flwr/ready: constraints.txt
	$(PYTHON) -m venv $(PEERS)/flwr
	$(PEERS)/flwr/bin/python -m pip install --quiet --constraint constraints.txt 'flwr[simulation]==1.41.0' torch==2.13.0
	touch $@

$(PEERS)/pfl/ready:
	$(PYTHON) -m venv $(PEERS)/pfl
	$(PEERS)/pfl/bin/python -m pip install --quiet 'pfl[pytorch]==0.6.0' torch==2.13.0
	touch $@

$(PEERS)/fluke/ready:
	$(PYTHON) -m venv $(PEERS)/fluke
	$(PEERS)/fluke/bin/python -m pip install --quiet fluke-fl==0.8.1 torch==2.13.0
	touch $@

reproduction: evidence
	$(BIN)/python docs/generate.py

evidence: $(READY)
	$(BIN)/python -m docs.pages.evidence_table

figures: $(READY)
	$(BIN)/python docs/generate.py --figures

# Not --quiet: it would hide warnings from --strict.
docs: $(READY_DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'To read it: $(BIN)/python -m http.server --directory site, then http://localhost:8000'

picture: $(READY_DEV)
	$(BIN)/python docs/picture.py

clean:
	rm -rf $(VENV) $(LOWEST) $(PEERS) demo site build dist src/*.egg-info
