"""`fedskew compare`: a comparison of several methods."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from fedskew.cli.options import (
    RUN_OPTIONS,
    Algorithms,
    File,
    Jobs,
    Json,
    Quiet,
    Runs,
    Target,
    Track,
    build_run,
    check_jobs,
    checked_target,
    compared_names,
    open_store,
    run_options,
)
from fedskew.cli.shared import check_some_finished, decode, trained
from fedskew.cli.shown_as import Baseline, Names, Style, display_names, renamed
from fedskew.cli.terminal.progress import note, print_comparison, print_json, say_what_decides, say_written
from fedskew.core.files import make_folder
from fedskew.runs.summary import counted, seeds_text

if TYPE_CHECKING:
    from fedskew.cli.document_parts import MethodRow
    from fedskew.cli.documents import ComparedMethods


@run_options(*RUN_OPTIONS)
def compare_command(
    fields: dict[str, Any],
    file: File = None,
    algorithm: Algorithms = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, starting at --seed.")] = 1,
    target: Target = None,
    baseline: Baseline = None,
    iid: Annotated[bool, typer.Option("--iid", help="Also run the methods on an IID split.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for figures and tables.")] = Path("comparison"),
    display: Names = None,
    style: Style = "screen",
    track: Track = None,
    jobs: Jobs = 1,
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """Compare several methods on the same data, split, initial model and cohorts.

    Example: fedskew compare --dataset digits --rounds 40 --lr 0.1 --batch-size 16 --algorithm fedavg,fedlc --seeds 3
    """
    from fedskew.report.comparison import comparison_files, method_rows, stored_methods, write_comparison
    from fedskew.report.style import drawn_for
    from fedskew.report.written import check_replaceable, replacing_results
    from fedskew.runs.verdict import BASELINE
    from fedskew.simulation.compare import Comparison
    from fedskew.tracking import check

    check(track or ())
    check_jobs(jobs)
    names, target = compared_names(algorithm, file), checked_target(target)
    comparison = Comparison.of(build_run(fields, file, {"algorithm": names[0]}), names, seeds)
    called = display_names(display, comparison.runs)
    judged_by = BASELINE if baseline is None else comparison.name_of(baseline)
    level = comparison.on_iid() if iid else None
    some = next(iter(comparison.runs.values()))[0]
    hashes, level_hashes = comparison.hashes, level.hashes if level else None
    title = f"{some.title}, {counted(some.rounds, 'round')}"
    against = f", against {judged_by}" if judged_by in hashes else ""
    named = f"{title}, {seeds_text(seeds)}: {', '.join(hashes)}{against}"
    about = {"title": named, "runs": hashes, "iid_runs": level_hashes}
    check_replaceable("compare", out, comparison_files(out), "--out")
    _note_earlier(out, about)
    make_folder(out)
    store, show = open_store(runs), not (json_ or quiet)
    decode(some, enabled=show)
    groups = [((name, ""), group) for name, group in comparison.groups]
    groups += [((name, ", IID"), group) for name, group in (level.groups if level else [])]
    spent = trained(groups, store, track or (), jobs, show=show)
    done, on_iid = (stored_methods(store, each or {}, some.rounds) for each in (hashes, level_hashes))
    rows = renamed(method_rows(done, target=target, iid=on_iid, baseline=judged_by), called)
    with drawn_for(style), replacing_results("compare", out, about, comparison_files(out), "--out") as written:
        written.made += write_comparison(done, rows, hashes, out, some.title, target)
    if json_:
        document: ComparedMethods = {
            "runs": hashes,
            "iid_runs": level_hashes,
            "target": target,
            "rows": cast("list[MethodRow]", rows),
            "files": [str(path) for path in written.made],
        }
        print_json(document)
    else:
        print_comparison(rows, title, spent, target, some.eval_every)
    if show:
        say_what_decides(rows)
        say_written(written.made)
    check_some_finished(rows)


def _note_earlier(out: Path, about: dict[str, Any]) -> None:
    """Say so before any work if the folder holds another comparison."""
    from fedskew.report.written import Written

    earlier = Written.of("compare", out).about
    if earlier and earlier != about:
        note(
            f"{out} holds another comparison ({earlier.get('title')}), which this one will replace; --out names "
            "another folder, and the earlier command writes it again from the store"
        )
