"""`fedskew tune`: each method's knobs chosen on held-out examples, and the chosen settings compared."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fedskew.cli.options import (
    RUN_OPTIONS,
    Algorithms,
    Jobs,
    Json,
    Quiet,
    Runs,
    Target,
    check_jobs,
    checked_target,
    open_store,
    run_options,
)
from fedskew.cli.shared import check_some_finished, decode, rounds_of, trained
from fedskew.cli.shown_as import Baseline, Names, Style, display_names, renamed
from fedskew.cli.terminal.grid import Grid
from fedskew.cli.terminal.progress import (
    console,
    note,
    percent_of,
    print_comparison,
    print_json,
    say,
    say_what_decides,
    say_written,
)
from fedskew.cli.values import Assignments, Request, Rest, requested
from fedskew.core.files import make_folder
from fedskew.progress import held_out_only, round_progress
from fedskew.runs.summary import counted
from fedskew.runs.verdict import BASELINE

if TYPE_CHECKING:
    from fedskew.cli.document_parts import TunedMethod
    from fedskew.cli.documents import TunedMethods
    from fedskew.simulation.tune import MethodTries, Tuning

CHOSEN = "chosen settings on the test set"
ONCE = "no choice used the test set; the table has the chosen settings on it, with new seeds"


@run_options(*RUN_OPTIONS, several=True, shown={"validation": 0.1})
def tune_command(
    fields: dict[str, list[str]],
    rest: Rest = None,
    algorithm: Algorithms = None,
    set_: Assignments = None,
    budget: Annotated[int, typer.Option(help="Tries for each method.")] = 8,
    search: Annotated[str, typer.Option(help="random: spread over the ranges | grid.")] = "random",
    halving: Annotated[
        bool, typer.Option("--halving", help="Start with short tries; the better half continues.")
    ] = False,
    choosing_seeds: Annotated[int, typer.Option(help="Seeds of each try, starting at --seed.")] = 1,
    seeds: Annotated[int, typer.Option(help="Seeds of each chosen setting, after those used for choosing.")] = 3,
    target: Target = None,
    baseline: Baseline = None,
    out: Annotated[Path, typer.Option(help="Folder for figures and tables.")] = Path("tuning"),
    display: Names = None,
    style: Style = "screen",
    jobs: Jobs = 1,
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """Choose each method's knobs on held-out training examples, then compare the chosen settings on the test set.

    Every method gets the same number of tries. Its knobs are lr and its own arguments; `--lr 0.03` fixes one,
    `--lr 0.03,0.1` lists the values to choose among.

    Example: fedskew tune --dataset digits --algorithm fedavg,fedlc --rounds 40 --budget 8
    """
    from fedskew.report.comparison import method_rows, stored_methods, write_comparison
    from fedskew.report.style import drawn_for
    from fedskew.report.tuned import HEADS, try_cells, write_tries
    from fedskew.simulation.tune import Tuning

    check_jobs(jobs)
    asked = requested({**fields, **({"algorithm": algorithm} if algorithm else {})}, rest, set_)
    target, how = checked_target(target), {"budget": budget, "choosing_seeds": choosing_seeds, "seeds": seeds}
    tuning = Tuning.of(asked.fields, _methods(asked), asked.values, search=search, halving=halving, **how)
    judged_by, called = BASELINE if baseline is None else tuning.name_of(baseline), _called(tuning, display)
    make_folder(out)
    store, show, some = open_store(runs), not (json_ or quiet), tuning.methods[0].tries[0].runs[0]
    decode(some, enabled=show)
    with round_progress(tuning.rounds, enabled=show) as step:
        choices = tuning.choose(store, held_out_only(step), partial(rounds_of, jobs=jobs))
    tested = tuning.comparison(choices)
    spent = trained([((name, ", test"), group) for name, group in tested.groups], store, jobs=jobs, show=show)
    done, tries = stored_methods(store, tested.hashes, some.rounds), [row for choice in choices for row in choice.rows]
    rows = renamed(method_rows(done, target=target, baseline=judged_by), called)
    with drawn_for(style):
        made = [*write_tries(out, tries), *write_comparison(done, rows, tested.hashes, out, some.title, target)]
    if json_:
        document = {
            "search": search,
            "budget": budget,
            "validation": some.validation,
            "halving": halving,
            "chosen_with_seeds": tuning.chosen_with,
            "seeds": tuning.seeds,
            "methods": {choice.name: _tuned(choice) for choice in choices},
            "runs": tested.hashes,
            "target": target,
            "rows": rows,
            "files": [str(path) for path in made],
        }
        print_json(cast("TunedMethods", document))
        check_some_finished(rows)
        return
    if show:
        console().print(Grid.of(HEADS, try_cells(tries)))
    _print_choices(choices, some.validation)
    print_comparison(rows, f"{some.title}, {counted(some.rounds, 'round')}, {CHOSEN}", spent, target, some.eval_every)
    say(f"{ONCE}: {_span(tuning.seeds)} here, {_span(tuning.chosen_with)} for choices")
    if show:
        say_what_decides(rows)
        say_written(made)
    check_some_finished(rows)


def _methods(asked: Request) -> list[str]:
    """The methods to tune; other options with several values are knobs."""
    several, one = asked.values.pop("algorithm", []), asked.fields.pop("algorithm", None)
    if not several and one is None:
        given = ", ".join((*asked.fields, *asked.values)) or "nothing"
        raise ValueError(f"tune needs methods, for example --algorithm fedavg,fedlc; given: {given}")
    return several or [one]


def _called(tuning: "Tuning", display: Sequence[str] | None) -> dict[str, str]:
    """What methods are to be called, by how tables list them."""
    written = {choice.method: choice.name for choice in tuning.methods}
    return display_names(display, list(written.values()), written)


def _tuned(choice: "MethodTries") -> "TunedMethod":
    chosen = None if choice.best is None else choice.best.values
    return cast("TunedMethod", {"tries": choice.rows, "chosen": chosen, "at_an_edge": choice.at_an_edge})


def _print_choices(choices: "Sequence[MethodTries]", share: float) -> None:
    from fedskew.knobs import listed
    from fedskew.runs.summary import setting_text

    if len({len(choice.tries) for choice in choices}) > 1:
        told = ", ".join(f"{choice.name} {len(choice.tries)}" for choice in choices)
        note(f"methods had unequal numbers of tries, which favours those with more: {told}")
    for choice in choices:
        if choice.best is None:
            note(f"every try of {choice.name} diverged; it is left out")
            continue
        found, tries = setting_text(choice.best.values) or "unchanged", len(choice.tries)
        among = f" (of {listed(choice.knobs)})" if choice.knobs else ""
        say(
            f"{choice.name}: {found}: {percent_of(choice.best.score)} % on the {100 * share:g} % of training examples "
            f"held out, {'the only try' if tries == 1 else f'best of {tries} tries'}{among}"
        )
        for name in choice.at_an_edge:
            note(f"{choice.name}: accuracy rises towards the outermost {name} tried; better values may lie beyond it")


def _span(seeds: Sequence[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
