"""What commands print."""

from bulksample.cli.output import emit


def test_brackets_are_shown_as_they_are(capsys):
    emit({"missing": "pip install 'bulksample[cuda]'", "of": {"a": "[b]"}}, None, "train [x]")
    out = capsys.readouterr().out
    for words in ("'bulksample[cuda]'", "[b]", "train [x]"):
        assert words in out
