"""Results as a paper shows them: one compact LaTeX table, and what a CSV says about a difference."""

from collections.abc import Mapping, Sequence
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


def result_latex(
    heads: Sequence[str],
    cells: Sequence[Sequence[str]],
    rows: Sequence[Mapping[str, Any]],
    measures: Mapping[str, str],
    differences: Sequence[Difference | None],
    base: str,
    runs: Sequence[Sequence[str]] = (),
) -> str:
    """For booktabs, with comments that say what a caption should; the best by the verdict rule is bold.

    A line per row of `over_seeds`. `cells`, under `heads`, say what each row is; `measures` are shown under their
    names. Differences are to `base`. `runs` are the hashes behind each row, if they are known.
    """
    judged = any(differences)
    apart = [f"difference to {base} (points)", ""] if judged else []
    leaders = {measure: best(rows, measure) for measure in measures}
    lines = []
    for i, (row, difference) in enumerate(zip(rows, differences, strict=True)):
        line = [tex(cell) for cell in cells[i]]
        line[0] += f" ({row['diverged']} diverged)" if row["diverged"] else ""
        line += [accuracy_tex(row[measure], bold=leaders[measure] == i) for measure in measures]
        lines.append([*line, difference_tex(difference), mark_of(difference)] if judged else line)
    said = [_seeds(rows), *([BOLD] if set(leaders.values()) != {None} else [])]
    said += [f"{_paired(differences)} {marks_text(base)}"] if judged else []
    said += _made_of(heads, cells, runs) if runs else []
    return commented([*heads, *(f"{name} (%)" for name in measures.values()), *apart], lines, said)


def _made_of(heads: Sequence[str], cells: Sequence[Sequence[str]], runs: Sequence[Sequence[str]]) -> list[str]:
    """The runs of each row, by what it is."""
    named = [", ".join(f"{head} {cell}" for head, cell in zip(heads, row, strict=True)) for row in cells]
    told = [f"{name}: {' '.join(hashes)}" for name, hashes in zip(named, runs, strict=True)]
    return ["Made of these runs (`fedskew runs show` has the settings of each):", *told]


def shown_measures(rows: Sequence[Mapping[str, Any]], end: str) -> dict[str, str]:
    """What verdicts are about, accuracy at the `end` of runs, and on held-out examples if there are some, each with its
    name."""
    return {MEASURE: f"accuracy, {end}", **dict.fromkeys(held_out(rows), "held out")}


BOLD = "Bold: above every other by the rule of the verdicts."


def commented(heads: Sequence[str], rows: Sequence[Sequence[str]], said: Sequence[str]) -> str:
    """A table under lines that LaTeX does not print; the first says which package it needs."""
    comments = [f"% {' '.join(line.split())}" for line in (r"\usepackage{booktabs}", *said)]
    return "\n".join([*comments, *tabular(heads, rows)]) + "\n"


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
