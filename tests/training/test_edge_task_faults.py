"""Mistakes of users with labelled edges that once passed without a word."""

import pytest
from communities import community_graph
from labelled_edges import pairs_table, trained
from launch import run_alone

import bulksample as bs
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


def test_options_kept_of_a_run_on_a_table_in_memory_ask_for_a_file(tmp_path):
    GRAPH.save(tmp_path / "store")
    bs.train(GRAPH, task="edges", edge_labels=TABLE, **SMALL, checkpoint=str(tmp_path / "kept"))
    again = ["train", tmp_path / "store", "--config", tmp_path / "kept" / "config.yaml", "--checkpoint", tmp_path / "new"]
    done = run_alone(["-m", "bulksample", *again])
    assert done.returncode == 2
    assert "--edge-labels: these options are of a run whose table was in memory; give a file .npz, .csv or .parquet" in done.stderr


def test_one_layer_embeds_the_ends_in_hidden_columns(capsys):
    one = {**SMALL, "model": "sage", "seed": 1}
    narrow, wide = (bs.train(GRAPH, task="edges", edge_labels=TABLE, **one, hidden=width) for width in (4, 32))
    assert narrow["train_loss"] != wide["train_loss"]
    assert "without effect" not in capsys.readouterr().err
    bs.train(GRAPH, task="edges", edge_labels=TABLE, **one, hidden=4, layer_norm=True)
    assert "without effect: layer_norm; use more layers" in capsys.readouterr().err
