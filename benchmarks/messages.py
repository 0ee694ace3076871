"""What a message of a real federation costs by the size of the model: `python -m benchmarks.messages [--json FILE]`.

In one process, without a network: a server's call and a client's answer made into records and read back, checks
included, the server's update, and what the server's memory grows by with each client that answers.
"""

import argparse
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from flwr.app import RecordDict

from benchmarks.report import report
from benchmarks.timing import Figure, exact, interleaved, milliseconds
from fedskew.algorithms import build_algorithm
from fedskew.core.round import Server, Update, join, server_update
from fedskew.core.tree import Params
from fedskew.flower.messages import (
    Answer,
    Call,
    decode_answer,
    decode_call,
    encode_answer,
    encode_call,
    server_records,
)

SIZES = {"1 million parameters": 10**6, "10 million parameters": 10**7}
CLIENTS = 8


def model(size: int) -> Params:
    """Ten layers of random weights."""
    generator = torch.Generator().manual_seed(0)
    return {f"layer{i}": torch.randn(size // 10, generator=generator) for i in range(10)}


def nbytes(content: RecordDict) -> int:
    return sum(len(array.data) for record in content.array_records.values() for array in record.values())


def resident() -> int:
    """Bytes of this process that are in memory. Linux only."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grown_by(make: Callable[[], object]) -> int:
    before = resident()
    kept = make()
    after = resident()
    del kept
    return after - before


def answers(answer: Answer, call: Call) -> list[object]:
    """Answers of several clients as a server has them before its update."""
    records = [encode_answer(answer) for _ in range(CLIENTS)]
    return [records, [decode_answer(content, call, {}, "cpu") for content in records]]


def measure(turns: int) -> list[Figure]:
    figures = []
    for title, size in SIZES.items():
        params = model(size)
        call = Call("run", 0, 1, Server(params, {}, {}, {}), 0)
        answer = Answer(0, 1, 100, 1, 0.5, params, {}, {})
        sent, came = encode_call(call, server_records(call.server), {}), encode_answer(answer)
        update = Update(params, {}, {}, {}, torch.tensor(1.0, dtype=torch.float64), torch.tensor(0.5))
        stacked = join([update] * CLIENTS, new_axis=True)
        weights = torch.ones(CLIENTS, dtype=torch.float64)
        tasks: dict[str, Callable[[], object]] = {
            "server: a round's model into records, once": partial(server_records, call.server),
            "node: a call read": partial(decode_call, sent, "cpu"),
            "node: an answer into records": partial(encode_answer, answer),
            "server: an answer read and checked": partial(decode_answer, came, call, {}, "cpu"),
            f"server: the update from {CLIENTS} answers": partial(
                server_update, build_algorithm("fedavg"), call.server, stacked, weights
            ),
        }
        figures += milliseconds(title, interleaved(tasks, turns))
        figures.append(exact(title, "an answer's arrays", nbytes(came) / 1e6, "MB"))
        held = grown_by(partial(answers, answer, call))
        figures.append(exact(title, "memory for an answer and what is read from it", held / CLIENTS / 1e6, "MB"))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.messages", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    options = parser.parse_args()
    report(lambda: measure(15), options.json)


if __name__ == "__main__":
    main()
