"""A plan as one JSON object, as `bulksample plan --json` writes it: sizes in bytes, times in seconds of an epoch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .prediction import GridPrediction, Plan
from .sentences import explain


def as_json(plan: Plan) -> dict[str, Any]:
    """Return everything that a plan holds, its sentences included."""
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
        "rows": [_row(row, plan.chosen.get(row.grid.ranks) is row) for row in plan.rows],
        "placements": [_row(row, plan.best_placement(p) is row) for p, rows in plan.placements.items() for row in rows],
        "codecs": {
            p: {codec: {"seconds": row.whole_epoch, "feature_bytes": row.traffic.features} for codec, row in found.items()}
            for p, found in plan.codecs.items()
        },
        "explanation": explain(plan),
    }


def _rates(profile: Any) -> dict[str, Any]:
    return {name: rate._asdict() for name, rate in vars(profile).items() if hasattr(rate, "origin")}


def _row(row: GridPrediction, chosen: bool) -> dict[str, Any]:
    return {
        "ranks": row.grid.ranks,
        "replication": row.grid.replication,
        "graph": row.grid.graph,
        "topology": row.grid.topology,
        "features": row.grid.placed,
        "feature_replication": row.grid.feature_replication or row.grid.replication if row.grid.placed == "partitioned" else None,
        "grid_order": row.grid.order,
        "fits": row.fits,
        "chosen": chosen,
        "largest_bulk": row.largest_bulk,
        "bulk_size": row.bulk_size,
        "memory": {**asdict(row.memory), "total": row.memory.total},
        "bytes_sent": {"total": row.traffic.total, **asdict(row.traffic)},
        "collectives": row.collectives,
        "bytes_between_machines": row.between_machines,
        "host_bytes_of_a_machine": row.host_bytes,
        "seconds": {**asdict(row.seconds), "with_evaluation": row.whole_epoch},
        "evaluation": asdict(row.evaluation),
        "published_words_per_process": row.published.per_process if row.grid.partitioned else 0.0,
    }
