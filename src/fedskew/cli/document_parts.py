"""Parts that repeat in what commands print with `--json`. Each key has its type and its meaning."""

from typing import Annotated, Any, NotRequired

from typing_extensions import TypedDict

Value = str | float | bool | None
"""The value of a field or of a method's argument."""


class Measure(TypedDict):
    """One measure over seeds."""

    mean: Annotated[float | None, "over the seeds that have a value; null if none has"]
    std: Annotated[float | None, "sample standard deviation; null for fewer than two values"]
    each: Annotated[list[float | None], "the value of each seed; null if it diverged or has none"]


class Difference(TypedDict):
    """How far one method is ahead of another, paired by seed."""

    mean: Annotated[float, "mean difference, in points for accuracies"]
    half: Annotated[float | None, "half of the 95 % interval; null for fewer than three seeds"]
    seeds: Annotated[int, "how many seeds both have"]
    lost: Annotated[int, "seeds with which only this method diverged"]
    other_lost: Annotated[int, "seeds with which only the other one diverged"]


class Judged(Difference):
    """A difference with its verdict."""

    verdict: Annotated[str, "`above`, `below`, `tied`, `open` or `not decided`"]


class Reach(TypedDict):
    """Rounds to an accuracy."""

    rounds: Annotated[int | None, "median over seeds; null if the median seed never reached it"]
    reached: Annotated[int, "how many seeds reached it"]
    seeds: Annotated[int, "how many seeds there are"]


class Share(TypedDict):
    """The share of the gap to IID data that a method closes."""

    share: Annotated[float, "the share of the gap, 1 for all of it"]
    gap: Annotated[float, "FedAvg, or the baseline, on IID data minus the same on this split, as a fraction"]
    seeds: Annotated[int, "how many seeds have all three runs"]


class OverSeeds(TypedDict):
    """The seeds of one method and setting."""

    algorithm: Annotated[str, "the method with every argument"]
    seeds: Annotated[list[int], "the seeds"]
    diverged: Annotated[int, "how many of them diverged"]
    seconds: Annotated[float, "total time"]
    accuracy: Annotated[Measure, "on the test set after the last evaluated round, as a fraction"]
    balanced_accuracy: Annotated[Measure, "mean of the accuracies per class"]
    client_accuracy: Annotated[Measure, "mean of the accuracies on each client's own test part"]
    accuracy_last10: Annotated[Measure, "mean accuracy of the last ten rounds, at most half of all"]
    loss: Annotated[Measure, "on the test set"]
    validation_accuracy: Annotated[Measure, "on the examples held out by `--validation`"]


class MethodWithoutSkew(OverSeeds):
    """A method on IID data."""

    method: Annotated[str, "the method as it was asked for"]
    rounds: Annotated[int, "rounds of its longest run"]
    baseline: Annotated[str, "the method that it is judged against: `fedavg`, or the one of `--baseline`"]
    against_baseline: Annotated[Judged | None, "`accuracy_last10` minus the baseline's; null for it or without it"]


class MethodRow(MethodWithoutSkew):
    """A method in a comparison."""

    name: NotRequired[Annotated[str, "what figures and tables call the method; only from `compare`"]]
    rounds_to_reach: Annotated[Reach | None, "rounds to `target`; null if no seed can tell"]
    gap_closed: Annotated[Share | None, "share of the IID gap closed; null without `--iid` or without a gap"]
    iid: Annotated[MethodWithoutSkew | None, "the same method on IID data; null without `--iid`"]


class SweptRow(OverSeeds):
    """A setting of a sweep."""

    values: Annotated[dict[str, Value], "what was set, by name"]
    rounds: Annotated[int, "rounds of its runs"]
    runs: Annotated[list[str], "hashes of its runs"]
    against_reference: Annotated[
        Judged | None, "`measure` minus that of the reference on the same federation; null for a reference"
    ]


class Try(TypedDict):
    """A setting that `tune` tried."""

    method: Annotated[str, "the method"]
    values: Annotated[dict[str, Value], "its knobs, by name"]
    rounds: Annotated[int, "how many rounds it got"]
    held_out: Annotated[float | None, "accuracy on held-out examples; null if it diverged"]
    chosen: Annotated[bool, "whether it was chosen"]
    runs: Annotated[list[str], "hashes of its runs"]


class TunedMethod(TypedDict):
    """What was tried for a method, and what was chosen."""

    tries: Annotated[list[Try], "every try"]
    chosen: Annotated[dict[str, Value] | None, "the chosen values; null if all tries diverged"]
    at_an_edge: Annotated[list[str], "knobs whose accuracy rises towards the outermost of five or more values"]


class Skew(TypedDict):
    """How skewed label counts are."""

    mean_total_variation: Annotated[float, "mean distance of a client's labels to all labels; 0 none, 1 disjoint"]
    effective_classes: Annotated[float, "effective number of classes per client"]
    missing_share: Annotated[float, "share of classes that a client misses"]
    size_gini: Annotated[float, "Gini coefficient of client sizes"]


