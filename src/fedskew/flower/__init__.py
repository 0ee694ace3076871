"""The same round over a network: any run as a Flower app. Clients keep their data and label counts."""

try:
    import flwr  # noqa: F401
except ImportError as error:
    raise ImportError(
        "fedskew.flower needs Flower; in a clone of fedskew: pip install -c constraints.txt '.[flower]'"
    ) from error

from fedskew.core.evaluation import Evaluation
from fedskew.flower.client import client_app
from fedskew.flower.rules import Rules, read_rules, read_run
from fedskew.flower.server import server_app
from fedskew.flower.strategy import LabelSkew

__all__ = ["Evaluation", "LabelSkew", "Rules", "client_app", "read_rules", "read_run", "server_app"]
