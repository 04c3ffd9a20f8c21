"""`info --network` on ranks: rank 0 alone holds and writes the file of the result."""

import json

from launch import run_fresh


def test_the_file_of_the_result_belongs_to_rank_0(tmp_path):
    words = ["-m", "bulksample", "info", "--network", "--json", str(tmp_path / "network.json")]
    ended = run_fresh(2, words)
    assert ended.code == 0, ended
    assert json.loads((tmp_path / "network.json").read_text())["network"]["ranks"] == 2
    again = run_fresh(2, words)
    assert again.code == 2, again
    assert again.err.count("network.json exists already") == 1, again
