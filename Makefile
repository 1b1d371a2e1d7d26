# Two commands on a fresh machine: `make session` runs the main job, `make test` passes the tests.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PLAN ?=
SESSION_FLAGS ?=

.DEFAULT_GOAL := help
.PHONY: bench-scale bench-coverage bench-choice bench-optimize bench-prediction bench-causes bench-regressions bench-busy bench-busy-record bench-attention bench-bisect bench-cheats bench-formats bench-formats-judged bench-gate bench-faults help house session test test-core test-rest test-all lint types check schema docs docs-check bench bench-verdict fuzz soak clean

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 16

# Tests run side by side, file by file: each starts compilers and processes of its own.
TEST_PROCESSES ?= 2

# An unpinned or default torch pulls gigabytes of CUDA libraries. Without an NVIDIA GPU:
#   make session TORCH_INDEX=https://download.pytorch.org/whl/cpu
$(VENV)/.made: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than 3.11; name another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(BIN)/pip install --disable-pip-version-check -q --index-url $(TORCH_INDEX) -c constraints.txt torch)
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e .
	@touch $@

$(VENV)/.tools: $(VENV)/.made
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]'
	@touch $@

session: $(VENV)/.made  ## set up, then run a session: PLAN=quick SESSION_FLAGS="--variant cpu"
	@$(BIN)/loop run session $(PLAN) $(SESSION_FLAGS); code=$$?; \
	  echo "to call loop yourself: . $(BIN)/activate" >&2; exit $$code

PYTEST = $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

test: $(VENV)/.tools  ## set up, then run the tests of every room: four minutes on two cores
	$(PYTEST) -m "not slow"

# What CI runs of the tests that take longer: each promise of the README once, from outside where that is possible.
CORE = tests/net tests/bisect/test_regressions.py tests/session/test_run.py tests/session/test_report_page.py \
  tests/gate/test_corpus.py tests/gate/test_cheats.py tests/gate/test_verify.py tests/gate/test_turns.py \
  tests/gate/test_tasks.py tests/timing/test_verdicts.py tests/faults tests/starting \
  tests/emulator tests/jobs/test_running.py tests/formats/test_whole.py tests/docs/test_recipes.py tests/test_packaging.py

test-core: $(VENV)/.tools  ## of the tests that take longer those that CI runs: eight minutes on two cores
	$(PYTEST) -m slow $(CORE)

test-rest: $(VENV)/.tools  ## all tests that take longer, before a release: sessions, builds, searches, faults (an hour)
	$(PYTEST) -m slow

test-all: test test-rest  ## all tests

house: $(VENV)/.tools  ## measure the source tree: rooms, circles, sentences
	$(BIN)/python -m tests.house

lint: $(VENV)/.tools  ## format and style
	$(BIN)/ruff format --check loop tests
	$(BIN)/ruff check loop tests

types: $(VENV)/.tools  ## strict types
	$(BIN)/mypy

check: lint types test-all  ## everything that has to hold before a commit; layers and docs are tests

schema: $(VENV)/.made  ## write loop/schema after a change of a model; `pip install` writes it too
	$(BIN)/loop patterns schema --write

docs: $(VENV)/.tools  ## write docs/reference from the code
	$(BIN)/python -m tests.docs reference

docs-check: $(VENV)/.tools  ## run the tutorial and the sessions of the pages, and hold the pages against them
	LOOP_DOCS=1 $(BIN)/python -m pytest tests/docs

bench: $(VENV)/.tools  ## measure what the documents claim; writes tests/bench/RESULTS.md
	$(BIN)/python -m tests.bench

bench-attention: $(VENV)/.tools  ## the CUDA kernels against PyTorch on a GPU; writes tests/bench/ATTENTION.md
	$(BIN)/python -m tests.bench.attention

bench-choice: $(VENV)/.tools  ## on a GPU, fit the costs by which `auto` picks a kernel; else by what was recorded
	$(BIN)/python -m tests.bench.choice

bench-coverage: $(VENV)/.tools  ## wrong and right kernels of twelve functions by every door (hours); writes tests/bench/COVERAGE.md
	$(BIN)/python -m tests.bench.coverage

