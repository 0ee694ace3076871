"""Methods by federations: one table over all sections, for the page and for a paper."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from fedskew.core import spec
from fedskew.report.page.federations import Federation, Method
from fedskew.report.page.html import Html, cell, head, table, tag
from fedskew.report.result_table import BOLD, accuracy_tex, comments, mark_of, marks_text
from fedskew.report.text_tables import tabular, tex
from fedskew.runs.summary import mean_words, percent
from fedskew.runs.verdict import BASELINE, MEASURE, VERDICTS, best

_MOST_ACROSS = 6
_Cell = TypeVar("_Cell")
_MARKS = dict(zip(VERDICTS, "▲▼=?·", strict=True))


def overview(federations: Sequence[Federation]) -> Html:
    """Methods by federations, or where there are many and more of those the other way round: the mean of the last ten
    rounds, with a mark for how the method stands to FedAvg there."""
    labels = _labels(federations)
    names = [tag("a", each.name, href=f"#federation-{i}") for i, each in enumerate(federations)]
    cells = {label: [_standing(federation, label) for federation in federations] for label in labels}
    if len(federations) <= max(_MOST_ACROSS, len(labels)):
        heads, rows = ["method", *names], [[head(label), *cells[label]] for label in labels]
    else:
        heads, rows = ["federation", *labels], _turned([head(name) for name in names], cells)
    key = ", ".join(f"{mark} {word}" for word, mark in _MARKS.items())
    return table(f"{_measure(federations)}. Against {_base(federations)}: {key}", heads, rows, "overview")


def _standing(federation: Federation, label: str) -> Html:
    method = _called(federation, label)
    if method is None:
        return cell("")
    text = percent(method.row[MEASURE]["mean"], method.row[MEASURE]["std"])
    difference = federation.difference(method)
    if difference is None:
        return cell(text)
    word = difference.verdict
    decided = word if word in ("above", "below") else "undecided"
    mark = tag("span", f" {_MARKS[word]}", tag("span", f" {word}", class_="hidden"), class_="mark", title=word)
    return cell(text, mark, class_=decided)


def overview_latex(federations: Sequence[Federation]) -> str:
    """The same for booktabs. A federation is called by what it differs in from the others."""
    labels, names = _labels(federations), _short_names(federations)
    cells = {label: [_standing_tex(federation, label) for federation in federations] for label in labels}
    if len(federations) <= max(_MOST_ACROSS, len(labels)):
        heads, rows = ["method", *names], [[tex(label), *cells[label]] for label in labels]
    else:
        heads, rows = ["federation", *labels], _turned([tex(name) for name in names], cells)
    said = [f"{_measure(federations)}: mean and standard deviation over seeds. {BOLD}", marks_text(_base(federations))]
    return "\n".join([*comments(said), *tabular(heads, rows)]) + "\n"


def _standing_tex(federation: Federation, label: str) -> str:
    method = _called(federation, label)
    if method is None:
        return ""
    leader = best([each.row for each in federation.methods], MEASURE)
    bold = leader is not None and federation.methods[leader] is method
    return f"{accuracy_tex(method.row[MEASURE], bold=bold)} {mark_of(federation.difference(method))}".rstrip()


def _short_names(federations: Sequence[Federation]) -> list[str]:
    """`dirichlet:0.1`, `iid`: the fields that are not the same everywhere; whole names if these were not enough."""
    fields = dict.fromkeys(name for each in federations for name in each.fields)
    differing = [name for name in fields if len({str(each.fields.get(name)) for each in federations}) > 1]
    names = [", ".join(_said(each, name) for name in differing) for each in federations]
    return names if len(set(names)) == len(names) else [each.name for each in federations]


def _said(federation: Federation, field: str) -> str:
    """A spec in short, another field with its name."""
    short = federation.entries[0].short.get(field)
    return short or f"{field.replace('_', ' ')} {spec.show(federation.fields.get(field))}"


def _labels(federations: Sequence[Federation]) -> list[str]:
    """All methods, in order."""
    return list(dict.fromkeys(method.label for federation in federations for method in federation.methods))


def _called(federation: Federation, label: str) -> Method | None:
    return next((method for method in federation.methods if method.label == label), None)


def _turned(names: Sequence[_Cell], cells: Mapping[str, Sequence[_Cell]]) -> list[list[_Cell]]:
    """Federations as rows."""
    return [[name, *row] for name, row in zip(names, zip(*cells.values(), strict=True), strict=True)]


def _measure(federations: Sequence[Federation]) -> str:
    return f"Accuracy, {mean_words(federation.rounds for federation in federations)}, %"


def _base(federations: Sequence[Federation]) -> str:
    """What FedAvg is called."""
    return next((each.base_label for each in federations if each.baseline), BASELINE)
