"""AdaQP: messages, assignments and headers take the bytes of their formulas."""

import numpy as np
import pytest
from sweeps import sweep
from test_adaqp import STILL
from test_adaqp_noise import rounded_rows

from bulksample import PeerLost
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer


def record(width, bits, header):
    return -(-width * bits // 8) + header


@pytest.mark.parametrize(("form", "widths"), [("strong", {1: 12, 2: 3}), ("naive", {0: 8, 1: 12, 2: 12})])
@pytest.mark.parametrize(("bits", "header"), [("2", "bf16"), ("4", "fp32"), ("8", "bf16"), ("16", "bf16"), ("32", "bf16")])
def test_bytes_are_those_of_the_formula(stored, form, widths, bits, header):
    """Forward in every layer that travels, backward in those above the first: sum over rows of ceil(f b / 8) + h."""
    epochs, p = 3, 4

    def rank(comm):
        asked = {"bits": bits, "message_header": header, "form": form, "epochs": epochs}
        trainer = make_trainer(TrainConfig.of(**{**STILL, **asked}), stored / "plain", comm)
        trainer.method.evaluate = lambda trainer: {"val_accuracy": 0.0}
        begun = comm.tally["activations"].bytes
        trainer.run()
        return comm.tally["activations"].bytes - begun, len(trainer.method.rows.halo.vertices)

    sent, halo = np.array(on_threads(p, rank)).sum(0)
    size = {"16": lambda f: 2 * f, "32": lambda f: 4 * f}.get(bits, lambda f: record(f, int(bits), 8 if header == "fp32" else 4))
    assert sent == epochs * halo * sum(size(f) * (1 + (layer > 0)) for layer, f in widths.items())


@sweep("bits", ["adaptive", "uniform", "random"])
def test_bytes_follow_the_tables_to_each_peer(stored, bits):
    """Every message of the last epoch has the size that its widths say; what an assignment costs is counted, too."""
    p, messages = 4, {}

    def rank(comm):
        trainer = make_trainer(
            TrainConfig.of(**{**STILL, "bits": bits, **({} if bits.isdigit() else {"reassign_every": 3})}), stored / "plain", comm
        )
        rounded, pack = trainer.method._rounded, trainer.method._rounded.pack

        def noted(rows, peer, key):
            message = pack(rows, peer, key)
            messages[comm.rank, peer, key, trainer.context.epoch] = len(message)
            table = rounded.sent[key, peer]
            assert len(message) == sum(record(rows.shape[1], int(b), 4) for b in table)
            return message

        rounded.pack = noted
        report = trainer.run()
        return report, {key: len(table) for key, table in rounded.sent.items()}, rounded.sent, rounded.received

    ranks = on_threads(p, rank)
    for i in range(p):
        for j in range(p):
            for key in {key for key, _ in ranks[i][2]}:
                assert (ranks[i][2][key, j] == ranks[j][3][key, i]).all()  # both sides hold the same table
    assert messages
    used = {int(b) for _, _, sent, _ in ranks for table in sent.values() for b in table}
    assert used == {2, 4, 8} if bits != "uniform" else len(used) < 3
    assert ranks[0][0]["assignments"] == (0 if bits == "random" else 3)


def test_what_an_assignment_sends(stored):
    """4 bytes a message to rank 0, 2 bits for each that a rank sends or receives back; 8 bytes a halo row once."""
    p = 3

    def rank(comm, **options):
        before = comm.tally["control"].bytes
        chosen = {} if "bits" in options else {"reassign_every": 3}
        trainer = make_trainer(TrainConfig.of(**{**STILL, **chosen, "epochs": 5, "eval_every": 100, **options}), stored / "plain", comm)
        trainer.method.evaluate = lambda trainer: {"val_accuracy": 0.0}
        topology = comm.tally["topology"].bytes
        trainer.run()
        sizes = [len(asked) for asked in trainer.method.rows.halo.requested]
        return comm.tally["control"].bytes - before, topology, sizes

    adaptive, fixed = on_threads(p, rank), on_threads(p, lambda comm: rank(comm, bits="8"))
    counts = np.array([sizes for _, _, sizes in fixed])
    by_rank = 2 * (counts.sum(0) + counts.sum(1))  # sent and received, forward and backward, in each of two layers
    for r in range(p):
        assert adaptive[r][1] - fixed[r][1] == 8 * counts[:, r].sum()
        extra = 8 * p * (p - 1) + 8 * (p - 1)  # the counts of rows; words of the exchange of coefficients
        extra += 2 * 8 * (p - 1)  # words that go ahead of betas and of widths
        extra += 4 * by_rank[r] if r else sum(-(-2 * by_rank[q] // 4) for q in range(1, p))
        assert _without_json(adaptive[r][0] - fixed[r][0], extra)


def _without_json(found, expected):
    """Options and reports travel as JSON, a few letters more or less."""
    return abs(found - expected) < 1000 and found > 0.5 * expected


def test_a_message_that_does_not_fit_its_table_is_refused(stored):
    def rank(comm):
        rows, rounded, _ = rounded_rows(stored / "plain", comm, 4)
        message = rounded.pack(np.ones((len(rows.halo.requested[1 - comm.rank]), 5), np.float32), 1 - comm.rank, "1 forward")
        with pytest.raises(PeerLost, match=r"expected \d+ bytes"):
            rounded.unpack(message[:-1], int(rows.halo.counts[1 - comm.rank]), 5, 1 - comm.rank, "1 forward")

    on_threads(2, rank)
