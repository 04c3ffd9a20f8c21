"""Explain a plan: in sentences, the choice for each number of ranks and the memory that the next larger c needs; and as one JSON object."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ..loading.bulk_sizes import COPIES
from .choice import GridPrediction, Plan, gigabytes
from .input_layer import fuses_input

_PUBLISHED_BYTES = 64  # per entry of P in the published code


def explain(plan: Plan) -> list[str]:
    """Return a paragraph for each number of ranks, then remarks that hold for all."""
    text = []
    for p in plan.request.ranks:
        row = plan.chosen.get(p)
        if row is None:
            least = min((row for row in plan.rows if row.grid.ranks == p), key=lambda row: row.memory.total)
            memory = f"{gigabytes(least.memory.total)} with c = {least.grid.replication}"
            choice = [f"p = {p}: nothing fits into {gigabytes(plan.budget)} of a device; the least is {memory}."]
        else:
            choice = [_memory(plan, row), _next_larger(plan, row), _time(row)]
        text.append(" ".join([*choice, *_without_evaluation(plan, p), *_placement(plan, p)]))
    return text + _remarks(plan)


def _placement(plan: Plan, p: int) -> list[str]:
    """Return the placement of topology and features that is fastest, with the options of `train`; nothing where none fits."""
    row = plan.best_placement(p)
    if row is None:
        return []
    grid = row.grid
    c = [f"--replication {grid.replication}"] if "partitioned" in (grid.topology, grid.placed) else []
    if grid.feature_replication:
        c.append(f"--feature-replication {grid.feature_replication}")
    near = [f"--seed-locality {plan.request.seed_locality}"] if plan.request.seed_locality else []
    options = " ".join([f"--topology {grid.topology}", f"--features {grid.placed}", *c, *near])
    host = f" and {gigabytes(row.host_bytes)} of its machine"
    return [
        f"Of all placements, train {options} is the fastest that fits: an epoch of {row.whole_epoch:.3g} s, evaluation included, "
        f"{gigabytes(row.memory.total)} of a device{host}, {gigabytes(row.between_machines)} between machines.",
        _input_layer(plan, row),
        *_codecs(plan, p),
    ]


def _input_layer(plan: Plan, row: GridPrediction) -> str:
    """Say how the first layer reads its input, and how many rows of features a mini-batch reads."""
    hop = plan.sizes.hops[-1]
    if fuses_input(plan.request, plan.sizes, row.grid):
        rows = hop.destinations + hop.block_edges
        return f"Its input layer is fused: it averages features where they lie, and reads {rows:,.0f} rows a mini-batch."
    return f"Its input layer gathers {hop.sources:,.0f} rows a mini-batch."


def _codecs(plan: Plan, p: int) -> list[str]:
    """Return the epoch of the best placement with every codec of features, where any travel."""
    rows = plan.codecs[p]
    if not rows or not max(row.traffic.features for row in rows.values()):
        return []
    requested = plan.request.feature_codec
    fastest = min(rows, key=lambda codec: (rows[codec].whole_epoch, codec != requested))
    epochs = ", ".join(f"{codec} {row.whole_epoch:.3g} s" for codec, row in rows.items())
    advice = f"keep {requested}" if fastest == requested else f"--feature-codec {fastest} is the fastest, and rounds features that travel"
    return [f"By codec of features: {epochs}; {advice}."]


def _memory(plan: Plan, row: GridPrediction) -> str:
    grid, memory = row.grid, row.memory
    places = {"replicated": "A and H on every device", "partitioned": f"A and H in {grid.rows} block rows"}
    where = places.get(grid.graph, f"A on every device, H in {grid.rows} block rows (--features partitioned)")
    steps = plan.request.steps(grid.ranks)
    evaluation = f", or {gigabytes(memory.evaluation)} for {plan.request.evaluation} evaluation" if memory.evaluation else ""
    return (
        f"p = {grid.ranks}: c = {grid.replication}, k = {row.bulk_size}; {where}. A device holds {gigabytes(memory.graph)} of A, "
        f"{gigabytes(memory.features)} of H, {gigabytes(memory.vectors + memory.model)} of labels, masks, seeds and model. It also needs "
        f"{gigabytes(memory.bulk)} for mini-batches and {gigabytes(memory.buffers + memory.activations)} for exchange and "
        f"training{evaluation}: {gigabytes(memory.total)} of {gigabytes(plan.budget)} at the peak. The largest k that fits is "
        f"{row.largest_bulk}; an epoch has {steps} steps."
    )


def _next_larger(plan: Plan, row: GridPrediction) -> str:
    if row.grid.rows == 1:
        return "There is no larger c: ranks send only gradients."
    larger = [other for other in plan.rows if other.grid.ranks == row.grid.ranks and other.grid.replication > row.grid.replication]
    if not larger:
        return "No larger c was requested."
    least = min(larger, key=lambda other: other.grid.replication)
    if least.fits:
        return f"c = {least.grid.replication} fits too, and takes {least.seconds.epoch:.3g} s."
    return f"c = {least.grid.replication} needs {gigabytes(least.memory.total)}."


def _time(row: GridPrediction) -> str:
    spent = row.seconds
    phases = {"sampling": spent.sample, "features": spent.fetch, "compute": spent.compute, "gradients": spent.reduce}
    longest = max(phases, key=lambda name: phases[name])
    parts = ", ".join(f"{name} {value:.2g} s" for name, value in phases.items())
    moving, scored = spent.moving, row.evaluation
    causes = f"{moving.bytes:.2g} s on links, {moving.latency:.2g} s of latency, {moving.host:.2g} s of the processor"
    staged = f", {moving.staging:.2g} s of copies through the host" if moving.staging else ""
    evaluation = (
        f" One {scored.kind} evaluation takes {scored.seconds:.3g} s more and sends {gigabytes(scored.bytes)}."
        if scored.kind != "none"
        else ""
    )
    return (
        f"An epoch takes {spent.epoch:.3g} s ({parts}; the longest phase is {longest}) and sends {gigabytes(row.traffic.total)}. "
        f"Exchanges take {causes}{staged}.{evaluation}"
    )


def _without_evaluation(plan: Plan, p: int) -> list[str]:
    """Return the choice without exact evaluation if it is another grid; otherwise nothing."""
    row, chosen = plan.untested.get(p), plan.chosen.get(p)
    if row is None or (chosen is not None and row.grid == chosen.grid):
        return []
    return [
        f"Exact evaluation decides this: without it, c = {row.grid.replication} fits with {gigabytes(row.memory.total)}, "
        f"and an epoch takes {row.seconds.epoch:.3g} s."
    ]


def _remarks(plan: Plan) -> list[str]:
    sizes, degree = plan.sizes, plan.request.degree
    entries = max(hop.rows for hop in sizes.hops) * degree
    return [
        f"A pass over the seeds has {plan.request.minibatches:,} mini-batches, the model {plan.request.parameters:,} parameters. "
        f"A mini-batch holds {sizes.edges:,.0f} edges and {sizes.inputs:,.0f} vertices, {gigabytes(sizes.nbytes)}; "
        f"a rank keeps {COPIES} times that for each of its k mini-batches. "
        + ("These sizes were measured." if plan.measured.edges else "These sizes assume a random graph; --measured corrects them."),
        f"The published code stores P: {entries:,.0f} entries in the largest hop of a mini-batch, about {_PUBLISHED_BYTES} bytes each, "
        f"{gigabytes(_PUBLISHED_BYTES * entries)} for each of its k mini-batches. bulksample never stores P.",
    ]


def as_json(plan: Plan) -> dict[str, Any]:
    """Return everything that a plan holds, its sentences included, as `bulksample plan --json` writes it."""
    device, network, sizes = plan.measured.device, plan.request.connection(), plan.sizes
    return {
        "request": plan.request.model_dump(mode="json"),
        "rates": _rates(device) | _rates(network) | {"devices_per_node": {"value": network.per_node}},
        "measured_files": list(plan.measured.files),
        "minibatches": plan.request.minibatches,
        "minibatch": {"inputs": sizes.inputs, "edges": sizes.edges, "rows": sizes.rows, "bytes": sizes.nbytes},
        "hops": [asdict(hop) for hop in sizes.hops],
        "parameters": plan.request.parameters,
        "usable_bytes": plan.budget,
        "rows": [_row(plan, row, plan.chosen.get(row.grid.ranks) is row) for row in plan.rows],
        "placements": [_row(plan, row, plan.best_placement(p) is row) for p, rows in plan.placements.items() for row in rows],
        "codecs": {
            p: {codec: {"seconds": row.whole_epoch, "feature_bytes": row.traffic.features} for codec, row in by_codec.items()}
            for p, by_codec in plan.codecs.items()
        },
        "explanation": explain(plan),
    }


def _rates(profile: Any) -> dict[str, Any]:
    return {name: rate._asdict() for name, rate in vars(profile).items() if hasattr(rate, "origin")}


def _row(plan: Plan, row: GridPrediction, chosen: bool) -> dict[str, Any]:
    grid = row.grid
    return {
        "ranks": grid.ranks, "replication": grid.replication, "graph": grid.graph, "topology": grid.topology, "features": grid.placed,
        "feature_replication": grid.feature_replication or grid.replication if grid.placed == "partitioned" else None,
        "input_layer": "fused" if fuses_input(plan.request, plan.sizes, grid) else "gathered",
        "grid_order": grid.order, "fits": row.fits, "chosen": chosen, "largest_bulk": row.largest_bulk, "bulk_size": row.bulk_size,
        "memory": {**asdict(row.memory), "total": row.memory.total},
        "bytes_sent": {"total": row.traffic.total, **asdict(row.traffic)}, "collectives": row.collectives,
        "bytes_between_machines": row.between_machines, "host_bytes_of_a_machine": row.host_bytes,
        "seconds": {**asdict(row.seconds), "with_evaluation": row.whole_epoch}, "evaluation": asdict(row.evaluation),
        "published_words_per_process": row.published_words if grid.partitioned else 0.0,
    }  # fmt: skip
