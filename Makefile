# Everything sets itself up: `make demo` and `make test` work on a fresh machine with Python 3.10 or newer.
#
#   make demo      two short training jobs (healthy, and with one late data loader) and the verdict on each
#   make test      formatting, types, then the fast tests, those on DeepSpeed, Lightning, wandb, ... included: 15 minutes on two cores
#   make test-all  these, then every slow test, one at a time: hours (every night)
#   make fuzz      10,000 damaged inputs through the command line; what fails is left in fuzz-found/
#   make docs      the documentation as a site, in build/site
#   make setup     the environment in .venv alone
#   make clean     remove everything that was made
#
# PYTHON       interpreter to build .venv with (default python3)
# TORCH        torch requirement (default torch==2.13.0; the tool itself works with any torch >= 2.4)
# LOCKED       any value: take the versions that .ci/requirements.lock pins, with their hashes
# WORKERS      how many processes run the fast tests (default 3: they wait for jobs and browsers for a third of the time)
# N, SEED      how many cases `make fuzz` runs, and the number of the first (default: a new one, which it prints)
# TORCH_INDEX  index to take torch from, e.g. https://download.pytorch.org/whl/cpu for the small CPU-only build

PYTHON ?= python3
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
LOCKED ?=
WORKERS ?= 3
N ?= 10000
SEED ?=
EXTRAS ?= dev,dashboard,docs,fast,nvtx

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FRAMEWORKS := $(VENV)/.frameworks
TRACKERS := $(VENV)/.trackers
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
DEMO_RUNS := ddprof-runs/demo
DEMO_JOB := torchrun --nproc-per-node=2 workloads/mnist_ddp.py --steps 20

# Programs of the environment first: torchrun and ddprof of this checkout.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Two training processes on a small machine: one thread each, or they fight over the cores and the healthy run is not.
export OMP_NUM_THREADS ?= 1
# Containers often forbid compiled modules to be kept; the suite starts a thousand interpreters, each 2 s slower then.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo docs test test-all fast fuzz setup lint types clean
.DELETE_ON_ERROR:

setup: $(READY)

$(READY): pyproject.toml .ci/make_venv.py $(wildcard ddprof/*/native/* ddprof/*/*/native/*)
	$(PYTHON) .ci/make_venv.py $(VENV)
	$(PIP) install $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) '$(TORCH)'
	$(if $(LOCKED),$(PIP) install --require-hashes --no-deps -r .ci/requirements.lock)
	$(PIP) install -e '.[$(EXTRAS)]'
	touch $@

demo: $(READY)
	@rm -rf $(DEMO_RUNS)
	@echo "== 1/2  a healthy job"
	ddprof run --run-dir $(DEMO_RUNS)/healthy -- $(DEMO_JOB)
	ddprof analyze $(DEMO_RUNS)/healthy
	@echo "== 2/2  the same job, with the data loader of rank 1 made 100 ms slower per step"
	ddprof run --run-dir $(DEMO_RUNS)/late-loader -- $(DEMO_JOB) --fault loader-straggler --fault-rank 1 --fault-ms 100
	ddprof report $(DEMO_RUNS)/late-loader -o $(DEMO_RUNS)/report.html
	ddprof analyze $(DEMO_RUNS)/late-loader
	@echo "The same as a page to open or send: $(DEMO_RUNS)/report.html"

lint: $(READY)
	ruff check .
	ruff format --check .

types: $(READY)
	.ci/types

# What has to be compiled is left out where it cannot be; the tests that need it say that they are skipped.
$(FRAMEWORKS): $(READY)
	DS_BUILD_OPS=0 $(PIP) install -e '.[frameworks]' && touch $@ || \
		echo "make: not all training frameworks could be installed; their tests will be skipped"

$(TRACKERS): $(READY)
	$(PIP) install -e '.[wandb,mlflow,comet]' && touch $@ || \
		echo "make: not all experiment trackers could be installed; their tests will be skipped"

# Types are checked beside the tests: these leave a core idle now and then.
test: lint $(FRAMEWORKS) $(TRACKERS)
	@.ci/browser
	+@$(MAKE) --no-print-directory -j2 types fast

fast:
	python -m pytest -m "not slow" -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Slow tests judge real jobs: each has the machine for itself.
test-all: test
	python -m pytest -m slow

# Half of the cases are read by the native scanner, half by msgspec.
fuzz: $(READY)
	PYTHONPATH=tests/fuzz python -m fuzzing --count $(N) $(if $(SEED),--seed $(SEED)) --keep fuzz-found

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 mkdocs build --quiet
	@echo "build/site/index.html"

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis ddprof-runs fuzz-found
