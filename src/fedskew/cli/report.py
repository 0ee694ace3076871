"""`fedskew report`: stored runs as one HTML file."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedskew.cli.options import Json, Quiet, Runs, Target, checked_target, open_store
from fedskew.cli.runs import Where
from fedskew.cli.shared import unreadable
from fedskew.cli.shown_as import Names, Style, display_names
from fedskew.cli.terminal.progress import echo, item_progress, note, print_json
from fedskew.core.files import check_folder
from fedskew.runs.summary import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedskew.cli.documents import Report, ReportedFederation
    from fedskew.report.page.entries import Entry, LeftOut
    from fedskew.report.page.federations import Federation
    from fedskew.runs.store import Folder, Store


def report_command(
    run: Annotated[
        list[str] | None,
        typer.Argument(help="Hashes or their beginnings.  [default: all runs, without tries of `tune`]"),
    ] = None,
    where: Where = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("report.html"),
    figures: Annotated[
        Path | None, typer.Option(help="Also write figures (PNG, PDF) and tables (CSV, LaTeX) to this folder.")
    ] = None,
    target: Target = None,
    display: Names = None,
    style: Style = "screen",
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """Write one self-contained page on runs: tables, curves, maps and provenance.

    Example: fedskew report --where dataset=digits -o report.html
    """
    from fedskew.report.page.federations import federations, hashes_of
    from fedskew.report.page.files import check_files
    from fedskew.report.page.page import check_page, write_page

    store, option = open_store(runs), f" --runs {shlex.quote(runs)}" if runs else ""
    if out.is_dir():
        raise ValueError(f"out is the folder {out}; allowed: a file, for example {out / 'report.html'}")
    check_page(out)
    entries, left_out, held_out = _entries(store, run, where or [])
    called = display_names(display, {entry.method for entry in entries})
    order = [*called] or ([entry.method for entry in entries] if run else [])
    found = federations(entries, checked_target(target), called, order)
    if figures:
        check_folder(figures)
        check_files(figures, found)
    size = write_page(out, found, left_out, held_out, option)
    made = [out]
    if figures:
        made += _draw(figures, found, style, show=not (json_ or quiet))
    if json_:
        document: Report = {
            "file": str(out),
            "bytes": size,
            "runs": hashes_of(found),
            "federations": [_methods_of(federation) for federation in found],
            "left_out": [{"hash": each.hash, "problem": each.problem} for each in left_out],
            "held_out": list(dict.fromkeys(entry.hash for entry in held_out)),
            "notes": {entry.hash: entry.notes for entry in entries if entry.notes},
            "files": [str(path) for path in made],
        }
        print_json(document)
        return
    _print_notes(entries, left_out, held_out, option)
    if quiet:
        echo(str(out))
    else:
        more = f", and {len(made) - 1} files in {figures}" if figures else ""
        echo(
            f"report of {counted(len(hashes_of(found)), 'run')}, {size / 1e6:.1f} MB: {out}{more}; open it in a browser"
        )


def _methods_of(federation: "Federation") -> "ReportedFederation":
    methods = federation.methods
    return {"title": federation.name, "methods": [m.name for m in methods], "names": [m.label for m in methods]}


def _entries(
    store: "Store", hashes: list[str] | None, where: list[str]
) -> "tuple[list[Entry], list[LeftOut], list[Entry]]":
    """The runs to report; those that cannot be read; and those that hold out examples, which are left out unless they
    are named, by hashes or by a condition on `validation`."""
    from fedskew.report.page.entries import part_held_out, read_entries

    folders = {folder.path: folder for folder in (map(store.find, hashes) if hashes else store)}
    entries, left_out = read_entries(_matching([*folders.values()], where))
    if not entries:
        damaged = "".join(f"; {problem}" for problem in unreadable((each.hash, each.problem) for each in left_out))
        raise ValueError(f"there is no run to report in {store.root}{damaged or '; `fedskew run` makes one'}")
    if hashes or any(text.partition("=")[0].strip() == "validation" for text in where):
        return entries, left_out, []
    kept, held_out = part_held_out(entries)
    return kept, left_out, held_out


def _matching(folders: "list[Folder]", where: list[str]) -> "list[Folder]":
    """Those that `fedskew runs list --where` lists."""
    from fedskew.runs.listing import listed, select

    if not (folders and where):
        return folders
    hashes = {row.hash for row in select([listed(folder) for folder in folders], where)}
    if not hashes:
        raise ValueError(f"where is {', '.join(where)}; none of the {len(folders)} runs matches")
    return [folder for folder in folders if folder.path.name in hashes]


def _draw(folder: Path, found: "Sequence[Federation]", style: str, *, show: bool) -> list[Path]:
    """Figures and tables of every section."""
    from fedskew.report.page.files import write_files
    from fedskew.report.style import drawn_for

    doing = f"drawing figures of {counted(len(found), 'section')} to {folder}"
    with drawn_for(style), item_progress(doing, enabled=show) as step:
        beside = write_files(folder, found, step)
    for path in beside.kept:
        note(f"{path} was changed since an earlier report wrote it, and is kept")
    return beside.made


def _print_notes(entries: "list[Entry]", left_out: "list[LeftOut]", held_out: "list[Entry]", option: str) -> None:
    from fedskew.report.page.entries import held_out_words
    from fedskew.report.page.html import in_store

    notes = [f"left out: {problem}" for problem in unreadable((each.hash, each.problem) for each in left_out)]
    notes += [f"run {entry.hash}: {message}" for entry in entries for message in entry.notes]
    for text in [*notes, held_out_words(held_out)]:
        if text:
            note(in_store(text, option))
