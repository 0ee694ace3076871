"""FedLC as the paper's pseudo-code has it, in plain PyTorch: nothing of fedskew is used.

    python examples/plain_fedlc.py

The library gives the same parameters; tests/examples/test_examples.py compares them.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

Data = tuple[Tensor, Tensor]
Order = Callable[[int, int, int], Tensor]  # (round, client, number of examples) -> the order of use


def calibrated_loss(logits: Tensor, labels: Tensor, counts: Tensor, tau: float) -> Tensor:
    """Cross entropy of the logits after each class's margin tau * n^(-1/4) is taken off; a missing class counts 1."""
    margin = tau * counts.clamp(min=1).to(logits.dtype) ** -0.25
    return nn.functional.cross_entropy(logits - margin, labels)


def local_update(
    model: nn.Module, data: Data, counts: Tensor, order: Tensor, batch_size: int, lr: float, tau: float
) -> nn.Module:
    """One epoch of SGD on a client, from the global model."""
    local = copy.deepcopy(model)
    optimizer = torch.optim.SGD(local.parameters(), lr=lr)
    x, y = data
    for batch in order.split(batch_size):
        optimizer.zero_grad()
        calibrated_loss(local(x[batch]), y[batch], counts, tau).backward()
        optimizer.step()
    return local


def average(models: list[nn.Module], weights: list[int]) -> dict[str, Tensor]:
    """Parameters averaged with the clients' numbers of examples."""
    states = [model.state_dict() for model in models]
    total = sum(weights)
    return {
        name: sum(
            (weight / total * state[name] for weight, state in zip(weights, states, strict=True)), torch.tensor(0.0)
        )
        for name in states[0]
    }


def fedlc(
    model: nn.Module,
    clients: list[Data],
    classes: int,
    rounds: int,
    batch_size: int = 128,
    lr: float = 0.01,
    tau: float = 1.0,
    order: Order | None = None,
) -> nn.Module:
    """The whole of FedLC: each client calibrates with its own label counts, which never leave it."""
    model = copy.deepcopy(model)
    counts = [torch.bincount(y, minlength=classes) for _, y in clients]
    for round in range(1, rounds + 1):
        updated = []
        for k, data in enumerate(clients):
            size = len(data[1])
            use = torch.randperm(size) if order is None else order(round, k, size)
            updated.append(local_update(model, data, counts[k], use, batch_size, lr, tau))
        model.load_state_dict(average(updated, [len(y) for _, y in clients]))
    return model


def accuracy(model: nn.Module, data: Data) -> float:
    with torch.no_grad():
        return (model(data[0]).argmax(-1) == data[1]).double().mean().item()


def main() -> None:
    """Four clients that hold two of four overlapping Gaussian blobs each, without margins (FedAvg) and with them. Then
    the first client trains the global model once more: how much does it forget of the classes that it does not have?"""
    torch.manual_seed(0)
    y = torch.arange(4).repeat_interleave(200)
    x = torch.randn(4, 8)[y] + torch.randn(len(y), 8)
    held = [(y == k) | (y == (k + 1) % 4) for k in range(4)]
    clients, missing = [(x[mine], y[mine]) for mine in held], (x[~held[0]], y[~held[0]])
    start = nn.Linear(8, 4)
    for name, tau in (("FedAvg, tau 0", 0.0), ("FedLC,  tau 5", 5.0)):
        model = fedlc(start, clients, classes=4, rounds=20, batch_size=32, lr=0.1, tau=tau)
        counts = torch.bincount(clients[0][1], minlength=4)
        local = local_update(model, clients[0], counts, torch.randperm(len(clients[0][1])), 32, 0.1, tau)
        print(f"{name}: accuracy after 20 rounds {accuracy(model, (x, y)):.3f}; of the classes that client 0 misses")
        print(f"    {accuracy(model, missing):.3f} before it trains once more, {accuracy(local, missing):.3f} after")


if __name__ == "__main__":
    main()
