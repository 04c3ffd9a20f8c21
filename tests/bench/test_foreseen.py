"""Bytes that benchmarks foresee from a folder of parts, with and without groups of near seeds, are those that ranks send."""

import numpy as np
import pytest
from communities import community_graph
from foreseen import Foresight, over_ranks, together
from ranks import Grid, Work

from bulksample.data import store
from bulksample.data.parts_writer import write_parts
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer


@pytest.mark.long
@pytest.mark.parametrize("groups", [None, 4])
def test_ranks_on_four_parts_send_what_was_foreseen(tmp_path, groups):
    graph = community_graph(n=600, classes=4, degree=8)
    store.save(graph, tmp_path / "graph")
    write_parts(tmp_path / "graph", tmp_path / "parts", np.where(graph.labels < 0, 0, graph.labels).astype(np.int32), 4, "random")
    work = Work(tmp_path / "parts", "sage", (4, 3), batch_size=8, bulk_size=2, hidden=16)
    asked = {"fanouts": work.fanouts, "batch_size": 8, "bulk_size": 2, "hidden": 16, "threads": 1, "evaluate": "none"}
    placed = {"topology": "replicated", "features": "partitioned", "seed_locality": groups}

    def sent(epochs):
        config = TrainConfig.of(**asked, **placed, epochs=epochs)
        return on_threads(4, lambda comm: make_trainer(config, work.directory, comm).run()["bytes_sent"])[0]

    foresight, grid = Foresight(work, groups), Grid(4, 1, "owner")
    foreseen = [over_ranks(together(foresight.fetched(grid, epoch), foresight.reduced(grid))) for epoch in (0, 1)]
    runs = [sent(epochs) for epochs in (0, 1, 2)]
    for epoch, expected in enumerate(foreseen):
        assert {kind: runs[epoch + 1][kind] - runs[epoch][kind] for kind in expected} == expected
    assert foreseen[1]["features"] > 0
