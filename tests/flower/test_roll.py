"""Who is which client, when nodes disagree about it."""

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from flwr.app import ConfigRecord, Message, RecordDict

from fedskew.flower.messages import CONFIG, EXAMPLES
from fedskew.flower.roll import Roll
from tests.flower.in_process import Nodes


def claiming(message, context):
    """A node that answers with what its node-config says."""
    return Message(RecordDict({CONFIG: ConfigRecord({"run": "hash", **context.node_config})}), reply_to=message)


def test_a_node_that_claims_a_client_of_another_changes_neither_its_node_nor_its_size():
    grid, roll = Nodes(claiming, [{"client": 0, EXAMPLES: 50}, {"client": 0, EXAMPLES: 7}]), Roll("hash", 3)
    roll.call(grid)
    assert roll.call(grid) == {0: 100}
    assert roll.sizes == {0: 50}
    assert roll.claims_of_others(100) == []
    del grid.contexts[100]
    assert roll.call(grid) == {0: 101}
    assert roll.sizes == {0: 7}
