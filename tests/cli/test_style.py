"""`--style` of every command that draws."""

import pytest

from tests.cli.calling import call

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own")

RUN = ["--dataset", "digits", "--clients", "3", "--rounds", "1", "--model", "logistic"]
METHODS = ["--algorithm", "fedavg,fedlc"]
DRAWING = {
    "compare": [*RUN, *METHODS],
    "sweep": [*RUN, "--lr", "0.1,0.2"],
    "tune": [*RUN, *METHODS, "--budget", "1", "--seeds", "1"],
    "inspect": [*RUN[:4], "--out", "split.png"],
}


@pytest.mark.parametrize("command", [*DRAWING, "report", "diagnose 3fa9", "paper show figure4", "paper map"])
def test_an_unknown_style_is_refused_before_any_work(capsys, tmp_path, command):
    code, out, err = call(capsys, *command.split(), *DRAWING.get(command, []), "--style", "poster")
    assert (code, out) == (2, "")
    assert "style is 'poster'; allowed: screen, paper" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", DRAWING)
def test_for_a_paper_every_figure_is_one_pdf(capsys, tmp_path, command):
    assert call(capsys, command, *DRAWING[command], "--style", "paper", "--quiet")[0] == 0
    kinds = {path.suffix for path in tmp_path.rglob("*") if path.is_file() and "runs" not in path.parts}
    assert ".pdf" in kinds
    assert not kinds & {".png", ".svg"}


def test_a_diagnosis_for_a_paper(capsys, tmp_path):
    hash = call(capsys, "run", *RUN, "--quiet")[1].split()[1]
    assert call(capsys, "diagnose", hash, "--out", "diagnosis", "--style", "paper", "--quiet")[0] == 0
    made = {path.name for path in (tmp_path / "diagnosis").iterdir()}
    assert {"diagnosis.json", "reliability.pdf", "before_after.pdf"} <= made
    assert not [name for name in made if name.endswith((".png", ".svg"))]
