"""The tables and JSON files that commands write."""

import pytest

from bulksample.cli.output import emit


def test_brackets_are_printed_unchanged(capsys):
    emit({"missing": "pip install 'bulksample[cuda]'", "of": {"a": "[b]"}}, None, "train [x]")
    out = capsys.readouterr().out
    for words in ("'bulksample[cuda]'", "[b]", "train [x]"):
        assert words in out


def test_nested_numbers_share_a_row_with_units_and_without_zeros(capsys):
    sent = {"bytes_sent": {"total": 2_794_784, "features": 0}, "phases": {"sample": 0.00259}, "messages_sent": {"total": 0}}
    emit({**sent, "fetch_seconds": None}, None, "train")
    out = capsys.readouterr().out
    for words in ("total 2.79 MB", "sample 2.59 ms"):
        assert words in out
    assert out.count("none") == 2
    assert "features" not in out


def test_configuration_and_environment_are_in_the_file_only(capsys, tmp_path):
    emit({"loss": 0.5, "config": {"lr": 0.1}, "environment": {"python": "3"}}, tmp_path / "r.json", "train")
    out = capsys.readouterr().out
    assert "loss" in out
    assert "lr" not in out
    assert '"lr": 0.1' in (tmp_path / "r.json").read_text()


def test_a_digest_is_printed_whole(capsys):
    emit({"digest": "0123456789abcdef" * 8}, None, "sample")
    shown = "".join(line.split("│")[-2].strip() for line in capsys.readouterr().out.splitlines() if "│" in line)
    assert shown == "0123456789abcdef" * 8


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0 us"), (0.5, "500 ms"), (75.25, "75.2 s"), (4000, "4,000 s")])
def test_seconds_have_a_unit(capsys, seconds, shown):
    emit({"seconds": float(seconds)}, None, "train")
    assert f" {shown} " in capsys.readouterr().out
