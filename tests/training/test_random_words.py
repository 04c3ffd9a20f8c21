"""Random words of the model: each rank, epoch and step has its own, by which modules of a user's draw; each part samples by its own."""

from communities import community_graph
from oracles import philox

from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.loaders import part_loader

SEED, TRAIN = 2**63 + 5, 6  # the purpose, in the upper four bits of the last word of a counter


def word(draw, rank, epoch, step):
    low, high, *_ = philox((draw, rank, step, TRAIN << 28 | epoch), SEED)
    return high << 32 | low


def test_the_generator_of_every_rank_and_step_has_a_word_of_its_own():
    graph = community_graph(n=200)
    options = {"fanouts": (3, 3), "hidden": 8, "batch_size": 16, "epochs": 2, "threads": 1, "quiet": True, "seed": SEED, "dropout": 0.5}

    def rank(comm):
        trainer = make_trainer(TrainConfig.of(**options), graph, comm, [])
        whole, seeds = trainer.method.loss, {}

        def loss(context, batch):
            found = whole(context, batch)
            seeds[context.comm.rank, context.epoch, context.step - 1] = context.model.generator.initial_seed()
            return found

        assert trainer.model.generator.initial_seed() == word(1, 0, 0, 0)  # the initial weights are those of every rank
        trainer.method.loss = loss
        trainer.run()
        return seeds

    first, second = on_threads(2, rank)
    drawn = first | second
    assert len(drawn) == len(first) + len(second) >= 12
    assert drawn == {place: word(0, *place) for place in drawn}
    assert len(set(drawn.values()) | {word(1, 0, 0, 0)}) == len(drawn) + 1


def test_the_loader_of_a_part_draws_by_a_seed_of_its_own():
    """seed + part 0x9E3779B97F4A7C15 + round 0xD1B54A32D192ED03 modulo 2^64, for a trainer that joins in that round."""
    context = make_trainer(TrainConfig.of(fanouts=(3, 3), threads=1, seed=SEED), community_graph(n=60), None, []).context
    for part, joined_in in ((0, 0), (1, 0), (3, 2)):
        seed = (SEED + part * 0x9E3779B97F4A7C15 + joined_in * 0xD1B54A32D192ED03) % 2**64
        assert part_loader(context, part, 16, joined_in).state_dict()["random_seed"] == seed
