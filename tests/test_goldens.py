"""Nothing that is kept has moved: samples of every kind of graph and sampler, runs of every placement and method, files and states.

The same samples come from each back end, bulk size, number of ranks and placement of the graph, for all kinds of graph alike.
"""

import json
from itertools import chain

import goldens
import numpy as np
import pytest
from goldens import RUNS, SAMPLES, STATES, STORED, loader_of, two_epochs

import bulksample as bs
from bulksample.distributed.comm.threads import on_threads

KEPT = json.loads(goldens.NUMBERS.read_text(encoding="utf-8"))
ON_ONE_RANK, LAYERED = ("shadow", "saint"), ("ladies", "fastgcn")
NAMES = ("features", "owner", "rows", "oblivious")
PLACES = [
    (2, {"features": "partitioned", "topology": "replicated"}), (4, {"replication": 2, "partition": "random"}), (4, {"exchange": "rows"}),
    (4, {"exchange": "rows-oblivious", "replication": 2}),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("goldens")
    goldens.unpack(made)
    for kind, _ in SAMPLES.values():
        if not (made / kind).exists():
            goldens.graph_of(kind).save(made / kind)
    return made


def test_each_case_is_kept():
    assert {part: list(cases) for part, cases in KEPT.items()} == {
        "samples": list(SAMPLES), "runs": list(RUNS), "resumed": list(STORED), "states": list(STATES),
    }  # fmt: skip


@pytest.mark.parametrize("case", SAMPLES)
def test_samples_are_those_kept(case):
    for more in ({}, {"backend": "reference"}, {"bulk_size": 1, "prefetch": False}, {"bulk_size": 3, "threads": 2}):
        assert bs.digest(two_epochs(loader_of(case, **more))) == KEPT["samples"][case], more


@pytest.mark.parametrize("case", SAMPLES)
def test_ranks_share_the_samples_of_one(case):
    shares = [two_epochs(loader_of(case, rank=rank, ranks=3)) for rank in range(3)]
    assert bs.digest(chain(*shares)) == KEPT["samples"][case]


@pytest.mark.parametrize("case", [case for case, (_, options) in SAMPLES.items() if options.get("sampler") not in ON_ONE_RANK])
@pytest.mark.parametrize("place", [*PLACES[:2], *[pytest.param(place, marks=pytest.mark.long) for place in PLACES[2:]]], ids=NAMES)
def test_samples_do_not_depend_on_where_the_graph_lies(case, place, folder):
    (ranks, options), (kind, asked) = place, SAMPLES[case]

    def on_rank(comm):
        return two_epochs(loader_of(case, bs.load(folder / kind, world=comm, **options)))

    if kind in ("one relation", "library") and asked["sampler"] in LAYERED and "topology" not in options:
        with pytest.raises(bs.UsageError, match="got a topology in block rows: use sage, labor or full"):
            on_threads(ranks, on_rank)
    else:
        assert bs.digest(chain(*on_threads(ranks, on_rank))) == KEPT["samples"][case]


@pytest.mark.parametrize("case", RUNS)
def test_runs_are_those_kept(case, folder):
    found, kept = goldens.run(case, folder), KEPT["runs"][case]
    assert found["sent"] == kept["sent"]
    np.testing.assert_allclose(found["losses"], kept["losses"], rtol=1e-3)
    assert found["scores"] == pytest.approx(kept["scores"], abs=0.05)


@pytest.mark.parametrize("name", STORED)
def test_a_kept_store_is_read_and_its_run_goes_on_from_the_kept_checkpoint(name, folder):
    np.testing.assert_allclose(goldens.resume(name, folder), KEPT["resumed"][name], rtol=1e-3)


@pytest.mark.parametrize("name", STATES)
def test_a_kept_state_of_a_loader_goes_on_with_the_rest_of_its_epoch(name):
    kept = KEPT["states"][name]
    loader = loader_of(STATES[name], batch_size=10)
    loader.load_state_dict(kept["state"])
    assert [batch.digest() for batch in loader] == kept["rest"]
    assert goldens.state_of(name) == kept
