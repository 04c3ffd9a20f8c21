"""Requests of plans, tables of profiles, and measurements read from files."""

import json
from pathlib import Path

import pytest
from uniform import N, papers, request

from bulksample import DataError, UsageError
from bulksample.plan import PlanRequest, make_plan
from bulksample.plan.explain import as_json
from bulksample.plan.measured import measure
from bulksample.plan.profiles import DEVICES, NETWORKS
from bulksample.plan.request import parse_bytes

RESULTS = Path(__file__).parents[2] / "bench" / "results"
SAMPLED = {
    "sampler": "sage", "fanouts": [8, 5, 3], "frontier": "all", "batch_size": 100, "ranks": 2, "graph": "replicated",
    "minibatches": 10, "sampled_edges": 150_000, "input_vertices": 90_000, "sampled_edges_per_second": 4e6,
}  # fmt: skip
TRAINED = {
    "sampler": "sage", "fanouts": [8, 5, 3], "model": "sage", "parameters": 0, "steps": 40, "epochs": 4, "epochs_in_this_run": 2,
    "phases": {"fetch": 1.0, "forward": 2.0, "backward": 3.0, "step": 1.0, "reduce": 5.0}, "ranks": 2,
}  # fmt: skip


@pytest.fixture
def written(tmp_path):
    def write(thing, name="figures.json"):
        path = tmp_path / name
        path.write_text(thing if isinstance(thing, str) else json.dumps(thing))
        return path

    return write


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vertices": 0}, "vertices"),
        ({"vertices": 2**31}, "vertices"),
        ({"edges": -1}, "edges"),
        ({"edges": N * N + 1}, "have at most"),
        ({"feature_width": -5}, "feature_width"),
        ({"feature_bytes": 3}, "feature_bytes"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": N + 1}, "cannot be seeds"),
        ({"classes": 0}, "classes"),
        ({"batch_size": 0}, "batch_size"),
        ({"hidden": 1}, "hidden"),
        ({"fanouts": (-7,)}, "fanout must be in 1 .. 1048575, or -1 for all neighbors"),
        ({"fanouts": ()}, "fanouts must name"),
        ({"ranks": ()}, "at least one number"),
        ({"ranks": (4, 0)}, "ranks"),
        ({"ranks": (4, 6), "replication": (4,)}, "c = 4 with p = 6; use c in {1, 2, 3, 6}"),
        ({"ranks": (4,), "replication": (2,), "graph": "replicated"}, "use c = 4 for p = 4"),
        ({"graph": "spread"}, "graph"),
        ({"exchange": "carrier-pigeon"}, "exchange"),
        ({"sampler": "labor"}, "sampler"),
        ({"device": "abacus"}, "there is no device 'abacus'; use a100-80gb, h200, cpu"),
        ({"network": "string"}, "there is no network 'string'"),
        ({"reserve": 1.0}, "reserve"),
        ({"reserve": -0.1}, "reserve"),
        ({"latency": -1.0}, "latency"),
        ({"between": 0.0}, "between"),
        ({"inside": float("inf")}, "inside"),
        ({"device_memory": 0}, "device_memory"),
        ({"abacus": 1}, "abacus"),
    ],
)
def test_malformed_requests_are_refused(changes, message):
    with pytest.raises(UsageError, match=message.replace("{", r"\{").replace("}", r"\}")):
        request(**changes)


def test_what_is_missing_is_named():
    with pytest.raises(UsageError, match="edges"):
        PlanRequest.of(vertices=10, feature_width=2)


def test_sizes_are_parsed_with_and_without_units():
    assert parse_bytes("80GB") == parse_bytes("80 gb") == parse_bytes("80000000000") == parse_bytes("80e9") == 80 * 10**9
    assert parse_bytes("74.5GiB") == int(74.5 * 2**30)
    assert parse_bytes("1kB") == 1000
    for text in ("", "many", "-5GB", "80 apples", "0", "GB", "nan", "1e400GB", "1e308GB"):
        with pytest.raises(UsageError, match="80GB"):
            parse_bytes(text)


