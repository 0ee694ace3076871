"""What commands print with `--json`: a type for each document. docs/json.md is generated from these.

`fedskew diagnose` has a page of its own, docs/diagnostics.md."""

from typing import Annotated, Any

from typing_extensions import TypedDict

from fedskew.cli.document_parts import Knob, MapRow, MethodRow, PaperRow, Session, Skew, SweptRow, TunedMethod


class RunResult(TypedDict):
    """The result of a run. Accuracies are fractions, of the global model."""

    run_hash: Annotated[str, "identifies the run"]
    algorithm: Annotated[str, "the method with every argument"]
    seed: Annotated[int, "the seed"]
    rounds: Annotated[int, "rounds done"]
    accuracy: Annotated[float | None, "on the test set after the last evaluated round"]
    accuracy_last10: Annotated[float | None, "mean accuracy of the last ten rounds, at most half of all"]
    balanced_accuracy: Annotated[float | None, "mean of the accuracies per class"]
    client_accuracy: Annotated[float | None, "mean of the accuracies on each client's own test part, or null"]
    loss: Annotated[float | None, "on the test set"]
    validation_accuracy: Annotated[float | None, "on the examples held out by `--validation`, or null"]
    per_class_accuracy: Annotated[list[float | None] | None, "by class; null for a class without test examples"]
    diverged: Annotated[bool, "whether the model is not finite, or its loss on the test set not a number"]
    seconds: Annotated[float, "time of all rounds, with the fits of `refit`, without evaluation"]
    engine: Annotated[str | None, "engine of the last round"]
    device: Annotated[str | None, "device of the last round"]
    partition_hash: Annotated[str | None, "identifies the partition"]
    run: Annotated[dict[str, Any], "all fields of the run"]
    folder: Annotated[str, "where the run is kept"]


class ShownRun(RunResult):
    """The result of a run as from `fedskew run`, with its sessions."""

    sessions: Annotated[list[Session], "each start of the run"]


class ComparedMethods(TypedDict):
    """Methods side by side."""

    runs: Annotated[dict[str, list[str]], "hashes by method"]
    iid_runs: Annotated[dict[str, list[str]] | None, "the same on IID data; null without `--iid`"]
    target: Annotated[float | None, "the accuracy to which rounds are counted; null for the baseline's final accuracy"]
    rows: Annotated[list[MethodRow], "one per method"]
    files: Annotated[list[str], "what was written"]


class SweptSettings(TypedDict):
    """A run at many settings."""

    swept: Annotated[dict[str, list[Any]], "the values of what differs, by name"]
    measure: Annotated[str, "what settings are judged by"]
    reference: Annotated[int, "the index in `rows` of the reference; elsewhere the same setting is compared with"]
    rows: Annotated[list[SweptRow], "one per setting"]
    files: Annotated[list[str], "what was written"]


class TunedMethods(TypedDict):
    """Choices on held-out examples, and the chosen settings on the test set."""

    search: Annotated[str, "`random` or `grid`"]
    budget: Annotated[int, "tries for each method"]
    validation: Annotated[float, "share of training examples held out"]
    halving: Annotated[bool, "whether tries began short and only the better half continued"]
    chosen_with_seeds: Annotated[list[int], "seeds of the tries"]
    seeds: Annotated[list[int], "seeds of the chosen settings"]
    methods: Annotated[dict[str, TunedMethod], "tries and choice, by method"]
    runs: Annotated[dict[str, list[str]], "hashes of the chosen settings' runs, by method"]
    target: Annotated[float | None, "the accuracy to which rounds are counted; null for FedAvg's final accuracy"]
    rows: Annotated[list[MethodRow], "one per method, on the test set"]
    files: Annotated[list[str], "what was written"]


class PartitionCard(TypedDict):
    """A partition in numbers."""

    partition: Annotated[str, "the split with every argument"]
    hash: Annotated[str, "identifies the partition"]
    clients: Annotated[int, "how many clients"]
    classes: Annotated[int, "how many classes"]
    samples: Annotated[int, "how many training examples"]
    sizes: Annotated[list[int], "examples of each client"]
    counts: Annotated[list[list[int]], "examples, clients x classes"]
    missing: Annotated[list[list[int]], "classes that each client misses"]
    skew: Annotated[Skew, "how skewed it is"]
    dataset: Annotated[str, "the data set"]
    seed: Annotated[int, "the seed"]
    files: Annotated[list[str], "what was written"]


class ListedRun(TypedDict):
    """A run of the store."""

    hash: Annotated[str, "identifies the run"]
    state: Annotated[str, "`done`, `diverged` or `unfinished`"]
    progress: Annotated[str, "rounds done / rounds asked for"]
    algorithm: Annotated[str, "the method, in short"]
    title: Annotated[str, "the federation, in short"]
    seed: Annotated[int, "the seed"]
    accuracy: Annotated[float | None, "of the last evaluated round"]
    held_out: Annotated[float | None, "the same on held-out training examples; null if there are none"]
    written: Annotated[str | None, "when its last record was written (ISO 8601, UTC)"]
    fields: Annotated[dict[str, Any], "of the run, and arguments of its method"]


