"""Write the pages and parts of pages that follow results, methods and modules: `make reproduction`.

With `--figures` the pictures are drawn first, as far as their measurements are there (`make figures`)."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

from fedskew.algorithms import describe
from fedskew.cli.options import RUN_OPTIONS, Algorithm
from fedskew.paper import FIGURES, mapped
from fedskew.paper.choice import Choice
from fedskew.paper.map import Map
from fedskew.paper.trained import CELL
from fedskew.report.text_tables import as_markdown
from fedskew.runs.results import Results, read_lines

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
from benchmarks import gpu_tables  # noqa: E402
from benchmarks.summary import sources, summary  # noqa: E402
from benchmarks.tables import TABLES, loading  # noqa: E402
from docs.pages import choosing, front, readouts, small_data  # noqa: E402
from docs.pages.json_page import page as json_page  # noqa: E402
from docs.pages.reproduction import between, reproduction  # noqa: E402
from tests.helpers.rooms import picture  # noqa: E402


def part(page: str, name: str, text: str) -> str:
    """A page with the part of this name made anew."""
    return between(page, text, (f"<!-- {name}: make reproduction -->", f"<!-- end of {name} -->"))


def with_methods(page: str) -> str:
    """A page with its table of registered methods made anew."""
    rows = [f"| `{m.spec}` | {', '.join(m.sets) or 'nothing'} | {m.about} |" for m in describe()]
    table = "\n".join(["| method | sets | what it does |", "| --- | --- | --- |", *rows])
    return part(page, "methods", table)


def with_parts(page: str) -> str:
    """A page with its list of methods, by the part that they set, made anew."""
    by_part: dict[str, list[str]] = {}
    for method in describe():
        for name in method.sets:
            by_part.setdefault(name, []).append(f"`{method.name}`")
    told = " · ".join(f"**{name}** {', '.join(methods)}" for name, methods in by_part.items())
    return part(page, "methods", f"A method is the part of FedAvg that it changes: {told}")


def with_options(page: str) -> str:
    """The page on the command line with its table of a run's options made anew."""
    texts = {"algorithm": str(get_args(Algorithm)[1].help), **{name: text for name, (_, text) in RUN_OPTIONS.items()}}
    rows = []
    for name, text in texts.items():
        meaning, _, default = text.removesuffix("]").partition("[default: ")
        rows.append([f"`--{name.replace('_', '-')}`", meaning.strip(), default])
    return part(page, "options", "\n".join(as_markdown(["option", "meaning", "default"], rows)))


def with_speed(page: str, results: Path) -> str:
    """The page on performance with its generated tables made anew."""
    whole = {"summary": summary, "sources": sources, "loading": loading}
    tables: dict[str, Callable[[Path], str]] = {**TABLES, **gpu_tables.TABLES, **whole}
    for name, table in tables.items():
        page = part(page, name, table(results))
    return page


def _files(root: Path, folder: str) -> list[Path]:
    return sorted((root / "results" / folder).glob("*.jsonl"))


def pages(root: Path) -> dict[Path, str]:
    """The text of each page that is generated."""
    results = Results(None, root / "results" / "paper")
    tuned = Results(None, root / "results" / "tuned")
    if problems := [*results.problems, *tuned.problems]:
        raise SystemExit("\n".join(problems))
    repairs = [json.loads(line) for file in _files(root, "repairs") for line in file.read_text().splitlines()]
    again = [path for folder in ("repeats", "travel", "tuned", "digits") for path in _files(root, folder)]
    repeats = [line for path in again for line in read_lines(path)]
    held = [read_lines(root / "results" / folder / "held_out.jsonl") for folder in ("readout", "tau")]
    drawn = read_lines(root / "results" / "readout" / "shapes.jsonl")
    digits = [line for path in _files(root, "digits") for line in read_lines(path)]
    names = "design", "which-method", "performance", "algorithms", "cli"
    design, which, speed, equations, commands = (root / "docs" / f"{name}.md" for name in names)
    readme = root / "README.md"
    written = reproduction(results, root / "docs" / "figures", repeats, tuned, repairs, *held)
    return {
        design: part(design.read_text(), "rooms", picture()),
        **{root / "docs" / name: text for name, text in written.items()},
        root / "docs" / "tables" / "digits.md": small_data.page(digits),
        root / "docs" / "json.md": json_page(),
        commands: with_options(commands.read_text()),
        root / "docs" / "tables" / "verdicts.md": choosing.page(results, tuned),
        which: with_methods(which.read_text()),
        equations: part(
            part(equations.read_text(), "fedvls", choosing.suppressed(results)), "readout", readouts.table(drawn)
        ),
        speed: with_speed(speed.read_text(), root / "results"),
        readme: with_parts(between(readme.read_text(), front.part(results, "docs/figures", digits, tuned, drawn))),
    }


def draw(root: Path, data_dir: str | None) -> list[Path]:
    """Every figure whose measurements are there; figure 4 needs CIFAR-10's labels."""
    results, folder = Results(None, root / "results" / "paper"), root / "docs" / "figures"
    made = []
    for figure in FIGURES.values():
        try:
            rows = figure.rows(results, Choice(fields={"data_dir": data_dir}))
            made += figure.draw(rows, folder / figure.name, figure.title)
        except (ValueError, FileNotFoundError) as error:
            print(f"not drawn: {error}")
    asked = Map(mapped(CELL), CELL)
    made += front.draw(results, folder)
    return [*made, *asked.draw(asked.rows(results, Choice()), folder / "map")]


if __name__ == "__main__":
    if "--figures" in sys.argv:
        for path in draw(ROOT, os.environ.get("FEDSKEW_DATA")):
            print(f"drawn: {path.relative_to(ROOT)}")
    for path, text in pages(ROOT).items():
        path.write_text(text)
        print(f"written: {path.relative_to(ROOT)}")