class Session(TypedDict, total=False):
    """One start of a run. A key is absent if it does not apply."""

    from_round: Annotated[int, "rounds done before this session"]
    fedskew: Annotated[str, "version of fedskew"]
    torch: Annotated[str, "version of PyTorch"]
    numpy: Annotated[str, "version of NumPy"]
    python: Annotated[str, "version of Python"]
    flwr: Annotated[str, "version of Flower, for a federation"]
    machine: Annotated[str, "the kind of machine"]
    cpus: Annotated[int | None, "processors of the machine"]
    threads: Annotated[int, "threads of PyTorch"]
    engine: Annotated[str, "engine that was used"]
    engine_reason: Annotated[str, "why it was used"]
    ranks: Annotated[int, "processes of `torchrun`"]
    device: Annotated[str, "device that was used"]
    changed: Annotated[dict[str, list[Any]], "what differs from the session before: the old and the new value"]
    data: Annotated[str, "digest of the data"]
    data_from: Annotated[str, "where the data came from"]
    data_stamp: Annotated[str, "digest of the names, lengths and times of the data files"]
    guessing_accuracy: Annotated[float, "what guessing reaches: the most frequent class's share + two standard errors"]
    guessing_balanced_accuracy: Annotated[float, "the same of balanced accuracy: 1 / classes + two standard errors"]
    app: Annotated[str, "digest of a Flower app's own Python files"]
    mods: Annotated[str, "mods of the app's clients, by name"]
    measured: Annotated[str, "`on the test set`, `by evaluate`, `by nodes` or `by nobody`, for a federation"]
    wrapped: Annotated[str, "the wrapper of the app's server, by name"]


class Knob(TypedDict):
    """The range that `tune` searches."""

    low: Annotated[float, "lower end"]
    high: Annotated[float, "upper end"]
    log: Annotated[bool, "whether it is searched on a logarithmic scale"]


class PaperFigure(TypedDict):
    """A number printed in the paper."""

    mean: Annotated[float | None, "in percent; null if the paper has none"]
    std: Annotated[float | None, "in percent; null if the paper has none"]


class Ours(TypedDict):
    """Our runs for a cell and method of the paper. Accuracies are in percent, without the seeds that diverged."""

    mean: Annotated[float | None, "accuracy after the last round"]
    each: Annotated[list[float], "the same, for each seed"]
    std: Annotated[float | None, "its sample standard deviation; null for fewer than two seeds"]
    last_ten: Annotated[float | None, "mean accuracy of the last ten rounds, at most half of all"]
    each_last_ten: Annotated[list[float], "that, for each seed"]
    balanced: Annotated[float | None, "mean of the accuracies per class"]
    client_mean: Annotated[float | None, "mean over clients of the accuracy on their own test parts"]
    seeds: Annotated[list[int], "the seeds"]
    diverged: Annotated[dict[str, int], "the round in which a seed diverged, by seed"]
    rounds: Annotated[int, "rounds of the runs"]
    other_lengths: Annotated[list[int], "rounds of other runs, which are not counted"]
    shortened: Annotated[bool, "whether the paper has more rounds"]
    precision: Annotated[str, "arithmetic of the runs"]
    device: Annotated[str, "where they ran"]
    algorithm: Annotated[str, "the method, in short"]
    resolved: Annotated[str, "the method with every argument"]
    dataset: Annotated[str, "data set of the runs"]
    model: Annotated[str, "model of the runs"]
    local_epochs: Annotated[int, "local epochs of the runs"]
    momentum: Annotated[float, "client momentum of the runs"]
    lr: Annotated[float, "learning rate of the runs"]
    batch_size: Annotated[int, "batch size of the runs"]
    clients: Annotated[int, "clients of the runs"]
    partitions: Annotated[list[str], "beginning of each run's partition hash"]
    hashes: Annotated[list[str], "hashes of the runs"]
    seconds: Annotated[float | None, "total time; null if it was not measured"]
    gain: Annotated[Difference | None, "points over FedAvg in the last ten rounds; null if runs are missing"]
    iid_gain: Annotated[Difference | None, "the same on IID data"]
    rounds_to_reach: Annotated[Reach | None, "rounds to FedAvg's final accuracy, or to `--target`"]
    gap_closed: Annotated[Share | None, "share of the IID gap closed"]


class PaperRow(TypedDict):
    """A cell and method of a table."""

    cell: Annotated[str, "data set and split"]
    method: Annotated[str, "the method"]
    printed: Annotated[PaperFigure, "what the paper prints"]
    stand_in: Annotated[bool, "whether ours are on stand-in data"]
    ours: Annotated[Ours | None, "what we measured; null if nothing was run"]
    difference: Annotated[float | None, "ours minus the printed mean, in points"]
    other_versions: Annotated[int, "runs left out because another version of fedskew computed them"]


class MapRow(TypedDict):
    """A run of the map. Accuracies are in percent."""

    part: Annotated[str, "`margin` or `around`"]
    setting: Annotated[str, "the setting"]
    algorithm: Annotated[str, "the method with what was set"]
    method: Annotated[str, "the method's name"]
    validation: Annotated[float, "accuracy on held-out examples; 0 if it diverged"]
    test: Annotated[float | None, "accuracy on the test set; null if it diverged"]
    last_ten: Annotated[float | None, "mean test accuracy of the last ten rounds"]
    balanced: Annotated[float | None, "mean of the test accuracies per class"]
    diverged: Annotated[int | None, "the round in which it diverged, or null"]
    rounds: Annotated[int, "rounds of the run"]
    precision: Annotated[str, "arithmetic of the run"]
    device: Annotated[str, "where it ran"]
    seed: Annotated[int, "its seed"]
    dataset: Annotated[str, "its data set"]
    hash: Annotated[str, "its hash"]
