"""Every command prints with `--json` exactly what its type in `cli/documents.py` says, so docs/json.md is true."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import ConfigDict, TypeAdapter, ValidationError

from docs.pages.json_page import DOCUMENTS
from fedskew.cli.document_parts import Reach
from fedskew.cli.entry import app
from tests.cli.calling import call

DIGITS = ("--dataset", "digits", "--clients", "3", "--batch-size", "64")
SHORT = (*DIGITS, "--rounds", "2")
STAND_IN = ("--stand-in", "--rounds", "2")
CELL = ("--cells", "cifar10/dirichlet:0.5", "--methods", "fedavg,fedlc")
EXACTLY = ConfigDict(strict=True, extra="forbid")
CALLS = {
    "run": (*SHORT,),
    "compare": (*SHORT, "--algorithm", "fedavg,fedlc", "--seeds", "2", "--iid", "--target", "0.05"),
    "sweep": (*SHORT, "--algorithm", "fedlc", "--tau", "1,2", "--seeds", "2"),
    "tune": (*SHORT, "--algorithm", "fedavg,fedlc", "--budget", "2", "--seeds", "1"),
    "inspect": (*DIGITS[:4], "--out", "split.png"),
    "methods": (),
    "advise": ("card.json",),
    "report": (),
    "paper run": ("table1", *STAND_IN, "--seeds", "2", *CELL),
    "paper show": ("table1", "--stand-in", *CELL, "--target", "0.05"),
    "paper list": (),
    "paper map": (*STAND_IN, "--taus", "1", "--part", "margin"),
    "runs list": (),
    "runs show": ("RUN",),
    "export": ("RUN", "model.safetensors"),
    "runs condense": ("lines.jsonl",),
    "runs remove": ("RUN",),
    "data list": (),
    "data verify": (),
    "data fetch": ("cifar10",),
    "flower init": ("app",),
    "flower certificates": ("keys", "--nodes", "1"),
}
"""In an order in which each finds what it needs in the one store."""


def problems(document: Any, text: str) -> str:
    """In what a text is not a document: keys that are missing or too many, and values of other types."""
    try:
        TypeAdapter(list[document], config=EXACTLY).validate_json(f"[{text}]")
    except ValidationError as error:
        return str(error)
    return ""


def test_every_command_has_a_document() -> None:
    commands = typer.main.get_command(app)
    groups = {"": commands, **{name: each for name, each in commands.commands.items() if hasattr(each, "commands")}}
    named = {f"{group} {name}".strip() for group, of in groups.items() for name in of.commands} - set(groups)
    assert named - {"diagnose"} == set(DOCUMENTS) == set(CALLS)


def test_commands_print_their_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSKEW_RUNS", raising=False)
    monkeypatch.setenv("FEDSKEW_DATA", str(tmp_path))
    monkeypatch.setattr("fedskew.data.fetch.fetch", lambda *_: [tmp_path / "cifar-10-binary.tar.gz"])
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"cut short")
    printed: dict[str, str] = {}
    for command, arguments in CALLS.items():
        if command.startswith("flower") and find_spec("flwr") is None:
            continue
        words = [json.loads(printed["run"])["run_hash"] if word == "RUN" else word for word in arguments]
        if command == "advise":
            Path("card.json").write_text(printed["inspect"])
        if command == "runs list":
            damaged = json.loads(printed["sweep"])["rows"][0]["runs"][0]
            Path("runs", damaged, "records.jsonl").write_text("not JSON\n")
        _, printed[command], err = call(capsys, *command.split(), *words, "--json")
        assert printed[command].strip() not in ("", "[]", "{}"), (command, err)
    found = {command: problems(DOCUMENTS[command], text) for command, text in printed.items()}
    assert {command: text for command, text in found.items() if text} == {}
    ours = [row["ours"] for row in json.loads(printed["paper show"])["rows"]]
    compared, advice = json.loads(printed["compare"])["rows"], json.loads(printed["advise"])
    assert all(ours)
    assert ours[1]["gain"]
    assert compared[1]["against_baseline"]
    assert compared[1]["rounds_to_reach"]
    assert compared[1]["iid"]
    assert any(run["state"] == "unreadable" for run in json.loads(printed["runs list"]))
    assert advice["own"]
    assert advice["evidence"]


def test_what_is_not_a_document_is_found() -> None:
    reach = {"rounds": None, "reached": 0, "seeds": 2}
    assert problems(dict[str, list[Reach]], json.dumps({"a": [reach]})) == ""
    for wrong in ({**reach, "more": 1}, {"rounds": 1, "reached": 0}, {**reach, "seeds": "2"}):
        assert problems(dict[str, list[Reach]], json.dumps({"a": [reach, wrong]}))
