"""Sentences on a terminal: no word is broken at its edge, and what is piped is left alone."""

import sys

import pytest

from fedskew.cli.terminal.progress import note, say, say_written

TEXT = "written: " + ", ".join(f"comparison/figure{number}.png" for number in range(6))


@pytest.mark.parametrize("err", [False, True])
def test_a_terminal_breaks_no_word(capsys, monkeypatch, err):
    monkeypatch.setattr(sys.stderr if err else sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    say(TEXT, err=err)
    lines = (capsys.readouterr().err if err else capsys.readouterr().out).splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 40
    assert " ".join(lines) == TEXT


def test_a_word_longer_than_the_terminal_stays_whole(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "20")
    note("a/folder/with-a-name/longer-than-the-terminal is missing")
    assert "a/folder/with-a-name/longer-than-the-terminal" in capsys.readouterr().err.splitlines()


def test_elsewhere_a_sentence_is_one_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    say_written(f"comparison/figure{number}.png" for number in range(6))
    assert capsys.readouterr().out == f"{TEXT}\n"
