"""Results as a paper shows them: one compact LaTeX table, and what a CSV says about a difference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedskew.report.text_tables import tabular, tex
from fedskew.runs.summary import held_out, percent
from fedskew.runs.verdict import MEASURE, VERDICTS, Difference, best

MARKS = dict(zip(VERDICTS, (r"$\uparrow$", r"$\downarrow$", "$=$", "?", r"$\cdot$"), strict=True))
"""For a verdict, in what every LaTeX has."""
NOTHING = "--"
DIFFERENCE_COLUMNS = ("difference_points", "difference_half_points", "difference_seeds", "verdict")


def difference_values(found: Mapping[str, Any] | None) -> list[Any]:
    """Under `DIFFERENCE_COLUMNS`: a judged difference as `Difference.as_dict` has it."""
    return [None if found is None else found[name] for name in ("mean", "half", "seeds", "verdict")]


@dataclass(frozen=True)
class ResultTable:
    """A line per row of `over_seeds`. `cells`, under `heads`, say what each row is; `measures` are shown under their
    names. Differences are to `base`. `runs` are the hashes behind each row, if they are known."""

    heads: Sequence[str]
    cells: Sequence[Sequence[str]]
    rows: Sequence[Mapping[str, Any]]
    measures: Mapping[str, str]
    differences: Sequence[Difference | None]
    base: str
    runs: Sequence[Sequence[str]] = ()

    def latex(self) -> str:
        """For booktabs, with comments that say what a caption should; the best by the verdict rule is bold."""
        judged = any(self.differences)
        apart = [f"difference to {self.base} (points)", ""] if judged else []
        heads = [*self.heads, *(f"{name} (%)" for name in self.measures.values()), *apart]
        leaders = {measure: best(self.rows, measure) for measure in self.measures}
        lines = []
        for i, (row, difference) in enumerate(zip(self.rows, self.differences, strict=True)):
            line = [tex(cell) for cell in self.cells[i]]
            line[0] += f" ({row['diverged']} diverged)" if row["diverged"] else ""
            line += [accuracy_tex(row[measure], bold=leaders[measure] == i) for measure in self.measures]
            lines.append([*line, difference_tex(difference), mark_of(difference)] if judged else line)
        said = [_seeds(self.rows), *([BOLD] if set(leaders.values()) != {None} else [])]
        said += [f"{_paired(self.differences)} {marks_text(self.base)}"] if judged else []
        said += self._made_of() if self.runs else []
        return "\n".join([*comments(said), *tabular(heads, lines)]) + "\n"

    def _made_of(self) -> list[str]:
        """The runs of each row, by what it is."""
        rows = (zip(self.heads, cells, strict=True) for cells in self.cells)
        named = [", ".join(f"{head} {cell}" for head, cell in row) for row in rows]
        told = [f"{name}: {' '.join(hashes)}" for name, hashes in zip(named, self.runs, strict=True)]
        return ["Made of these runs (`fedskew runs show` has the settings of each):", *told]


def method_latex(
    names: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    end: str,
    differences: Sequence[Difference | None],
    base: str,
    runs: Sequence[Sequence[str]] = (),
) -> str:
    """A line per method: what verdicts are about, and the verdict."""
    cells = [[name] for name in names]
    return ResultTable(["method"], cells, rows, shown_measures(rows, end), differences, base, runs).latex()


def shown_measures(rows: Sequence[Mapping[str, Any]], end: str) -> dict[str, str]:
    """What verdicts are about, accuracy at the `end` of runs, and on held-out examples if there are some, each with its
    name."""
    return {MEASURE: f"accuracy, {end}", **dict.fromkeys(held_out(rows), "held out")}


BOLD = "Bold: above every other by the rule of the verdicts."


def comments(said: Sequence[str]) -> list[str]:
    """Lines that LaTeX does not print; the first says which package the table needs."""
    return [f"% {' '.join(line.split())}" for line in (r"\usepackage{booktabs}", *said)]


def marks_text(base: str) -> str:
    """What the marks mean."""
    return f"Against {base}: {', '.join(f'{mark} {word}' for word, mark in MARKS.items())}."


def _paired(differences: Sequence[Difference | None]) -> str:
    known = any(found and found.interval for found in differences)
    return f"Differences are paired by seed{', with their 95 % intervals' if known else ''}."


def _seeds(rows: Sequence[Mapping[str, Any]]) -> str:
    """`Mean and standard deviation over 2 to 3 seeds.`"""
    counts = [sum(value is not None for value in row[MEASURE]["each"]) for row in rows]
    least, most = min(filter(None, counts), default=0), max(counts)
    if most < 2:
        return "One seed." if most else "No run is finished."
    return f"Mean and standard deviation over {most if least == most else f'{least} to {most}'} seeds."


def accuracy_tex(spread: Mapping[str, float | None], *, bold: bool) -> str:
    """`69.55 $\\pm$ 0.42`, in percent."""
    if spread["mean"] is None:
        return NOTHING
    text = tex(percent(spread["mean"], spread["std"]))
    return f"\\textbf{{{text}}}" if bold else text


def difference_tex(found: Difference | None) -> str:
    """`$+6.00$ $[+3.52, +8.48]$`; without an interval if seeds are too few."""
    if found is None:
        return NOTHING
    return f"${found.mean:+.2f}$" + (f" ${found.interval}$" if found.interval else "")


def mark_of(found: Difference | None) -> str:
    return "" if found is None else MARKS[found.verdict]
