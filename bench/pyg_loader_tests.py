"""Run torch_geometric's own loader tests with the loaders of bulksample in the place of its own.

git clone https://github.com/pyg-team/pytorch_geometric && git -C pytorch_geometric checkout TAG    # the installed version

The tests are not changed: before they are imported, the names of `torch_geometric.loader` that bulksample replaces point to its loaders,
and the decorators that skip a test without pyg-lib or torch-sparse do nothing. A test that needs another package is still skipped.
A test that fails for want of a `SparseTensor` counts as failed, unless torch-sparse is installed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch_geometric.loader
import torch_geometric.testing
import torch_geometric.typing
from typer import Argument

import bulksample.interop.pyg
from bulksample.errors import UsageError

FILES = ("neighbor_loader", "link_neighbor_loader", "hgt_loader", "shadow", "graph_saint", "cluster")
NOT_NEEDED = {"pyg_lib", "torch_sparse"}
FLAGS = ("WITH_PYG_LIB", "WITH_TORCH_SPARSE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_METIS")
OTHERS = "pyg_lib_and_torch_sparse or on_cora or gcn_correctness"  # these compare the two libraries, or download a data set


class Replaced:
    """A pytest plugin: replaces loaders and decorators while test modules are imported, and counts results."""

    def __init__(self) -> None:
        self.results: dict[str, str] = {}

    def pytest_collection(self) -> None:
        for name in bulksample.interop.pyg.__all__:
            if hasattr(torch_geometric.loader, name):
                setattr(torch_geometric.loader, name, getattr(bulksample.interop.pyg, name))
        testing = torch_geometric.testing
        needs = testing.withPackage
        testing.withPackage = lambda *names: needs(*(name for name in names if name not in NOT_NEEDED))
        testing.onlyNeighborSampler = testing.withMETIS = lambda test: test
        self._flags = {flag: getattr(torch_geometric.typing, flag) for flag in FLAGS}
        for flag in FLAGS:
            setattr(torch_geometric.typing, flag, True)

    def pytest_collection_finish(self) -> None:
        for flag, value in self._flags.items():  # torch_geometric itself must not look for what is not installed
            setattr(torch_geometric.typing, flag, value)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.results[report.nodeid] = report.outcome


def kind(test: str) -> str:
    """Return the kind of graph that a test is about, by its name and parameters."""
    name = test.split("::", 1)[1]
    if "hetero" in name or "hgt" in name or "input_id" in name:
        return "heterogeneous"
    return (
        "temporal"
        if name.startswith("test_temporal") or "edge_level_temporal" in name or ("triplet[" in name and "-True-" in name)
        else "homogeneous"
    )


def counts(results: dict[str, str]) -> dict[str, dict[str, dict[str, int]]]:
    """Count results by file and by kind of graph."""
    table: dict[str, dict[str, Counter[str]]] = {}
    for test, outcome in results.items():
        table.setdefault(Path(test.split("::")[0]).stem, {}).setdefault(kind(test), Counter())[outcome] += 1
    return {file: {found: dict(number) for found, number in kinds.items()} for file, kinds in table.items()}


def pyg_loader_tests(
    checkout: Annotated[Path, "a checkout of torch_geometric's repository"],
    more: Annotated[list[str] | None, Argument(help="options of pytest, after --")] = None,
) -> Iterator[dict[str, Any]]:
    files = [checkout / "test" / "loader" / f"test_{name}.py" for name in FILES]
    missing = [str(file) for file in files if not file.exists()]
    if missing:
        raise UsageError(f"not a checkout of torch_geometric: {missing[0]} is missing")
    plugin = Replaced()
    own = ["-q", "-p", "no:cacheprovider", "-c", "/dev/null", f"--rootdir={checkout}", "-k", f"not ({OTHERS})"]
    code = pytest.main([*own, *(more or []), *map(str, files)], plugins=[plugin])
    table = counts(plugin.results)
    print(json.dumps(table, indent=1))
    yield {"counts": table, "results": plugin.results}
    raise SystemExit(int(code))
