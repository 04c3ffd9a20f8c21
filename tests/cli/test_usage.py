"""A mistyped command line gets one message with the nearest word, without an import of torch."""

import subprocess
import sys

import pytest
from launch import ROOT, run_ranks
from waiting import PATIENCE

from bulksample import __version__

MISTYPED = [
    (["trian"], "No such command 'trian'. Did you mean 'train'?"),
    (["data", "make", "dcsmb"], "No such command 'dcsmb'. Did you mean 'dcsbm'?"),
    (["train", "g", "--metod", "sync"], "No such option: --metod; did you mean --method?"),
    (["train", "g", "--boundry-share", "0.5"], "No such option: --boundry-share; did you mean --boundary-share?"),
    (["sample", "g", "--fanout", "5"], "No such option: --fanout; did you mean --fanouts?"),
    (["plan", "--vertexes", "5"], "No such option: --vertexes; did you mean --vertices?"),
    (["train", "g", "--method", "ramdom-tma"], "--method: there is no method 'ramdom-tma'; did you mean 'random-tma'?"),
    (["train", "--method", "ramdom-tma", "--help"], "--method: there is no method 'ramdom-tma'; did you mean 'random-tma'?"),
    (["train", "g", "--sampler", "sgae"], "--sampler: got 'sgae'; did you mean 'sage'?"),
    (["train", "g", "--model", "sge"], "--model: got 'sge'; did you mean 'sage'?"),
    (["compare", "g", "--methods", "sync,adaq", "-o", "o"], "--methods: there is no method 'adaq'; did you mean 'adaqp'?"),
    (["partition", "g", "--parts", "2", "--by", "blok", "-o", "o"], "--by: got 'blok'; did you mean 'block'?"),
    (
        ["data", "import", "edgelist", "g", "-o", "o", "--ids", "txt"],
        "Invalid value for '--ids': 'txt' is not one of 'integer', 'text'; see bulksample data import edgelist --help",
    ),
    (
        ["data", "split-edges", "g", "-o", "o", "--val", "2"],
        "Invalid value for '--val': Input should be less than or equal to 1; got '2'; see bulksample data split-edges --help",
    ),
    (
        ["partition", "g", "--parts=0", "-o", "o"],
        "Invalid value for '--parts': Input should be greater than or equal to 1; got '0'; see bulksample partition --help",
    ),
    (["data", "import", "ogb", "ogbn-arxv", "-o", "o"], "ogbn-arxv is neither a folder nor a data set; did you mean 'ogbn-arxiv'?"),
    (["compare", "g", "--methods", "", "-o", "o"], "--methods: got ''; name some, joined by commas, such as sync,full, or all"),
    (
        ["train", "g", "--eval-seeds", "5"],
        "--eval-seeds is an option of sampled scores; got exact ones: use --evaluate sampled",
    ),
    (
        ["train", "g", "--cache-by", "inclusion"],
        "--cache-by inclusion chooses the rows of a cache; got --cache-bytes 0: use --cache-bytes, or leave it out",
    ),
    (["data", "make", "hetero", "--type", "a:b:20", "-o", "o"], "type 'a:b:20': use NAME:COUNT, each name once and without a colon"),
    (["sample", "g", "--seeds", "dev"], "--seeds: got 'dev'; use train, val, test, all"),
    (["sample", "g", "--bulk-size", "0"], "--bulk-size must be 'auto' or a positive number; got '0'; use auto"),
    (["train", "g", "--method", "adaqp", "--bits", "3"], "--bits: got '3'; use 2, 4, 8, 16, 32, uniform, random, adaptive"),
    (
        ["train", "g", "--method", "llcg", "--interval", "x"],
        "--interval: got 'x'; use the interval between averages: epoch, a number of steps, or seconds such as 2s",
    ),
    (
        ["plan", "--vertices", "9", "--edges", "9", "--feature-width", "2", "--graph", "rep"],
        "--graph: got 'rep'; use auto, replicated, partitioned, published",
    ),
    (["train", "g", "--metric", "accurracy"], "--metric: there is no metric 'accurracy'; did you mean 'accuracy'?"),
    (["train", "g", "--fanouts", "10.5"], "--fanouts must be whole numbers joined by commas; got '10.5'; use 15,10,5"),
    (["sample", "g", "--fanouts", "10,0"], "--fanouts: got 10,0; a hop of 0 draws no neighbor: use 1 or more, or -1 for all"),
    (["train", "g", "--zzz"], "No such option: --zzz; see bulksample train --help"),
    (["train"], "Missing argument 'directory'; see bulksample train --help"),
]


