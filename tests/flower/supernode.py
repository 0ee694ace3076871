"""Flower's SuperNode, which asks for messages five times a second, not every three seconds.

With SECONDS_BETWEEN_HEARTBEATS in the environment it also says so often that it is alive: a SuperLink takes it for lost
after two of these intervals, 30 seconds each unless told otherwise.
"""

import os
import time
from types import SimpleNamespace

from flwr.supercore import heartbeat
from flwr.supernode import fleet_http_connection, start_client_internal
from flwr.supernode.cli import flower_supernode

if __name__ == "__main__":
    start_client_internal.time = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, 0.2)))
    if seconds := os.environ.get("SECONDS_BETWEEN_HEARTBEATS"):
        heartbeat.HEARTBEAT_DEFAULT_INTERVAL = fleet_http_connection.HEARTBEAT_DEFAULT_INTERVAL = float(seconds)
    flower_supernode()
