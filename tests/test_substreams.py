"""Draws that belong to no layer of a sampler are registered in `Substream`; no two of them share a random word."""

import ast
from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from test_imports import SOURCES

from bulksample import Stream
from bulksample.config.train import TrainOptions
from bulksample.data.random_words import Words
from bulksample.methods.adaqp.rounded_messages import number
from bulksample.rng import MAX_EPOCHS, MAX_LAYERS, Purpose, Substream, tag

BY_LAYER = {"UNIFORM", "RACE", "LABOR", "LAYER", "ROUNDING", "WIDTH"}  # purposes with a draw for each layer


@cache
def trees():
    return {module: ast.parse(path.read_text()) for module, path in SOURCES.items()}


def takers(tree):
    """Functions and records of a module that take a tag, a substream or the layer of a tag: (name, position of that argument)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = [argument.arg for argument in node.args.args if argument.arg != "self"]
            wanted = {"substream", "layer" if node.name == "tag" else "tag"} & set(names)
            yield from ((node.name, names.index(name)) for name in wanted)
        if isinstance(node, ast.ClassDef):
            fields = [field.target.id for field in node.body if isinstance(field, ast.AnnAssign)]
            yield from ((node.name, fields.index("tag")) for _ in range("tag" in fields))


@cache
def public_takers():
    return {name: at for tree in trees().values() for name, at in takers(tree) if not name.startswith("_")}


def is_private(node, local):
    """True if an expression has an integer literal or a constant of a module in it; names of the function are looked up."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, int):
            return True
        if isinstance(part, ast.Name) and (part.id.lstrip("_").isupper() or (part.id in local and is_private(local[part.id], {}))):
            return True
    return False


def private_numbers(tree):
    """Lines of a module that give a generator of random words a number of their own for the substream, the tag or the layer."""
    positions = public_takers() | dict(takers(tree))  # private names have a meaning in their own module alone
    for scope in [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))]:
        nodes = list(ast.walk(scope))
        local = {
            name.id: node.value for node in nodes if isinstance(node, ast.Assign) for name in node.targets if isinstance(name, ast.Name)
        }
        for call in (node for node in nodes if isinstance(node, ast.Call)):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            of_class = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "")[:1].isupper()  # such as `Selection.of`
            at = positions.get(name, len(call.args))
            given = [*call.args[at : at + 1], *(word.value for word in call.keywords if word.arg in ("tag", "substream"))]
            if not of_class and any(is_private(argument, local) for argument in given):
                yield call.lineno


def attributes(tree, of):
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == of}


def test_no_two_members_share_a_value():
    values = [member.value for member in Substream.__members__.values()]
    assert len(set(values)) == len(Substream.__members__)
    assert all(isinstance(purpose, Purpose) and 0 <= layer < MAX_LAYERS for purpose, layer in values)
    assert len(Purpose) == len(Purpose.__members__)  # of two members with one number, the second is a name of the first


def test_no_member_meets_a_draw_that_is_made_for_each_layer():
    """Purposes by layer have no member, except the rounding of features: its number is above those of all layers of a model."""
    by_layer = {member for member in Substream if member.value[0].name in BY_LAYER}
    assert by_layer == {Substream.FEATURE_ROUNDING}
    (most,) = (bound.le for bound in TrainOptions.model_fields["layers"].metadata if hasattr(bound, "le"))
    assert number(f"{most} backward") < Substream.FEATURE_ROUNDING.value[1]


def test_a_tag_is_that_of_the_purpose_the_number_and_the_epoch():
    for epoch in (0, 1, MAX_EPOCHS - 1):
        tags = [member.tag(epoch) for member in Substream]
        assert tags == [tag(*member.value, epoch) for member in Substream]
        assert len(set(tags)) == len(tags)


def test_every_member_is_drawn_from_in_one_module():
    users = defaultdict(set)
    for module, tree in trees().items():
        for name in attributes(tree, "Substream"):
            users[name].add(module)
    assert users.keys() == set(Substream.__members__)
    assert {name: modules for name, modules in users.items() if len(modules) > 1} == {}


def test_purposes_without_layers_are_drawn_by_their_substreams_alone():
    users = defaultdict(set)
    for module, tree in trees().items():
        for name in attributes(tree, "Purpose") if module != "bulksample.rng" else ():
            users[name].add(module)
    assert users == {"ROUNDING": {"bulksample.methods.adaqp.rounded_messages"}, "WIDTH": {"bulksample.methods.adaqp.method"}}


def test_no_draw_has_a_number_of_its_own():
    assert {module: lines for module, tree in trees().items() if (lines := list(private_numbers(tree)))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "words.of(102, 0, 5)", "_CHUNKS = 102\ndef f(): Words(seed).of(_CHUNKS, 0, n)", "pair_words(seed, _CUT, low, high, 0)",
        "stream.words(tag(Purpose.NEGATIVE, 1, epoch), index)", "def f():\n t = tag(Purpose.TRAIN, 0, 0)\n counters(a, b, c, t)",
        "Noise(0, 5 << 28)", "words.permutation(substream=_DEAL, n=3)", "backend.random_words(seed, TAG, 0, 5)",
    ],
)  # fmt: skip
def test_a_number_of_its_own_is_found(line):
    assert list(private_numbers(ast.parse(line)))


def test_held_out_edges_and_methods_of_one_seed_draw_different_words():
    """The pairs that met: held-out edges and Grappa's chunks, their directions and CoFree's parts, negatives and dropped edges."""
    drawn = [Words(7).of(member, 0, 1000)[:, 0] for member in Substream if member.value[0] == Purpose.GENERATE]
    words, found = Stream(7).words(Substream.COFREE_DROPPED_EDGE.tag(), np.arange(1000))[:, 0], np.concatenate(drawn)
    assert np.isin(words, found).all()
    assert len(np.unique(found)) > len(found) - 5  # some 19,000 words of 32 bits: 0.04 repetitions are expected
