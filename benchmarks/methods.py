"""The paper's methods and its two combinations: what engines must agree on."""

METHODS = (
    "fedavg",
    "fedprox",
    "scaffold",
    "fednova",
    "fedopt",
    "fedrs",
    "fedlc",
    "fedlc+fedprox",
    "fedlc+scaffold",
)
