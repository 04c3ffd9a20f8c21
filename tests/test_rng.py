"""Philox against the published answers; counters that never meet; the permutation of seeds."""

import numpy as np
import pytest

from bulksample import Stream, UsageError
from bulksample.rng import Law, Purpose, as_unit, counters, philox, tag

KNOWN_ANSWERS = [  # counter, key, words: the known-answer vectors of Random123 for philox4x32-10
    ([0] * 4, 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, 2**64 - 1, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], 0x299F31D0_A4093822, [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_philox_gives_the_published_words(counter, key, words):
    assert philox(np.array([counter], np.uint32), key)[0].tolist() == words


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_every_backend_gives_the_published_words(backend, counter, key, words):
    index, vertex, minibatch, last = counter
    assert backend.random_words(key, last, index, 1, vertex, minibatch)[0].tolist() == words


def test_backends_give_the_same_words_up_to_the_last_counter(backend, reference):
    for first, count in ((0, 100_000), (2**32 - 50, 50), (7, 0)):
        assert (backend.random_words(5, 9, first, count, 3, 2) == reference.random_words(5, 9, first, count, 3, 2)).all()


def test_no_two_purposes_layers_or_epochs_share_a_tag():
    tags = {tag(purpose, layer, epoch) for purpose in Purpose for layer in (0, 1, 255) for epoch in (0, 1, 2**20 - 1)}
    assert len(tags) == len(Purpose) * 9


def test_laws_that_differ_in_what_they_name_draw_from_different_counters():
    stream = Stream(1)
    assert len({stream.draw(law).tag for law in (Law.UNIFORM, Law.RACE, Law.LABOR)} | {stream.layer_draw().tag}) == 4


def test_draws_are_those_of_the_first_layer_and_epoch_unless_others_are_named():
    stream = Stream(1)
    assert all(stream.draw(law) == stream.draw(law, epoch=0, layer=0) for law in Law)
    assert stream.layer_draw() == stream.layer_draw(epoch=0, layer=0)


@pytest.mark.parametrize(("layer", "epoch"), [(256, 0), (-1, 0), (0, 2**20), (0, -1)])
def test_what_does_not_fit_the_counter_is_refused(layer, epoch):
    with pytest.raises(UsageError, match="out of range"):
        tag(Purpose.UNIFORM, layer, epoch)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_is_64_bits(seed):
    with pytest.raises(UsageError, match="64-bit"):
        Stream(seed)


@pytest.mark.parametrize("n", [0, 1, 2, 1000])
def test_permutation_holds_every_position_once(n):
    assert np.array_equal(np.sort(Stream(3).permutation(n)), np.arange(n))


def test_epochs_and_seeds_permute_differently():
    orders = {tuple(Stream(seed).permutation(50, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_unit_numbers_are_uniform():
    u = as_unit(philox(counters(np.arange(200_000), 0, 0, 0), 11))
    assert 0 <= u.min() < u.max() < 1
    counts = np.histogram(u, 100, (0, 1))[0]
    assert ((counts - 2000) ** 2 / 2000).sum() < 99 + 5 * np.sqrt(2 * 99)
