"""Versions of results. Two runs with the same fields and other versions may have other numbers."""

RESULT_VERSION = 1
"""Raised whenever the numbers of every unchanged run would change."""


def result_version(algorithm: str) -> int:
    """The version of the numbers of a run with this resolved algorithm; higher where only its method has changed."""
    return RESULT_VERSION + max(_raised(part) for part in algorithm.split("+"))


def _raised(method: str) -> int:
    """SCAFFOLD's messages were counted uniformly once; now that is a rule of its own name, `scaffold:mean=uniform`."""
    return 1 if method == "scaffold" else 0
