"""Where runs come from: their fields, the versions they were computed with, the command that repeats them."""

import shlex
from typing import Any

from fedskew.report.page.entries import Entry
from fedskew.report.page.federations import OWN_FIELDS, Federation
from fedskew.report.page.html import Html, cell, head, table, tag


def provenance(federation: Federation) -> Html:
    """The fields that all runs share, then those that differ."""
    rows = [[head(name), cell(_shown(value))] for name, value in federation.fields.items()]
    versions = sorted({entry.result_version for entry in federation.entries})
    rows.append([head("result version"), cell(", ".join(map(str, versions)))])
    shared = table("Fields that all runs of this federation share", ["field", "value"], rows)
    each = [_of_run(entry) for entry in federation.entries]
    runs = f"Settings, runs and the commands that make them again ({len(each)})"
    return tag(
        "section",
        tag("h3", "Provenance"),
        tag("details", tag("summary", runs), shared, tag("div", each, class_="runs"), class_="provenance"),
    )


def command(run: dict[str, Any]) -> str:
    """`fedskew run` with every field of the run."""
    words = ["fedskew", "run"]
    for name, value in run.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def sessions(entry: Entry) -> list[str]:
    """A line for each process that worked on the run; lines that say the same appear once."""
    lines = []
    for session in entry.sessions:
        known = {name: value for name, value in session.items() if value not in (None, {}, "")}
        lines.append(", ".join(f"{name} {value}" for name, value in known.items()))
    return list(dict.fromkeys(lines))


def _of_run(entry: Entry) -> Html:
    own = {name: value for name, value in entry.run.items() if name in OWN_FIELDS}
    partition = entry.card["hash"] if entry.card else None
    done = f"{entry.summary['rounds']} of {entry.run['rounds']} rounds" + (", has gone further" if entry.cut else "")
    facts = {"run": entry.hash, **own, "partition hash": partition, "state": f"{entry.state}, {done}"}
    listed = [[tag("dt", name), tag("dd", _shown(value))] for name, value in facts.items()]
    where = [[tag("dt", "computed with"), tag("dd", line)] for line in sessions(entry)]
    title = [tag("code", entry.hash[:8]), f" {entry.method}, seed {entry.run['seed']}"]
    mark = tag("span", f" {entry.state}", class_="state") if entry.state != "done" else None
    again = tag("pre", tag("code", command(entry.run)), tabindex=0, aria_label="Command that repeats the run")
    return tag("details", tag("summary", title, mark), tag("dl", listed, where), again)


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)