def test_minibatches_widths_and_parameters():
    asked = papers()
    assert asked.minibatches == 1179  # 1,207,179 / 1024 = 1178.9
    assert asked.widths == (128, 256, 256, 172)
    assert papers(model="gcn").parameters == 128 * 256 + 256 + 256 * 256 + 256 + 256 * 172 + 172
    assert request().minibatches == -(-N // 1024)


def test_numbers_of_the_request_override_the_profile():
    network = papers(latency=1e-6, between=12.5e9, devices_per_node=2).connection()
    assert (network.latency.value, network.between.value, network.per_node) == (1e-6, 12.5e9, 2)
    assert network.between.origin == "given"
    assert network.inside == NETWORKS["perlmutter"].inside
    assert papers(device_memory=40 * 10**9).machine().memory.value == 40e9
    assert papers(device="h200").connection() == NETWORKS["hgx-h200"]


def test_the_rates_of_the_cpu_are_those_that_were_measured(written):
    """The profile of the CPU holds the rates that `measure` reads from the kept results."""
    kept = {"sampling": "1-thread", "spmm": "quiet"}
    files = []
    for theme, part in kept.items():
        parts = json.loads((RESULTS / theme / "latest.json").read_text())["parts"]
        files.append(written(parts[part]["result"], f"{theme}.json"))
    found = measure(request(device="cpu"), files).device
    for name in ("sampling", "gather", "bandwidth", "operations"):
        assert getattr(DEVICES["cpu"], name).value == pytest.approx(getattr(found, name).value, rel=1e-3)
        assert getattr(found, name).origin == "measured"
        source = getattr(DEVICES["cpu"], name).source
        assert any(f"{theme}/latest.json, {part}" in source for theme, part in kept.items())


def test_the_benchmark_of_a_device_gives_its_rates(written):
    rate = {"edges": 1, "seconds": {"median": 1.0}}
    sampling = {"k = 1": {**rate, "edges_per_second": 2e9}, "k = 8": {**rate, "edges_per_second": 6e9}}
    copying = {"bytes_per_second": {"copy": 4e12, "rows of 400 bytes": 3e12}}
    bench = {"card": "some", "fanouts": [15, 10, 5], "batch_size": 1024, "sampling": sampling, "copying": copying}
    asked = papers(device="h200")
    found = measure(asked, [written(bench)]).device
    assert [found.sampling.value, found.gather.value, found.bandwidth.value] == [6e9, 1.5e12, 4e12]
    assert found.operations == asked.machine().operations
    failed = measure(asked, [written(bench | {"copying": "failed: RuntimeError"})]).device
    assert failed.gather == asked.machine().gather
    with pytest.raises(UsageError, match="was made with batch_size 16"):
        measure(asked, [written(bench | {"batch_size": 16})])


def test_every_rate_has_a_source():
    for profile in (*DEVICES.values(), *NETWORKS.values()):
        for rate in vars(profile).values():
            if hasattr(rate, "origin"):
                assert rate.source
                assert rate.value > 0


def test_a_measured_sample_replaces_the_expected_one(written):
    asked = request(batch_size=100)
    plan = make_plan(asked, measure(asked, [written(SAMPLED)]))
    assert plan.sizes.edges == pytest.approx(15_000)
    assert plan.sizes.inputs == 9_000
    assert plan.measured.device.sampling == (2e6, "measured", "figures.json")
    assert as_json(plan)["measured_files"] == ["figures.json"]


def test_the_time_of_a_partitioned_sample_is_not_taken_as_a_rate(written):
    """Its seconds include the exchange, which a plan counts apart."""
    asked = request(batch_size=100)
    found = measure(asked, [written(SAMPLED | {"graph": "partitioned"})])
    assert found.edges == 15_000
    assert found.device.sampling.origin == "published"


def test_a_measured_training_replaces_the_time_of_a_step(written):
    asked = request()
    found = measure(asked, [written(TRAINED | {"parameters": asked.parameters})])
    assert found.compute_seconds == (2 + 3 + 1) / 20
    assert found.gather_seconds == 1 / 20
    assert (found.reduce_seconds, found.reduce_ranks) == (5 / 20, 2)
    assert found.evaluate_seconds is None


@pytest.mark.parametrize(
    ("changes", "seconds"), [({}, 12 / 3), ({"graph": "partitioned"}, None), ({"evaluation": {"kind": "sampled"}}, None)]
)
def test_a_measured_exact_evaluation_of_whole_graphs_is_read(written, changes, seconds):
    """Five epochs with an evaluation after every second one and the last: three."""
    asked, phases = request(), {**TRAINED["phases"], "evaluate": 12.0}
    epochs = {"epochs": 5, "epochs_in_this_run": 5, "config": {"eval_every": 2}, "evaluation": {"kind": "exact", "streamed": False}}
    found = measure(asked, [written(TRAINED | {"parameters": asked.parameters, "phases": phases, **epochs} | changes)])
    assert (found.evaluate_seconds, found.evaluate_ranks) == (seconds, 2 if seconds else 0)


@pytest.mark.parametrize(
    ("thing", "error", "message"),
    [
        (SAMPLED | {"fanouts": [9, 9]}, UsageError, "made with fanouts"),
        (SAMPLED | {"batch_size": 64}, UsageError, "batch_size 64, the plan is for 100"),
        (SAMPLED | {"sampler": "ladies"}, UsageError, "sampler"),
        (SAMPLED | {"sampled_edges": 0}, DataError, "must be positive"),
        (SAMPLED | {"minibatches": "ten"}, DataError, "must be positive; got 'ten'"),
        ({"sampled_edges": 5}, DataError, "lacks a part"),
        (TRAINED, UsageError, "parameters 0"),
        ({"phases": 3, **{key: TRAINED[key] for key in ("sampler", "fanouts")}}, DataError, "lacks a part"),
        ({"sampling": -1}, DataError, "must be positive"),
        ({"sampling": float("nan")}, DataError, "must be positive"),
        ({"speed": 5}, DataError, "nor an object of rates"),
        ({}, DataError, "holds nothing"),
        ({"unit": 1, "results": {}}, DataError, "lacks a part"),
        ({"sizes": []}, DataError, "lacks a part"),
        ([1, 2], DataError, "one JSON object"),
        ("{", DataError, "not JSON"),
    ],
)
def test_files_of_other_settings_or_forms_are_refused(written, thing, error, message):
    with pytest.raises(error, match=message):
        measure(request(batch_size=100), [written(thing)])


def test_rates_by_name(written):
    found = measure(request(), [written({"sampling": 5e9, "operations": 1e13})]).device
    assert (found.sampling.value, found.operations.value) == (5e9, 1e13)
    assert found.gather.origin == "assumed"


def test_a_missing_file_is_bad_data(tmp_path):
    with pytest.raises(DataError, match="cannot be read: No such file"):
        measure(request(), [tmp_path / "nowhere.json"])