@pytest.mark.parametrize(("words", "message"), MISTYPED, ids=[" ".join(words) for words, _ in MISTYPED])
def test_the_nearest_word_is_suggested_in_one_line(command, words, message):
    assert command(*words) == (2, "", f"bulksample: UsageError: {message}\n")


def test_a_path_that_is_no_store_is_named(command, graph, tmp_path):
    file = tmp_path / "sync.json"
    file.write_text("{}")
    for words in (["train", file], ["sample", file], ["data", "info", file], ["compare", file, "--methods", "sync", "-o", tmp_path / "o"]):
        ended = command(*words)
        assert ended.code == 65
        assert f"{file}: is a file, not the folder of a store; use the folder that has a manifest.json" in ended.err
    advice = "did you mean the data set ogbn-arxiv? Import it first: bulksample data import ogb ogbn-arxiv -o ogbn-arxiv"
    for name in ("ogbn-arixv", "ogbn_arxiv"):
        assert f"{tmp_path / name}: there is no such folder; {advice}\n" in command("train", tmp_path / name).err
    named = "it is a public data set: import it first, with bulksample data import ogb ogbn-mag -o ogbn-mag"
    assert f"ogbn-mag: there is no such folder; {named}\n" in command("train", tmp_path / "ogbn-mag").err
    store = "a graph is the folder of a store, which `data import` or `data make` writes"
    assert f"nosuch: there is no such folder; {store}\n" in command("train", tmp_path / "nosuch").err
    missed = graph.with_name("gg")
    assert f"{missed}: there is no such folder; did you mean '{graph}'?" in command("train", missed).err


@pytest.mark.parametrize("words", [[], ["data"], ["data", "make"]])
def test_a_group_without_a_command_shows_its_help(command, words):
    code, out, err = command(*words)
    assert code == 2
    assert "Usage: bulksample" in out + err
    assert "UsageError" not in err


ABSENT = [["train", "nowhere"], ["train", __file__], ["predict", "nowhere", "--checkpoint", "x", "-o", "y.npz"], ["sample", "nowhere"]]
ABSENT += [["train", "ogbn-arixv"]]


def test_help_and_refusals_do_not_import_torch():
    """One process runs all of them."""
    lines = [["--help"], ["train", "--help"], ["train", "--method", "adaqp", "--help"], *(words for words, _ in MISTYPED), *ABSENT]
    code = f"""
import sys
from bulksample.cli import main
for words in {lines!r}:
    sys.argv = ["bulksample", *words]
    try:
        main()
    except SystemExit as ended:
        assert ended.code in (0, 2, 65), (words, ended.code)
    loaded = {{"torch", "mpi4py", "cupy"}} & sys.modules.keys()
    assert not loaded, (words, loaded)
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["sample", "g", "--fanout", "5"], 2, "did you mean --fanouts?"),
        pytest.param(["sample", "g", "--config", "nowhere.yaml"], 2, "nowhere.yaml: cannot be read", marks=pytest.mark.long),
        pytest.param(["data"], 2, "Usage: bulksample data", marks=pytest.mark.long),
        pytest.param(["plan", "--help"], 0, "Usage: bulksample plan", marks=pytest.mark.long),
    ],
)
def test_ranks_speak_once(words, code, said):
    ended = run_ranks(2, ["-m", "bulksample", *words])
    assert ended.code == code, ended
    assert (ended.out + ended.err).count(said) == 1, ended


def test_the_version_is_printed_alone(command):
    assert command("--version") == (0, f"bulksample {__version__}\n", "")
