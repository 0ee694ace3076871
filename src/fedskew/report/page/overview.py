"""Methods by federations: one table over all sections, for the page and for a paper."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from fedskew.core import spec
from fedskew.report.page.federations import Federation, Method
from fedskew.report.page.html import Html, cell, head, table, tag
from fedskew.report.result_table import BOLD, accuracy_tex, commented, mark_of, marks_text
from fedskew.report.text_tables import tex
from fedskew.runs.summary import mean_words, percent
from fedskew.runs.verdict import BASELINE, MEASURE, VERDICTS, best

_MOST_ACROSS, _MOST_FIELDS = 6, 2
_Cell = TypeVar("_Cell")
_MARKS = dict(zip(VERDICTS, "▲▼=?○", strict=True))


def overview(federations: Sequence[Federation]) -> Html:
    """The mean of the last ten rounds of methods in federations, with a mark for how each stands to FedAvg there."""
    names = [tag("a", each.name, href=f"#federation-{i}") for i, each in enumerate(federations)]
    cells = {label: [_standing(each, label) for each in federations] for label in _labels(federations)}
    heads, rows = _laid_out(names, cells, head)
    key = ", ".join(f"{mark} {word}" for word, mark in _MARKS.items())
    key += "; empty: not run" if any(_called(each, label) is None for label in cells for each in federations) else ""
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
    cells = {label: [_standing_tex(each, label) for each in federations] for label in _labels(federations)}
    heads, rows = _laid_out(_short_names(federations), cells, tex)
    said = [f"{_measure(federations)}: mean and standard deviation over seeds. {BOLD}", marks_text(_base(federations))]
    return commented(heads, rows, said)


def _standing_tex(federation: Federation, label: str) -> str:
    method = _called(federation, label)
    if method is None:
        return ""
    leader = best([each.row for each in federation.methods], MEASURE)
    bold = leader is not None and federation.methods[leader] is method
    return f"{accuracy_tex(method.row[MEASURE], bold=bold)} {mark_of(federation.difference(method))}".rstrip()


def _short_names(federations: Sequence[Federation]) -> list[str]:
    """`dirichlet:0.1`, `iid`: the one or two fields that are not the same everywhere; the names of sections where these
    are more, or not enough."""
    fields = dict.fromkeys(name for each in federations for name in each.fields if not name.endswith("_content"))
    differing = [name for name in fields if len({str(each.fields.get(name)) for each in federations}) > 1]
    names = [", ".join(_said(each, name) for name in differing) for each in federations]
    enough = len(differing) <= _MOST_FIELDS and len(set(names)) == len(names)
    return names if enough else [each.name for each in federations]


def _said(federation: Federation, field: str) -> str:
    """A spec in short, another field with its name."""
    short = federation.entries[0].short.get(field)
    return short or f"{field.replace('_', ' ')} {spec.show(federation.fields.get(field))}"


def _labels(federations: Sequence[Federation]) -> list[str]:
    """All methods, in order."""
    return list(dict.fromkeys(method.label for federation in federations for method in federation.methods))


def _called(federation: Federation, label: str) -> Method | None:
    return next((method for method in federation.methods if method.label == label), None)


def _laid_out(
    names: Sequence[str], cells: Mapping[str, Sequence[_Cell]], named: Callable[[str], _Cell]
) -> tuple[list[str], list[list[_Cell]]]:
    """Methods by federations, or where there are many and more of those the other way round: heads and rows."""
    if len(names) <= max(_MOST_ACROSS, len(cells)):
        return ["method", *names], [[named(label), *row] for label, row in cells.items()]
    turned = zip(names, zip(*cells.values(), strict=True), strict=True)
    return ["federation", *cells], [[named(name), *row] for name, row in turned]


def _measure(federations: Sequence[Federation]) -> str:
    return f"Accuracy, {mean_words(federation.rounds for federation in federations)}, %"


def _base(federations: Sequence[Federation]) -> str:
    """What FedAvg is called."""
    return next((each.base_label for each in federations if each.baseline), BASELINE)
