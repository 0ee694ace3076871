"""What a process shares a machine with: the ranks that torchrun tells of in the environment, jobs, and the cores."""

import os

JOBS = "FEDSKEW_JOBS"
"""The variable in which `paper run --jobs` tells its processes how many they are."""


def expected() -> int:
    """The number of ranks; 1 if torchrun started none, whatever a cluster's own variables say."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def rank() -> int:
    return int(os.environ["RANK"]) if expected() > 1 else 0


def on_machine() -> int:
    """This rank's number on its machine."""
    return int(os.environ["LOCAL_RANK"]) if expected() > 1 else 0


def own_cores() -> int:
    """How many of the machine's cores this process may use, if it has them to itself."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_share() -> int:
    """How many processes of one command share this machine: ranks, or jobs of `paper run`."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if expected() > 1 else int(os.environ.get(JOBS, "1"))
