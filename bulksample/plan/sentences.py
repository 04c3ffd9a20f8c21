"""A plan in sentences: for each number of ranks, what was chosen and what the next larger c would need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .memory import COPIES

if TYPE_CHECKING:
    from .choice import Plan, Row

_PUBLISHED_BYTES = 64  # per entry of P that the authors' code holds


def gigabytes(size: float) -> str:
    """A size as people say it."""
    return f"{size / 1e9:.3g} GB" if size >= 1e8 else f"{size / 1e6:.3g} MB"


def explain(plan: Plan) -> list[str]:
    """A paragraph for each number of ranks, then remarks that hold for all."""
    return [explained_ranks(plan, p) for p in plan.request.ranks] + _remarks(plan)


def explained_ranks(plan: Plan, p: int) -> str:
    """The choice for p ranks in sentences: what is held, why no more, how long; or the least that would fit."""
    row = plan.chosen.get(p)
    if row is None:
        said = [f"p = {p}: nothing fits into {gigabytes(plan.budget)} of a device; the least is {_least(plan, p)}."]
    else:
        said = [_what_is_held(plan, row), _why_not_more(plan, row), _how_long(plan, row)]
    return " ".join([*said, *_without_evaluation(plan, p)])


def _what_is_held(plan: Plan, row: Row) -> str:
    grid, held = row.grid, row.memory
    places = {"replicated": "A and H whole on every device", "partitioned": f"A and H in {grid.rows} block rows"}
    where = places.get(grid.graph, f"A whole on every device, H in {grid.rows} block rows, which train does not offer")
    steps = -(-plan.request.minibatches // grid.ranks)
    evaluation = f", or {gigabytes(held.evaluation)} for exact evaluation" if held.evaluation else ""
    return (
        f"p = {grid.ranks}: c = {grid.replication}, k = {row.bulk_size}; {where}. A device holds {gigabytes(held.graph)} of A, "
        f"{gigabytes(held.features)} of H, {gigabytes(held.vectors + held.model)} of labels, masks, seeds and model; beside these "
        f"{gigabytes(held.bulk)} of minibatches and {gigabytes(held.buffers + held.activations)} for exchange and training{evaluation}: "
        f"{gigabytes(held.total)} of {gigabytes(plan.budget)} at the peak. The largest k that fits is {row.largest_bulk}; an epoch has "
        f"{steps} steps."
    )


def _why_not_more(plan: Plan, row: Row) -> str:
    if row.grid.rows == 1:
        return "There is no larger c: only gradients travel."
    larger = [other for other in plan.rows if other.grid.ranks == row.grid.ranks and other.grid.replication > row.grid.replication]
    if not larger:
        return "No larger c was asked for."
    least = min(larger, key=lambda other: other.grid.replication)
    if least.fits:
        return f"c = {least.grid.replication} fits too, and takes {least.seconds.epoch:.3g} s."
    return f"c = {least.grid.replication} would need {gigabytes(least.memory.total)}."


def _how_long(plan: Plan, row: Row) -> str:
    spent = row.seconds
    phases = {"sampling": spent.sample, "features": spent.fetch, "compute": spent.compute, "gradients": spent.reduce}
    longest = max(phases, key=lambda name: phases[name])
    parts = ", ".join(f"{name} {value:.2g} s" for name, value in phases.items())
    return f"An epoch takes {spent.epoch:.3g} s ({parts}; most is {longest}) and sends {gigabytes(row.traffic.total)}."


def _without_evaluation(plan: Plan, p: int) -> list[str]:
    """What exact evaluation costs, where it decides."""
    row, chosen = plan.untested.get(p), plan.chosen.get(p)
    if row is None or (chosen is not None and row.grid == chosen.grid):
        return []
    return [
        f"Exact evaluation decides that: without it c = {row.grid.replication} would fit with {gigabytes(row.memory.total)}, "
        f"and an epoch would take {row.seconds.epoch:.3g} s."
    ]


def _least(plan: Plan, p: int) -> str:
    row = min((row for row in plan.rows if row.grid.ranks == p), key=lambda row: row.memory.total)
    return f"{gigabytes(row.memory.total)} with c = {row.grid.replication}"


def _remarks(plan: Plan) -> list[str]:
    sizes, degree = plan.sizes, plan.request.degree
    entries = max(hop.rows for hop in sizes.hops) * degree
    return [
        f"An epoch has {plan.request.minibatches:,} minibatches, the model {plan.request.parameters:,} numbers. "
        f"A minibatch holds {sizes.edges:,.0f} edges and {sizes.inputs:,.0f} vertices, {gigabytes(sizes.nbytes)}; "
        f"{COPIES} times that is kept for each of the k. "
        + ("That was measured." if plan.measured.edges else "That is expected of a graph drawn at random; --measured corrects it."),
        f"The published code holds P, {entries:,.0f} entries in the largest hop of a minibatch, at about {_PUBLISHED_BYTES} bytes each: "
        f"{gigabytes(_PUBLISHED_BYTES * entries)} for each of its k. Here P is never stored.",
    ]
