"""Mistakes of users with labelled edges that once passed without a word."""

import pytest
from communities import community_graph
from labelled_edges import pairs_table, trained

from bulksample import UsageError

GRAPH = community_graph(n=60)
TABLE = pairs_table(GRAPH.labels, m=60)
SMALL = {"model": "hetero-sage", "fanouts": (3,), "epochs": 1, "quiet": True, "threads": 1}


@pytest.mark.parametrize("stored", [False, True])
def test_a_relation_that_a_plain_graph_lacks_is_refused(tmp_path, stored):
    source = GRAPH
    if stored:
        source = tmp_path / "store"
        GRAPH.save(source)
    with pytest.raises(UsageError, match=r"has no relation\(s\) 'user:buys:item'; use one of node:to:node$"):
        trained(source, TABLE, **SMALL, target_relation="user:buys:item")
    named, unnamed = (trained(source, TABLE, **SMALL, target_relation=name)[0] for name in ("node:to:node", None))
    assert named["train_loss"] == unnamed["train_loss"]
