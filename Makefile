# Everything sets itself up: a virtual environment in .venv, and for the tests whatever tools/test.sh
# finds missing. Nothing is written outside this folder but a cache of built tools
# ($XDG_CACHE_HOME/windlass).
.DEFAULT_GOAL := help
.PHONY: help demo test check bounds bench bench-jobs bench-generation bench-fleet bench-stages bench-workflows bench-engine bench-live bench-peers docs chaos fuzz gpu-check mutate lock sim-tables sim-moves sim-sensitivity sim-months clean cards chart

PYTHON ?= python3
VENV := .venv
# Where published traces lie, as docs/guides/simulator.md names them; they do not come with Windlass.
TRACES ?=
OPENB ?= $(TRACES:%=%/openb)
PHILLY ?= $(TRACES:%=%/philly/philly_oct.csv.gz)
needs = $(if $($(1)),,$(error $@ needs published traces: make $@ $(1)=FOLDER))
SEEDS ?= 42-51
JOBS ?= 2
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

help:  ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(STAMP): pyproject.toml lab/pyproject.toml requirements-dev.lock
	@tools/venv.sh "$(PYTHON)" "$(VENV)"
	@touch $@

demo: $(STAMP)  ## run the main job: a 4-rank training gang on a box with 4 simulated GPUs
	@$(BIN)/python tools/demo.py

test: $(STAMP)  ## all tests; installs their dependencies
	@tools/test.sh

bounds: $(STAMP)  ## a job with the lowest and the newest versions of the dependencies (part of make test)
	@$(BIN)/python tools/check_bounds.py

check: $(STAMP)  ## format, lint, types, layers
	@$(BIN)/ruff format --check src lab tests benchmarks tools examples
	@$(BIN)/ruff check src lab tests benchmarks tools examples
	@$(BIN)/lint-imports
	@$(BIN)/pyrefly check

bench: $(STAMP)  ## the benchmarks, figures and ratios in one run
	@$(BIN)/python -m benchmarks

bench-live: $(STAMP)  ## a real API server: kube-scheduler, Windlass and the server alone, side by side
	@$(BIN)/python -m benchmarks.live --table

bench-peers: $(STAMP)  ## Windlass, Volcano, KAI, Kueue and coscheduling on a real API server (tools/kubernetes/build.sh --peers)
	@$(BIN)/python -m benchmarks.live_peers

bench-jobs: $(STAMP)  ## jobs from submission to completion, restarts of gangs, notice to SIGTERM, resizing; torchrun told and alone
	@$(BIN)/python -m benchmarks.jobs
	@$(BIN)/python -m benchmarks.elastic

bench-generation: $(STAMP)  ## items of batch generation: rate, CPU of the driver, size of the ledger, a million rows, ramp of 96 workers
	@$(BIN)/python -m benchmarks.generation
	@$(BIN)/python -m benchmarks.generation --only throughput --rows 1000000

bench-fleet: $(STAMP)  ## a generation job of 100 000 rows on 200 simulated GPU nodes, against one worker (10 min)
	@$(BIN)/python -m benchmarks.fleet

bench-workflows: $(STAMP)  ## workflows: tasks and workflows per time, one of 10,000 nodes, thousands of finished ones
	@$(BIN)/python -m benchmarks.workflows

bench-stages: $(STAMP)  ## two stages that share 126 workers on simulated nodes (3 min)
	@$(BIN)/python -m benchmarks.stages

bench-engine: $(STAMP)  ## the scheduling engine alone, every scene against its goal
	@$(BIN)/python -m benchmarks.engine_table

chaos: $(STAMP)  ## faults under load, on a box (50 rounds) and on a real cluster (30 of each kind); writes docs/operations/chaos.md (KEEP=FILE resumes an interrupted run)
	@$(BIN)/python -m tests.chaos --rounds 50 --report docs/operations/chaos.md
	@tools/test_tools.sh large && tools/test_tools.sh frameworks && $(BIN)/python -m tests.chaos.frameworks
	@tools/test_tools.sh models && $(BIN)/python -m tests.chaos.models --report docs/operations/chaos.md
	@$(BIN)/python -m tests.chaos.items --kills 50 --report docs/operations/chaos.md
	@$(BIN)/python -m tests.chaos.items_box --kills 50 --rows 40000 --report docs/operations/chaos.md
	@$(BIN)/python -m tests.chaos.live --rounds 30 $(if $(KEEP),--keep "$(KEEP)") --report docs/operations/chaos.md
	@$(BIN)/python -m tests.chaos.side --pods 10000 --report docs/operations/chaos.md
	@$(BIN)/python -m tests.chaos.side --pods 10000 --guard --report docs/operations/chaos.md
	@$(BIN)/python -m tests.chaos.side --pods 10000 --guard --nodes 400 --report docs/operations/chaos.md
	@$(BIN)/python -m pytest -q -n 0 tests/chaos/ray_matrix.py

