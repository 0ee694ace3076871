"""The page: a section per federation, the data its scripts draw, styles and scripts, all in one file."""

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedskew import __version__
from fedskew.core.files import write_whole
from fedskew.report.page import tables
from fedskew.report.page.entries import Entry, LeftOut, held_out_words
from fedskew.report.page.federations import Federation, Method, hashes_of
from fedskew.report.page.files import file_name, latex, results_csv
from fedskew.report.page.html import Html, join, prose, tag
from fedskew.report.page.overview import overview
from fedskew.report.page.panels import measured_panels
from fedskew.report.page.provenance import provenance
from fedskew.report.page.series import drawn, partition_of
from fedskew.runs.summary import counted
from fedskew.runs.verdict import RULE

_SCRIPTS = ("svg.js", "saving.js", "curves.js", "reading.js", "heat.js", "main.js")
_TITLE = b"<title>fedskew report</title>"
_HEAD = 4096
"""The title is within so many bytes from the beginning."""
_IN_TITLE = ("dataset", "partition", "clients")
_USUAL = ("model", "rounds", "clients_per_round", "local_epochs", "batch_size", "optimizer", "lr")
DEFAULTS: dict[str, Any] = {
    "momentum": 0.0, "weight_decay": 0.0, "augment": "none", "weighting": "samples", "lr_schedule": "constant",
    "grad_clip": None, "dropout_rate": 0.0, "validation": 0.0, "precision": "fp32",
}  # fmt: skip
"""Of fields that a section names only if they differ; those of `Run`, which waits for torch."""


def write_page(
    path: Path,
    federations: Sequence[Federation],
    left_out: Sequence[LeftOut] = (),
    held_out: Sequence[Entry] = (),
    store: str = "",
) -> int:
    """Write the page; returns its length in bytes."""
    content = page(federations, left_out, held_out, store).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)
    return len(content)


def check_page(path: Path) -> None:
    """Refuse to replace a file that is not such a page, unless it is empty."""
    if path.is_file():
        with path.open("rb") as file:
            if (head := file.read(_HEAD)) and _TITLE not in head:
                raise ValueError(
                    f"{path} would be lost: `fedskew report` did not write it; move it away, or choose another file "
                    "with --out"
                )


def page(
    federations: Sequence[Federation], left_out: Sequence[LeftOut] = (), held_out: Sequence[Entry] = (), store: str = ""
) -> str:
    """The text of the page, which only counts the runs in `held_out`; `store` is the option that its commands need to
    find the runs, if they need one."""
    runs = len(hashes_of(federations))
    parts = {
        "CSS": _asset("page.css"),
        "THEME": _asset("theme.js"),
        "JS": "\n".join(_asset(name) for name in _SCRIPTS),
        "DATA": as_script([{**drawn(federation), **_texts(federation)} for federation in federations]),
        "SUMMARY": join(f"{counted(runs, 'run')} of {counted(len(federations), 'federation')}, fedskew {__version__}"),
        "LEFT_OUT": _left_out(left_out, store) + _held_out(held_out, store),
        "CONTENTS": overview(federations) if len(federations) > 1 else Html(""),
        "RULE": join(RULE),
        "MAIN": join([_section(number, federation, store) for number, federation in enumerate(federations)]),
    }
    return re.sub("<!--([A-Z_]+)-->", lambda found: parts[found[1]], _asset("template.html"))


def _texts(federation: Federation) -> dict[str, str]:
    """What the buttons copy and download."""
    return {"file": file_name(federation.name), "latex": latex(federation), "csv": results_csv(federation)}


def as_script(data: Any) -> str:
    """JSON that cannot close its script element."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _section(number: int, federation: Federation, store: str) -> Html:
    title = tag("h2", federation.name, id=f"federation-{number}")
    return tag(
        "section",
        title,
        tag("p", _setting(federation), class_="setting"),
        _states(federation.methods),
        [tag("p", prose(line, store)) for line in tables.words(federation)],
        tables.results(federation),
        tag("div", class_="bar", data_texts=number),
        _drawing(number, "curves", "Learning curves"),
        _drawing(number, "heat", "Accuracy per class over rounds"),
        _partition(number, federation),
        measured_panels(federation, store),
        tag("section", tag("h3", "Time"), tables.timing(federation)),
        provenance(federation),
        class_="federation",
        aria_labelledby=f"federation-{number}",
    )


def _setting(federation: Federation) -> str:
    """The usual fields, and all others that are not at their default; the title has data, split and clients."""
    shown = {**federation.fields, "model": federation.entries[0].short["model"]}
    names = [name for name in dict.fromkeys([*_USUAL, *DEFAULTS, *shown]) if name in shown and name not in _IN_TITLE]
    return ", ".join(_field(name, shown[name]) for name in names if (name, shown[name]) not in DEFAULTS.items())


def _field(name: str, value: Any) -> str:
    if name == "validation":
        return f"{100 * value:g} % of the training examples held out"
    return f"{name.replace('_', ' ')} {value}"


def _states(methods: Sequence[Method]) -> Html:
    """What is not whole, in a line."""
    parts = [f"{method.label}: {found}" for method in methods if (found := tables.states(method))]
    return tag("p", f"{'; '.join(parts)}. Such runs are in no mean.", class_="notice") if parts else Html("")


def _drawing(number: int, kind: str, title: str) -> Html:
    """A placeholder that the scripts fill when it comes into view."""
    return tag("section", tag("h3", title), tag("div", class_="drawing", data_kind=kind, data_federation=number))


def _partition(number: int, federation: Federation) -> Html:
    card = partition_of(federation)
    if card is None:
        return Html("")
    skew = ", ".join(
        f"{name.replace('_', ' ')} {value:.3g}" for name, value in card["skew"].items() if value is not None
    )
    text = f"Seed {card['seed']}: {card['samples']} examples of {card['clients']} clients; {skew}"
    inner = tag("div", class_="drawing", data_kind="partition", data_federation=number)
    return tag("section", tag("h3", "Who holds what"), tag("p", text), inner)


def _left_out(left_out: Sequence[LeftOut], store: str) -> Html:
    if not left_out:
        return Html("")
    items = [tag("li", tag("code", each.hash), " ", prose(each.problem, store)) for each in left_out]
    text = f"{counted(len(left_out), 'run')} could not be read:"
    return tag("div", tag("p", text), tag("ul", items), class_="notice")


def _held_out(entries: Sequence[Entry], store: str) -> Html:
    words = held_out_words(entries)
    return tag("p", prose(f"{words}.", store), class_="quiet") if words else Html("")


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")