class UnreadableRun(TypedDict):
    """A run whose files are damaged."""

    hash: Annotated[str, "the name of its folder"]
    state: Annotated[str, "`unreadable`"]
    progress: Annotated[str, "empty"]
    problem: Annotated[str, "what is wrong"]


class RemovedRuns(TypedDict):
    """What was deleted."""

    removed: Annotated[list[str], "hashes"]


class CondensedRuns(TypedDict):
    """A file with a line per run."""

    file: Annotated[str, "the file"]
    added: Annotated[int, "finished runs of the store"]
    lines: Annotated[int, "lines of the file now"]
    left_out: Annotated[list[str], "problems with runs that were left out"]


class ExportedModel(TypedDict):
    """A model for other programs."""

    run_hash: Annotated[str, "identifies the run"]
    round: Annotated[int, "the round after which the model was kept"]
    file: Annotated[str, "what was written"]


class DataFiles(TypedDict):
    """Each element is a data set's files."""

    dataset: Annotated[str, "the data set"]
    state: Annotated[
        str, "`present`, `partial` or `missing`; from `verify` `good`, `other checksum`, `missing`, `not checked`"
    ]
    bytes: Annotated[int, "size"]
    path: Annotated[str, "file or folder"]
    source: Annotated[str, "the address it comes from"]


class FetchedData(TypedDict):
    """The data set that was fetched."""

    dataset: Annotated[str, "the data set"]
    files: Annotated[list[str], "its files"]


class Method(TypedDict):
    """Each element is a registered method."""

    name: Annotated[str, "its name"]
    spec: Annotated[str, "its spec with every argument"]
    sets: Annotated[list[str], "the parts of FedAvg that it sets"]
    about: Annotated[str, "what it does"]
    knobs: Annotated[dict[str, Knob], "ranges that `tune` searches, by argument"]


class ReportedFederation(TypedDict):
    """A federation of the report."""

    title: Annotated[str, "the federation, in short"]
    methods: Annotated[list[str], "its methods"]
    names: Annotated[list[str], "what they are called"]


class LeftOut(TypedDict):
    """A run that could not be read."""

    hash: Annotated[str, "the name of its folder"]
    problem: Annotated[str, "what is wrong"]


class Report(TypedDict):
    """The page that was written."""

    file: Annotated[str, "the page"]
    bytes: Annotated[int, "its size"]
    runs: Annotated[list[str], "hashes of the runs on it"]
    federations: Annotated[list[ReportedFederation], "what it is about"]
    left_out: Annotated[list[LeftOut], "runs that could not be read"]
    held_out: Annotated[list[str], "hashes of runs that hold out training examples and are not on it"]
    notes: Annotated[dict[str, list[str]], "remarks on runs, by hash; only runs that have some"]
    files: Annotated[list[str], "all that was written"]


class PaperItem(TypedDict):
    """Each element is a table or figure of the paper under a profile; without `--profile`, under `stated` and under
    each other one that has runs of its own."""

    name: Annotated[str, "`table1` ... `figure7`"]
    title: Annotated[str, "what it shows"]
    profile: Annotated[str, "the profile of its runs"]
    precision: Annotated[str, "the arithmetic of its runs: the requested one, or else the one with most of them"]
    runs: Annotated[int, "how many runs it takes"]
    done: Annotated[int, "how many are done"]
    shortened: Annotated[int, "how many are done with other lengths only"]
    measured: Annotated[bool | None, "whether its measurements exist; null if it needs none"]
    seconds_left: Annotated[float, "estimated time of the others, as far as known"]
    of_unknown_time: Annotated[int, "runs without an estimate, because nothing similar has run on this device"]


class UndoneRuns(TypedDict):
    """Runs that were not done."""

    runs: Annotated[list[str], "their hashes"]
    reason: Annotated[str, "why"]
    busy: Annotated[bool, "whether another process is doing them"]


class PaperRuns(TypedDict):
    """What was done."""

    done: Annotated[list[str], "hashes"]
    problems: Annotated[list[UndoneRuns], "what was not done"]


class PaperTable(TypedDict):
    """A table, ours beside the paper's. The rows of a figure are what it draws."""

    title: Annotated[str, "what it shows"]
    rows: Annotated[list[PaperRow], "one per cell and method"]


class PaperMap(TypedDict):
    """What FedLC's gain depends on."""

    cell: Annotated[str, "the cell of the paper"]
    stand_in: Annotated[bool, "whether it is on stand-in data"]
    rows: Annotated[list[MapRow], "one per run"]
    summary: Annotated[list[str], "sentences"]
    files: Annotated[list[str], "what was written"]


class WrittenFiles(TypedDict):
    """What was made."""

    files: Annotated[list[str], "what was written"]