cards: $(STAMP)  ## a random walk of a million steps over device accounting: none above one, none both shared and whole
	@PYTHONPATH=tests/support/engine:tests/support/reference $(BIN)/python tests/support/engine/device_walk.py --steps 1000000

fuzz: $(STAMP)  ## the property tests on new examples, round by round; ROUNDS=N, SEED=N, ONLY=PATHS
	@$(BIN)/python tools/fuzz.py --rounds $(or $(ROUNDS),0) $(if $(SEED),--seed $(SEED)) $(ONLY)

gpu-check: $(STAMP)  ## check Windlass on this machine's GPUs; OUT=FILE keeps the transcript
	@$(BIN)/python tools/gpu_check.py $(if $(OUT),--out $(OUT))

mutate: $(STAMP)  ## 300 random mutants of the engine and its policies: do the tests notice? writes docs/operations/mutants.md
	@$(BIN)/python -m pip install -q "cosmic-ray>=8.7,<9" "coverage>=7"
	@$(BIN)/python tools/mutate.py --report docs/operations/mutants.md

chart: $(STAMP)  ## render the Helm chart into what `windlass install` applies (helm: tools/kubernetes/build.sh)
	@$(BIN)/python tools/chart/render.py

docs: $(STAMP)  ## generate the reference pages
	@$(BIN)/python tools/reference/generate.py

sim-tables: $(STAMP)  ## the packing tables of the docs from the OpenB trace (OPENB=FOLDER, SEEDS=42-51, JOBS=2, KEEP=FOLDER; hours)
	@$(call needs,OPENB)
	@$(VENV)/bin/python -m benchmarks.packing_tables "$(OPENB)" --seeds $(SEEDS) --jobs $(JOBS) $(if $(KEEP),--keep "$(KEEP)") --out docs/operations/benchmarks/packing.md

sim-moves: $(STAMP)  ## the table of moves of the docs, likewise (one seed; KEEP=FOLDER; half an hour)
	@$(call needs,OPENB)
	@$(VENV)/bin/python -m benchmarks.packing_moves "$(OPENB)" --jobs $(JOBS) $(if $(KEEP),--keep "$(KEEP)") --out docs/operations/benchmarks/packing.md

sim-sensitivity: $(STAMP)  ## the tables of parameters of the docs: packing and time-sharing (TRACES=FOLDER; half an hour)
	@$(call needs,TRACES)
	@$(VENV)/bin/python -m benchmarks.packing_sensitivity "$(OPENB)" --out docs/operations/benchmarks/packing.md
	@$(VENV)/bin/python -m benchmarks.sharing "$(TRACES)/muri/trace3.csv.gz" 8x8 --out docs/operations/benchmarks/time-sharing.md
	@$(VENV)/bin/python -m benchmarks.sharing "$(TRACES)/philly/philly_oct.csv.gz" 60x8 --out docs/operations/benchmarks/time-sharing.md

sim-months: $(STAMP)  ## a month of jobs through every policy: CPU time, memory, completion of all jobs (PHILLY=FILE or generated, POLICIES=easy,…)
	@$(BIN)/python -m benchmarks.months $(if $(PHILLY),"$(PHILLY)") $(if $(POLICIES),--policies $(POLICIES))

claims: $(STAMP)  ## docs/operations/benchmarks/claims.md from published traces (TRACES=FOLDER, ONLY=E2,E5, JOBS=2; an hour)
	@$(call needs,TRACES)
	@$(BIN)/python tools/claims.py "$(TRACES)" --jobs $(JOBS) $(if $(ONLY),--only $(ONLY))

lock: $(STAMP)  ## resolve requirements-dev.lock again
	@tools/lock.sh

clean:  ## remove installed and built files
	rm -rf $(VENV) .demo build dist
