"""Flower's SuperNode, which asks for messages three times a second, not every three seconds.

With SECONDS_BETWEEN_HEARTBEATS in the environment it also says so often that it is alive: a SuperLink takes it for lost
after two of these intervals, 30 seconds each unless told otherwise. If there is a file LOSES, it loses the next call to
train on the way, and removes the file.
"""

import os
import time
from pathlib import Path
from types import SimpleNamespace

from flwr.supercore import heartbeat
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.cli import flower_supernode


class Losing(fleet_http_connection.FleetHttpClient):
    def PullMessages(self, request):
        found, file = super().PullMessages(request), Path(os.environ["LOSES"])
        if file.exists() and any(message.metadata.message_type == "train" for message in found.messages_list):
            file.unlink()
            return type(found)()
        return found


if __name__ == "__main__":
    start_client_internal.time = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, 0.3)))
    if seconds := os.environ.get("SECONDS_BETWEEN_HEARTBEATS"):
        heartbeat.HEARTBEAT_DEFAULT_INTERVAL = fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL = float(seconds)
    fleet_http_connection.FleetHttpClient = Losing
    flower_supernode()
