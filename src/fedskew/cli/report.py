"""`fedskew report`: stored runs as one HTML file."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedskew.cli.options import Json, Quiet, Runs, Target, checked_target, open_store
from fedskew.cli.shown_as import Names, Style, display_names
from fedskew.cli.terminal.progress import echo, item_progress, note, print_json

if TYPE_CHECKING:
    from fedskew.cli.documents import Report
    from fedskew.report.page.entries import Entry, LeftOut
    from fedskew.runs.store import Store


def report_command(
    run: Annotated[list[str] | None, typer.Argument(help="Hashes or their beginnings.  [default: all runs]")] = None,
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

    Example: fedskew report -o report.html
    """
    from fedskew.report.page.federations import federations, hashes_of
    from fedskew.report.page.files import check_files, write_files
    from fedskew.report.page.page import write_page
    from fedskew.report.style import drawn_for

    store, option = open_store(runs), f" --runs {shlex.quote(runs)}" if runs else ""
    if out.is_dir():
        raise ValueError(f"out is the folder {out}; allowed: a file, for example {out / 'report.html'}")
    entries, left_out = _entries(store, run)
    called = display_names(display, {entry.method for entry in entries})
    order = [*called] or ([entry.method for entry in entries] if run else [])
    found = federations(entries, checked_target(target), called, order)
    if figures:
        check_files(figures, found)
    size = write_page(out, found, left_out, option)
    made = [out]
    if figures:
        sections = f"{len(found)} section{'' if len(found) == 1 else 's'}"
        doing = f"drawing figures of {sections} to {figures}"
        with drawn_for(style), item_progress(doing, enabled=not (json_ or quiet)) as step:
            beside = write_files(figures, found, step)
        made += beside.made
        for path in beside.kept:
            note(f"{path} was changed since an earlier report wrote it, and is kept")
    if json_:
        document: Report = {
            "file": str(out),
            "bytes": size,
            "runs": hashes_of(found),
            "federations": [
                {"title": f.name, "methods": [m.name for m in f.methods], "names": [m.label for m in f.methods]}
                for f in found
            ],
            "left_out": [{"hash": each.hash, "problem": each.problem} for each in left_out],
            "notes": {entry.hash: entry.notes for entry in entries if entry.notes},
            "files": [str(path) for path in made],
        }
        print_json(document)
        return
    _print_notes(entries, left_out, option)
    if quiet:
        echo(str(out))
    else:
        more = f", and {len(made) - 1} files in {figures}" if figures else ""
        echo(f"report of {len(hashes_of(found))} runs, {size / 1e6:.1f} MB: {out}{more}")


def _entries(store: "Store", hashes: list[str] | None) -> "tuple[list[Entry], list[LeftOut]]":
    """The runs to report, all by default, and those that cannot be read."""
    from fedskew.report.page.entries import read_entries

    folders = {folder.path: folder for folder in (map(store.find, hashes) if hashes else store)}
    entries, left_out = read_entries(folders.values())
    if not entries:
        damaged = "".join(f"; {each.hash} could not be read: {each.problem}" for each in left_out)
        raise ValueError(f"there is no run to report in {store.root}{damaged or '; `fedskew run` makes one'}")
    return entries, left_out


def _print_notes(entries: "list[Entry]", left_out: "list[LeftOut]", option: str) -> None:
    from fedskew.report.page.html import in_store

    notes = [f"run {each.hash} is left out: {each.problem}" for each in left_out]
    notes += [f"run {entry.hash}: {message}" for entry in entries for message in entry.notes]
    for text in notes:
        note(in_store(text, option))
