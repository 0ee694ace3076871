"""Sentences on a terminal: no word is broken at its edge, and what is piped is left alone."""

import shlex
import sys

import pytest

from fedskew.cli.terminal.progress import note, say, say_command, say_fields, say_written

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


def test_lines_after_the_first_stay_under_an_indented_one(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    say(f"  {TEXT}")
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("  written")
    assert {len(line) - len(line.lstrip()) for line in rest} == {4}


def test_values_stay_in_their_column(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    say_fields([("engine", "stacked on cpu: the cohort as one tensor program"), ("kept in", "runs/3fa9")])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["engine   stacked on cpu: the cohort as", "         one tensor program", "kept in  runs/3fa9"]
    monkeypatch.setenv("COLUMNS", "20")
    say_fields([("a name longer than half", "of the terminal")])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 20
    say_fields([("hash", "12a535f97c358f0c972e0deb14fd235d")])
    assert capsys.readouterr().out == "hash  12a535f97c358f0c972e0deb14fd235d\n"


def test_a_command_in_a_sentence_is_not_broken(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    say("to choose a setting, use `fedskew tune --validation 0.1` or look at `fedskew runs list`")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2
    assert all(line.count("`") % 2 == 0 for line in lines)


def test_a_number_keeps_its_percent_sign(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for columns in range(20, 40):
        monkeypatch.setenv("COLUMNS", str(columns))
        say("FedLC, 10.70 %, against FedAvg, 11.27 %, or 12.11 %")
    assert not any(line.startswith("%") for line in capsys.readouterr().out.splitlines())


WORDS = ["fedskew", "compare", "--dataset", "folder:my data; rm x", "--algorithm", "fedavg,fedla+fedacg+refit", "-q"]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_command_can_be_copied_and_breaks_no_word(capsys, monkeypatch, terminal):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("COLUMNS", "45")
    say_command(WORDS)
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert (len(lines) > 2) == terminal
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert not any(line.endswith(("--dataset \\", "--algorithm \\")) for line in lines)
    assert not terminal or max(map(len, lines)) <= 45
    assert shlex.split(out.replace("\\\n", "")) == WORDS