bench-verdict: $(VENV)/.tools  ## simulate how often a verdict is right; writes tests/bench/VERDICT.md
	$(BIN)/python -m tests.bench.verdict

bench-busy: $(VENV)/.tools  ## verdicts while two other programs run, from recorded rounds; writes tests/bench/BUSY.md
	$(BIN)/python -m tests.bench.busy

bench-busy-record: $(VENV)/.tools  ## record these rounds anew (ten minutes), and make 30 verdicts for real
	$(BIN)/python -m tests.bench.busy record
	$(BIN)/python -m tests.bench.busy live

bench-bisect: $(VENV)/.tools  ## simulate how often the commit of a regression is found; writes tests/bench/BISECT.md
	$(BIN)/python -m tests.bench.bisect  # --table layouts: this one alone, to stdout

CAMPAIGNS ?= 200
LIVE ?= 10
bench-optimize: $(VENV)/.tools  ## are winners of a campaign real, and does every proposer end? writes tests/bench/OPTIMIZE.md
	$(BIN)/python -m tests.bench.optimize --campaigns $(CAMPAIGNS) --live $(LIVE)

MINUTES ?= 10
GPUS ?=
bench-scale: $(VENV)/.tools  ## verification and campaigns on 1, 2, 4, 8 GPUs (half an hour); writes tests/bench/SCALE.md: GPUS="1 2"
	$(BIN)/python -m tests.bench.scale $(if $(GPUS),--gpus $(GPUS))

FORMATS = $(foreach one,KERNELBENCH GPUMODE FLASHINFER SOL,$(if $($(one)),--$(shell echo $(one) | tr A-Z a-z) $($(one))))

bench-formats: $(VENV)/.tools  ## read checkouts of tasks in other formats: KERNELBENCH=path GPUMODE=path FLASHINFER= SOL=
	$(BIN)/python -m tests.bench.formats $(FORMATS)

JUDGED ?=
bench-formats-judged: $(VENV)/.tools  ## judge answers to a sample of their tasks twice (hours; goes on where it ended): KERNELBENCH=path ... JUDGED="--device cuda"
	$(BIN)/python -m tests.bench.formats_judged $(FORMATS) $(JUDGED)

bench-gate: $(VENV)/.tools  ## how often the gate is wrong: mistakes, right variants, one against itself and made slower (an hour)
	$(BIN)/python -m tests.bench.gate_corpus
	$(BIN)/python -m tests.bench.honest
	$(BIN)/python -m tests.bench.gate

bench-causes: $(VENV)/.tools  ## mistakes in the bundled kernels: is the cause named? writes tests/bench/CAUSES.md (ten minutes)
	$(BIN)/python -m tests.bench.causes

bench-prediction: $(VENV)/.tools  ## sessions under changing load: do intervals of time hold? writes tests/bench/PREDICTION.md (half an hour)
	$(BIN)/python -m tests.bench.prediction $(if $(SESSIONS),--sessions $(SESSIONS))

bench-regressions: $(VENV)/.tools  ## regressions after a good session: is the commit named? writes tests/bench/REGRESSIONS.md
	$(BIN)/python -m tests.bench.regressions  # --only CASE: this one alone

bench-cheats: $(VENV)/.tools  ## variants that cheat: each is rejected, invalid, or gains nothing (half an hour)
	$(BIN)/python -m tests.bench.cheats

FAULTS = $(if $(SHARD),--shard $(SHARD)) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

bench-faults: $(VENV)/.tools  ## faults in real sessions (an hour): CLASSES="random_kills children" SHARD=2/4 COUNT=30 SEED=7
	$(BIN)/python -m tests.faults $(CLASSES) $(FAULTS)

fuzz: $(VENV)/.tools  ## the long runs of the fuzz tests
	LOOP_FUZZ=10000 $(BIN)/python -m pytest tests/base tests/gate/test_cheats.py -k 'fuzz or expressions or honest'

soak: $(VENV)/.tools  ## the tests that take longest
	LOOP_SOAK=1 $(BIN)/python -m pytest -m soak

clean:  ## remove what was made; sessions stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
