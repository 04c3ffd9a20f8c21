# make demo      install into .venv and train GraphSAGE on 4 MPI ranks
# make test      install what the tests need and run those a newcomer waits for; about 8 CPU-minutes
# make test-long all other tests: sweeps, launches of many processes, commands shown in docs/, benchmarks
# make test-all  both
# make test-change  what .ci/run takes: both, but for what neither the change nor the day of the week calls for (tests/choice.py)
# make test-times   all tests, and where the processor's time goes, in build/test-times.json
# make bench     the experiments that need neither a GPU nor data; results are printed. `python bench/run.py` lists all
# make bench-peers PEERS="PYTHON ..."   beside DGL, GraphBolt, torch_geometric and scipy, where the Pythons named have them
# make sweep     damaged files, kills, faults, mutants, a fuzzer and a soak; SECTION=files runs one section, LIMIT=50 its first cases,
#                AFTER=50 those after the 50 of the summary that is kept; MINUTES=2 shortens the searches of `fuzz` and `soak`;
#                SECTION=mutants SURVIVORS=1 tries the mutants that survived again, beside the first LIMIT cases
# make lint      ruff, its formatter and strict mypy; `pre-commit install` runs them before each commit
# make docs      the site of docs/ and README.md, into build/site

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO := build/demo
INSTALL = $(BIN)/pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt --editable
WORKERS := -n 3 --dist worksteal  # for two cores: most tests keep one busy, others wait for processes
export PYTHONDONTWRITEBYTECODE :=  # tests start hundreds of processes: the package is compiled once, not in each
BENCH := sampling ladies laws growth memory spmm links relations answer-rooms exchange exchange-bulk messages serving plan
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard csrc/*)

# failures of the parts of earlier days
LIST := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/bulksample/to_clear.json

.PHONY: demo test test-long test-all test-change test-times bench bench-peers sweep lint docs clean

demo: $(VENV)/run.stamp
	$(BIN)/bulksample data make dcsbm --preset reddit --vertices 20000 --degree 40 --seed 1 --overwrite -o $(DEMO)/graph
	$(BIN)/mpirun -n 4 $(BIN)/bulksample train $(DEMO)/graph --model sage --fanouts 10,5 --hidden 64 --batch-size 256 \
		--epochs 5 --lr 0.01 --seed 1 --overwrite --json $(DEMO)/result.json

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest $(WORKERS) --durations=15

test-long: $(VENV)/test.stamp
	ALL=1 $(BIN)/python -m pytest $(WORKERS) -m long

test-all: $(VENV)/test.stamp
	ALL=1 $(BIN)/python -m pytest $(WORKERS) -m ""

test-change: $(VENV)/test.stamp
	$(BIN)/python -m pytest $(WORKERS) -m "" --durations=15 --to-clear=$(LIST)

test-times: $(VENV)/test.stamp
	ALL=1 $(BIN)/python -m pytest $(WORKERS) -m "" --times=build/test-times.json

bench: $(VENV)/run.stamp
	for name in $(BENCH); do $(BIN)/python bench/run.py $$name || exit 1; done

bench-peers: $(VENV)/run.stamp
	$(BIN)/python bench/run.py peers $(addprefix --python ,$(PEERS)) --json build/bench/peers.json --plot build/bench/peers.svg

sweep: $(VENV)/sweep.stamp
	$(BIN)/python tests/sweep/run_sections.py $(SECTION) $(if $(LIMIT),--limit $(LIMIT)) $(if $(AFTER),--after $(AFTER)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SURVIVORS),--survivors)

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/test.stamp
	$(BIN)/python -m sphinx -q -W --keep-going -c docs . build/site

clean:
	rm -rf $(VENV) build bulksample/_native*.so bulksample/native_missing.txt

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: $(VENV)/bin/python $(SOURCES)
	$(INSTALL) '.[mpi,train]'
	touch $@

$(VENV)/test.stamp: $(VENV)/bin/python $(SOURCES)
	$(INSTALL) '.[test]'
	touch $@

$(VENV)/sweep.stamp: $(VENV)/test.stamp
	$(INSTALL) '.[sweep]' || echo "sections that need the extra 'sweep' are left out"
	touch $@
