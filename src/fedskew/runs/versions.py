"""Versions of results, and fields that decide no result. Runs of different versions may have different numbers."""

OF_THE_MACHINE = frozenset({"engine", "device", "data_dir"})
"""Fields of a run that say where and how it is computed."""
DECIDING_NOTHING = OF_THE_MACHINE | {"eval_every"}
"""Fields that are left out of a run's hash."""

RESULT_VERSION = 1
"""Raised whenever the numbers of every unchanged run would change."""


def result_version(algorithm: str) -> int:
    """The version of the numbers of a run with this resolved algorithm; higher where only its method has changed:
    SCAFFOLD's messages used to count uniformly, a rule that is now called `scaffold:mean=uniform`."""
    return RESULT_VERSION + ("scaffold" in algorithm.split("+"))
