"""Messages name options as the caller wrote them: keyword arguments in Python, flags on the command line."""

import ast
import re
from pathlib import Path

import pytest
from communities import community_graph

import bulksample as bs
from bulksample.cli.configured import name_flags

PACKAGE = Path(bs.__file__).parent
COMMANDS = {"cli", "plan", "report"}  # what they say is for the command line alone
FLAG = re.compile(r"(?<![\w-])--[a-z]")
KIND = re.compile(r"Error$|^BackendUnavailable$|^PeerLost$|^Damaged$")
OF_A_COMMAND = re.compile(r"`[^`]*`|srun --\S+|--resume auto, in Python|'--method")  # or of another program, or of both callers
SMALL = {"fanouts": [3], "layers": 1, "hidden": 4, "batch_size": 64, "epochs": 1, "threads": 1}


def errors(path):
    """Yield the line and the text of every error that a module makes, and of every text that it gives a name to."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and KIND.search(node.func.id):
            yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.JoinedStr | ast.IfExp):
            yield node.lineno, ast.unparse(node.value)


def test_errors_of_the_package_cite_no_flags():
    modules = [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] not in COMMANDS]
    found = [(path, line, text) for path in modules for line, text in errors(path)]
    assert len(found) > 500
    cited = [f"{path}:{line}: {text}" for path, line, text in found if FLAG.search(OF_A_COMMAND.sub("", text))]
    assert not cited, "\n".join(cited)


@pytest.fixture
def places(tmp_path):
    """A store, a folder of checkpoints, files of another run, and an empty folder."""
    graph = community_graph()
    graph.save(tmp_path / "g")
    bs.train(graph, **SMALL, checkpoint=str(tmp_path / "c"))
    (tmp_path / "m.jsonl").write_text("precious\n")
    (tmp_path / "empty").mkdir()
    return graph, tmp_path


REFUSED = {
    "a store": (lambda graph, at: graph.save(at / "g"), "overwrite=True", "--overwrite"),
    "checkpoints": (lambda graph, at: bs.train(graph, **SMALL, checkpoint=at / "c"), "resume='auto'", "--resume auto"),
    "later checkpoints": (
        lambda graph, at: bs.train(graph, **SMALL, checkpoint=at / "c", resume=at / "empty"), "or overwrite=True", "or --overwrite",
    ),
    "lines": (lambda graph, at: bs.train(graph, **SMALL, metrics=at / "m.jsonl"), "overwrite=True", "--overwrite"),
    "no place": (lambda graph, at: bs.train(graph, **SMALL, resume="auto"), "give checkpoint='DIR'", "give --checkpoint DIR"),
    "no model": (lambda graph, at: bs.train(graph, **{**SMALL, "hidden": None}, model="nowhere:made"), "model: got", "--model: got"),
    "no checkpoint": (lambda graph, at: bs.predict(graph, at / "empty"), "given as checkpoint", "given as checkpoint"),
    "an ending": (lambda graph, at: bs.train(graph, **SMALL, metrics=at / "m.csv"), "metrics writes .jsonl", "--metrics writes .jsonl"),
    "trainers": (lambda graph, at: bs.train(graph, **SMALL, method="super-tma", trainers=5), "tolerate_failures", "--tolerate-failures"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_python_hears_of_arguments_and_the_command_line_of_flags(name, places):
    call, said, shown = REFUSED[name]
    with pytest.raises(bs.UsageError, match=re.escape(said)) as refused:
        call(*places)
    text = str(refused.value)
    assert not FLAG.search(text), text
    assert shown in name_flags(text)
