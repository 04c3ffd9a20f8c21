"""Predict the seconds per epoch for 4 to 1024 devices and every policy, beside the published figures.

The runs are those of Tripathy, Yelick and Buluc, MLSys 2024: GraphSAGE with three layers of 256, fanouts 15,10,5, 1024 seeds per
mini-batch, on ogbn-products, Protein and ogbn-papers100M. Sizes, memory, bytes and seconds are those of `bulksample plan` (its formulas
are at the top of `bulksample/plan`), from the rates of a device and a network. The output marks each rate as measured, published or
assumed. FILE is the JSON of `bench/run.py gpu`, of another benchmark, of `bulksample sample` or `train`, or rates by name; it replaces
rates of the device's profile.

    replicated    A and H whole on every device; only gradients travel
    published     A whole, H in p / c block rows with the c of the paper: its graph-replicated mode
    owner         A and H in p / c block rows; owners draw; the c of 1, 2, 4, 8 with the shortest epoch that fits
    rows          the same with the published 1.5D algorithm

The paper prints its bars as figures, not as numbers. The script compares what the paper states: the ends of its axes, which bound the bars
from above, parallel efficiencies, and speed-ups. An efficiency e between p and P devices gives a speed-up e P / p (derived).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from harness import some_of

from bulksample.plan import PlanRequest
from bulksample.plan.choice import GridPrediction, predict
from bulksample.plan.measured import Measured, measure
from bulksample.plan.sizes import expected_sizes
from bulksample.plan.traffic import CandidateGrid
from bulksample.report.drawing import COLOURS, new_figure
from bulksample.report.table import format_number, markdown

RANKS = tuple(2**i for i in range(2, 11))
POLICIES = ("replicated", "published", "owner", "rows")


@dataclass(frozen=True)
class Published:
    """A graph of the paper, and the statements about its runs.

    Attributes
    ----------
    sizes : of the graph, as `plan` takes them
    assumed : the sizes that the paper does not state
    replication : c by p, of the graph-replicated mode
    axis : seconds at the end of the figure's axis; no bar is longer
    efficiency : p, P, and the share of P / p by which the epoch gets faster
    sampling : the speed-up of sampling from 4 to 64 devices, if stated
    partitioned : for the partitioned graph, c for 16, 32 and 64 devices, and the speed-up from 16 to 64
    """

    sizes: dict[str, int]
    assumed: str
    replication: dict[int, int]
    axis: float
    efficiency: tuple[int, int, float]
    sampling: float | None = None
    partitioned: tuple[dict[int, int], float] | None = None


PAPER = {
    "products": Published(
        {"vertices": 2_449_029, "edges": 126_000_000, "feature_width": 100, "classes": 47, "seeds": 196 * 1024},
        "classes, as OGB says", {4: 1, 8: 2, 16: 4}, 5.0, (4, 16, 0.88),
    ),
    "protein": Published(
        {"vertices": 8_700_000, "edges": 1_300_000_000, "feature_width": 128, "classes": 256, "seeds": 1024 * 1024},
        "256 classes", {4: 1, 8: 2, 16: 2, 32: 2, 64: 4, 128: 8}, 30.0, (4, 128, 0.61), 15.8, ({16: 2, 32: 4, 64: 4}, 1.75),
    ),
    "papers": Published(
        {"vertices": 111_059_956, "edges": 1_600_000_000, "feature_width": 128, "classes": 172, "seeds": 1172 * 1024},
        "classes, as OGB says", {4: 1, 8: 2, 16: 4, 32: 4, 64: 8, 128: 8}, 8.0, (4, 128, 0.47), 15.8, ({16: 1, 32: 2, 64: 4}, 1.43),
    ),
}  # fmt: skip


class OnPaper:
    """The predictions for one graph on one device and network."""

    def __init__(self, graph: str, device: str, network: str | None, files: list[Path]) -> None:
        self.paper = PAPER[graph]
        settings = {**self.paper.sizes, "device": device, "network": network, "evaluate": "none", "ranks": RANKS}
        self.requests = {exchange: PlanRequest.of(**settings, exchange=exchange) for exchange in ("owner", "rows")}
        self.measured: Measured = measure(self.requests["owner"], files)
        self.sizes = expected_sizes(self.requests["owner"])
        if self.measured.edges is not None and self.measured.inputs is not None:
            self.sizes = self.sizes.scaled_to(self.measured.edges, self.measured.inputs)
        self.budget = (1 - self.requests["owner"].reserve) * self.measured.device.memory.value

    def row(self, policy: str, p: int, c: int | None = None) -> GridPrediction:
        """Predict an epoch on p devices; c is the policy's own by default."""
        if policy == "replicated":
            return self._predict("owner", CandidateGrid(p, p, "replicated"))
        if policy == "published":
            known = [c for ranks, c in self.paper.replication.items() if ranks <= p]
            return self._predict("owner", CandidateGrid(p, c or known[-1], "published"))
        found = [
            self._predict(policy, CandidateGrid(p, one, "partitioned")) for one in ([c] if c else (1, 2, 4, 8)) if p % one == 0 and one < p
        ]
        return min(found, key=lambda row: (not row.fits, row.seconds.epoch))

    def _predict(self, exchange: str, grid: CandidateGrid) -> GridPrediction:
        return predict(self.requests[exchange], self.sizes, grid, self.budget, self.measured)

    def rates(self) -> dict[str, dict[str, Any]]:
        """Return the rates of the predictions and their origins."""
        profiles = (self.measured.device, self.requests["owner"].connection())
        return {name: rate._asdict() for profile in profiles for name, rate in vars(profile).items() if hasattr(rate, "origin")}

    def held_against(self) -> list[dict[str, Any]]:
        """Return each statement of the paper beside the prediction for the same policy and c."""
        paper, (first, last, share) = self.paper, self.paper.efficiency
        few, many = self.row("published", first), self.row("published", last)
        lines = [
            _line(f"epoch on {first}, s", f"at most {paper.axis:g}", "published: the end of the axis", few.seconds.epoch),
        ]
        speedup, said = few.seconds.epoch / many.seconds.epoch, f"derived: {share:.0%} efficiency"
        lines.append(_line(f"epoch, {first} to {last}", share * last / first, said, speedup))
        if paper.sampling:
            speedup = self.row("published", 4).seconds.sample / self.row("published", 64).seconds.sample
            lines.append(_line("sampling, 4 to 64", paper.sampling, "published", speedup))
        if paper.partitioned:
            replication, said = paper.partitioned
            for policy in ("rows", "owner"):
                speedup = self.row(policy, 16, replication[16]).seconds.sample / self.row(policy, 64, replication[64]).seconds.sample
                lines.append(_line(f"partitioned sampling by {policy}, 16 to 64", said, "published, for its rows", speedup))
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return all rows of all policies, the rates, and the comparison with the paper."""
        rows = {policy: [_said(self.row(policy, p)) for p in RANKS] for policy in POLICIES}
        origin = "measured" if self.measured.edges else "expected of a graph drawn at random"
        minibatch = {"edges": self.sizes.edges, "inputs": self.sizes.inputs, "origin": origin}
        about = {"sizes": self.paper.sizes, "assumed": self.paper.assumed, "minibatch": minibatch}
        return {**about, "policies": rows, "paper": self.held_against()}


def _line(what: str, paper: float | str, origin: str, predicted: float) -> dict[str, Any]:
    return {"what": what, "paper": paper, "origin": origin, "predicted": predicted}


def _said(row: GridPrediction) -> dict[str, Any]:
    return {
        "ranks": row.grid.ranks, "replication": row.grid.replication, "bulk_size": row.bulk_size, "fits": row.fits,
        "memory_bytes": row.memory.total, "seconds": asdict(row.seconds), "bytes_sent": asdict(row.traffic),
    }  # fmt: skip


def show(found: dict[str, dict[str, Any]], rates: dict[str, dict[str, Any]]) -> None:
    """Format tables in Markdown: seconds per epoch by policy, the statements of the paper, and the rates."""
    for graph, said in found.items():
        body = [[policy, *(_cell(row) for row in rows)] for policy, rows in said["policies"].items()]
        print(f"\n{graph}: predicted seconds of an epoch, c in brackets; * does not fit into the memory\n")
        print("\n".join(markdown(["policy", *map(str, RANKS)], body)))
    body = [[f"{graph}: {line['what']}", _word(line["paper"]), line["origin"], format_number(line["predicted"], 3)]
            for graph, said in found.items() for line in said["paper"]]  # fmt: skip
    print("\nHeld against the paper\n\n" + "\n".join(markdown(["", "paper", "origin", "predicted"], body)))
    body = [[name, f"{rate['value']:.4g}", rate["origin"], rate["source"]] for name, rate in rates.items()]
    print("\nRates\n\n" + "\n".join(markdown(["rate", "value", "origin", "source"], body)))


def _cell(row: dict[str, Any]) -> str:
    return f"{format_number(row['seconds']['epoch'], 3)} ({row['replication']}){'' if row['fits'] else ' *'}"


def _word(value: float | str) -> str:
    return value if isinstance(value, str) else format_number(value, 3)


def draw(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw a panel per graph: a line per policy, hollow where it does not fit in memory; bounds of the paper in grey."""
    with new_figure(len(found), (4.0, 3.6)) as (sheet, axes):
        for axis, (graph, said) in zip(axes, found.items(), strict=True):
            for colour, (policy, rows) in zip(COLOURS, said["policies"].items(), strict=False):
                seconds = [row["seconds"]["epoch"] for row in rows]
                axis.plot(RANKS, seconds, "-", color=colour, label=f"{policy}, predicted")
                for row, value in zip(rows, seconds, strict=True):
                    axis.plot([row["ranks"]], [value], "o", color=colour, markersize=5, markerfacecolor=colour if row["fits"] else "white")
            first, last, share = PAPER[graph].efficiency
            bounds = [PAPER[graph].axis, PAPER[graph].axis * first / (last * share)]
            axis.plot([first, last], bounds, "v:", color=COLOURS[-1], label="the paper: at most (end of axis, efficiency)")
            axis.set(title=graph, xlabel="devices", yscale="log")
            axis.set_xscale("log", base=2)
            axis.set_xticks(RANKS, RANKS)
            axis.minorticks_off()
        axes[0].set_ylabel("seconds of an epoch")
        sheet.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
        sheet.savefig(path, dpi=110)


def scaling(
    graphs: some_of(*PAPER) = tuple(PAPER), device: Annotated[str, "a device profile of plan"] = "a100-80gb",
    network: Annotated[str | None, "a network profile of plan; default: the device's own"] = None,
    measured: Annotated[list[Path] | None, "JSON of measured rates, or of a run; once for each"] = None, plot: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    files = measured or []
    made = {graph: OnPaper(graph, device, network, files) for graph in graphs}
    found = {graph: one.to_dict() for graph, one in made.items()}
    rates = next(iter(made.values())).rates()
    show(found, rates)
    if plot:
        draw(found, plot)
    return {"device": device, "network": network, "files": [file.name for file in files], "rates": rates, "graphs": found}
