"""A client of Flower. Ray's workers import it, so that each of them reads the examples once."""

import os

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn
from torch.nn import functional

from benchmarks.peers.work import clients
from benchmarks.sizes import BATCH, CLASSES, FEATURES, LR

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    torch.set_num_threads(1)
    linear = nn.Linear(FEATURES, CLASSES)
    linear.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = clients(os.environ["BENCHMARK_CLIENTS"])[int(context.node_config["partition-id"])]
    optimizer = torch.optim.SGD(linear.parameters(), lr=LR)
    for index in torch.randperm(len(y)).split(BATCH):
        optimizer.zero_grad()
        functional.cross_entropy(linear(x[index]), y[index]).backward()
        optimizer.step()
    content = {"arrays": ArrayRecord(linear.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(content=RecordDict(content), reply_to=message)
