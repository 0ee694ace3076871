"""What `fedskew advise` prints with `--json`."""

from typing import Annotated

from typing_extensions import TypedDict

from fedskew.cli.document_parts import Difference, Skew


class MethodInSetting(TypedDict):
    """A method in one setting. All lists go by seed."""

    seeds: Annotated[list[int], "the seeds"]
    accuracy: Annotated[list[float | None], "mean of the last ten rounds, at most half of all; null where it diverged"]
    reach: Annotated[list[int | None], "the first evaluated round with FedAvg's end; null for never"]
    held_out: Annotated[list[float | None], "accuracy on held-out examples, or null"]
    runs: Annotated[list[str], "hashes"]
    partitions: Annotated[list[str], "the splits"]


class Setting(TypedDict):
    """All fields of runs but method and seed, and every method that ran with them."""

    dataset: Annotated[str, "field of the runs"]
    partition: Annotated[str, "field of the runs"]
    model: Annotated[str, "field of the runs"]
    clients: Annotated[int, "field of the runs"]
    clients_per_round: Annotated[int, "field of the runs"]
    rounds: Annotated[int, "field of the runs"]
    local_epochs: Annotated[int, "field of the runs"]
    batch_size: Annotated[int, "field of the runs"]
    optimizer: Annotated[str, "field of the runs"]
    lr: Annotated[float, "field of the runs"]
    momentum: Annotated[float, "field of the runs"]
    weight_decay: Annotated[float, "field of the runs"]
    augment: Annotated[str, "field of the runs"]
    weighting: Annotated[str, "field of the runs"]
    lr_schedule: Annotated[str, "field of the runs"]
    grad_clip: Annotated[float | None, "field of the runs"]
    dropout_rate: Annotated[float, "field of the runs"]
    validation: Annotated[float, "field of the runs"]
    precision: Annotated[str, "field of the runs"]
    methods: Annotated[dict[str, MethodInSetting], "what each method reached"]


class Gain(TypedDict):
    """A method against FedAvg in one setting."""

    method: Annotated[str, "the method's name"]
    algorithm: Annotated[str, "the variant that ran"]
    points: Annotated[Difference | None, "points of accuracy ahead of FedAvg"]
    saved: Annotated[Difference | None, "rounds saved on the way to FedAvg's end"]
    verdict: Annotated[str | None, "`above`, `below`, `tied`, `open` or `not decided`"]
    accuracy: Annotated[float | None, "mean over seeds"]
    seeds: Annotated[list[int], "seeds that both finished; if FedAvg diverged with all, those the method finished"]
    diverged: Annotated[list[int], "seeds that diverged"]


class Evidence(TypedDict):
    """A setting in which FedAvg and other methods ran."""

    number: Annotated[int, "its number, from 1 on"]
    own: Annotated[bool, "whether it is of your runs"]
    data: Annotated[str, "`same` data set as yours, other data of your `kind`, or `other`"]
    cell: Annotated[str, "data set and split"]
    kind: Annotated[str, "kind of data"]
    distance: Annotated[float, "how far its skew is from yours"]
    skew: Annotated[Skew, "its skew"]
    setting: Annotated[Setting, "its fields and methods"]
    base: Annotated[Gain, "FedAvg"]
    gains: Annotated[list[Gain], "the other methods, largest gain first"]


class MethodStanding(TypedDict):
    """A method over several settings."""

    method: Annotated[str, "the method's name"]
    algorithm: Annotated[str, "its variant"]
    stands: Annotated[str, "`use`, `depends`, `open` or `keep` (FedAvg)"]
    settings: Annotated[dict[str, list[int]], "numbers of settings, by verdict"]
    diverged: Annotated[list[int], "numbers of settings where a seed diverged"]
    ranked: Annotated[int, "number of the setting that speaks for it"]


class Better(TypedDict):
    """A method that is above the first recommended one."""

    algorithm: Annotated[str, "its variant"]
    ahead: Annotated[Difference, "points ahead of the first of `methods`, in the setting that speaks for that one"]


class Advice(TypedDict):
    """Which methods help."""

    verdict: Annotated[list[str], "its lines"]
    training: Annotated[str | None, "a sentence on momentum and augmentation, or null"]
    command: Annotated[str | None, "what to run; null if there is no method to try"]
    clients: Annotated[int, "how many clients"]
    classes: Annotated[int, "how many classes"]
    classes_held: Annotated[int, "how many some client has"]
    samples: Annotated[int, "how many examples"]
    sizes: Annotated[list[int], "examples of the smallest and of the largest client"]
    skew: Annotated[Skew, "how skewed the counts are"]
    kind: Annotated[str, "kind of data"]
    nearest: Annotated[float | None, "distance of the nearest published evidence"]
    do: Annotated[str, "`use`, `depends`, `keep` (FedAvg), `unknown`, `even` (hardly any skew) or `nothing`"]
    methods: Annotated[list[str], "the methods to use or to try"]
    chosen: Annotated[list[MethodStanding], "where these methods stand"]
    better: Annotated[list[Better], "methods above the first of `methods`, to try too"]
    own: Annotated[list[MethodStanding], "methods in your runs"]
    like: Annotated[list[MethodStanding], "methods in near evidence on your data set, else on your kind of data"]
    evidence: Annotated[list[Evidence], "the settings"]
