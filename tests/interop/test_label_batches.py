"""`batch.y` is what a loss of torch takes: classes as int64, labels of several columns as float32 with NaN where one is missing."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from communities import community_graph, with_columns_of_labels

import bulksample as bs
from bulksample.distributed.comm.threads import on_threads

OPTIONS = {"fanouts": [3, 3], "batch_size": 16, "seeds": "train"}


@pytest.mark.parametrize("target", ["multilabel", "regression"])
@pytest.mark.parametrize("topology", [None, "replicated", "partitioned"])
def test_labels_of_several_columns_are_floats(target, topology, tmp_path):
    graph = with_columns_of_labels(community_graph(n=80), target)
    expected = np.where(graph.labels == -1, np.nan, graph.labels).astype(np.float32) if target == "multilabel" else graph.labels

    def body(comm):
        source = graph if topology is None else bs.load(tmp_path / "g", world=comm, topology=topology)
        for batch in bs.Loader(source, **OPTIONS, out="numpy"):
            assert batch.y.dtype == np.float32
            np.testing.assert_array_equal(batch.y, expected[batch.seeds])
            y = batch.to("cpu").y
            known = ~y.isnan()
            assert torch.isfinite(F.binary_cross_entropy_with_logits(torch.zeros_like(y)[known], (y[known] > 0).float()))

    graph.save(tmp_path / "g")
    on_threads(1 if topology is None else 2, body)
