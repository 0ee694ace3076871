"""Replies of a node, changed on their way to the server."""

from flwr.app import MetricRecord


def renamed(record):
    """One array of a record has another name."""

    def change(reply):
        arrays = reply.content[record]
        arrays["mine"] = arrays.pop(next(iter(arrays)))
        return reply

    return change


def with_number(name, value):
    def change(reply):
        reply.content["metrics"][name] = value
        return reply

    return change


def with_a_record(reply):
    reply.content["more"] = MetricRecord({"x": 1})
    return reply
