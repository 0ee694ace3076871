"""The pages of the paper's figures and of the map."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from docs.pages.claims import listed
from fedskew.paper import FIGURES, mapped
from fedskew.paper.choice import Choice
from fedskew.paper.formats import behind
from fedskew.paper.map import TAUS, Map
from fedskew.paper.map_text import sentences
from fedskew.paper.trained import CELL
from fedskew.report.text_tables import as_markdown
from fedskew.runs.results import Results

FOLDER = "../figures"
_REMARKS = {
    "figure5": (
        "Twelve classes of Tiny-ImageNet, 6,000 images for training and 600 for testing, so that one standard error of "
        "an accuracy of 25 % is 1.8 points. The paper names neither its classes nor its images."
    )
}


def figures(results: Results, folder: Path) -> Iterator[str]:
    """Every figure with its measurements and runs; pictures that lie in the folder are shown."""
    yield "# The paper's figures"
    for figure in FIGURES.values():
        yield f"## Figure {figure.name.removeprefix('figure')}: {figure.title}"
        if not (folder / f"{figure.name}.png").exists():
            yield f"Not measured yet; `fedskew paper run {figure.name}` measures it."
            continue
        yield f"![{figure.title}]({FOLDER}/{figure.name}.png)"
        if remark := _REMARKS.get(figure.name):
            yield remark
        rows = figure.rows(results) if figure.runs() else []
        if rows and (lines := figure.lines(rows)):
            yield "\n".join(["```text", *lines, "```"])
            yield "\n".join(behind(rows, results))


def around(results: Results, folder: Path) -> Iterator[str]:
    """The map around one cell, with the values of tau that have been run."""
    yield f"# The map around {CELL}"
    asked = Map(mapped(CELL), CELL)
    rows = asked.rows(results, Choice())
    if not rows:
        return
    taus = asked.known_taus(Choice(), results.only(rows[0]["precision"]))
    absent = [f"{tau:g}" for tau in TAUS if tau not in taus]
    yield (
        "What FedLC's gain over FedAvg depends on, one assumption at a time. "
        "These runs are shortened: 100 rounds, or 20 with five or ten local epochs. A tenth of the training examples "
        "is held out and clients train on the rest; the margin is chosen on the held-out examples, and the test set "
        f"is only reported. Device {rows[0]['device']}, {rows[0]['precision']}. Each setting has one seed, which "
        "decides nothing. Accuracies below are means of the last ten rounds."
        + (f" Of the usual values of tau, {listed(absent)} were not run." if absent else "")
    )
    if (folder / "map.png").exists():
        yield f"![FedLC minus FedAvg over the assumptions]({FOLDER}/map.png)"
    yield "\n".join(f"- {line}" for line in sentences(rows))
    yield _map_table(rows)
    shown = ",".join(f"{tau:g}" for tau in taus)
    yield f"`fedskew paper map --cell {CELL} --taus {shown} --device cuda --precision bf16` does these runs."


def _map_table(rows: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        test = ["diverged", row["diverged"]] if row["test"] is None else [f"{row[n]:.2f}" for n in ("test", "last_ten")]
        shown = [row["setting"], f"`{row['algorithm']}`", f"{row['validation']:.2f}", *test, row["rounds"], row["hash"]]
        lines.append([str(value) for value in shown])
    heads = ("setting", "method", "held out %", "test %", "last ten %", "rounds", "run")
    return "\n".join(as_markdown(heads, lines))
