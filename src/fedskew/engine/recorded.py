"""Steps that are taken often, as a plain list of PyTorch's operations.

A step of a small model takes PyTorch longer to prepare than to compute: modules, records and the automatic gradient
lead to the same few dozen operations each time. They are recorded once for tensors of the same shapes and called
directly from then on, those of the gradient included: the same kernels in the same order, so the same bits. What
depends on the context alone, such as what a loss makes of the label counts, or on shapes alone is computed once for a
context.

One recording serves three clients to as many as it was made with. The step is recorded with three of them too, which
shows the sizes that follow from their number; a step that takes other operations for few clients than for many is not
recorded. One client could be another list: PyTorch broadcasts an axis of length 1.
"""

import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from fedskew.core.own import own_parts
from fedskew.core.round import Batch, Context, Local, Recipe, local_step, take
from fedskew.core.tree import Params

_OFTEN = 50
"""Recording takes about as long as this many steps save."""
_LIKE = {getattr(torch.ops.aten, name).default for name in ("full_like", "ones_like", "zeros_like", "new_zeros")}
"""Operations that use a tensor's shape, but none of its values."""
_SEVERAL = 3
"""This many clients or more share a recording."""

Step = Callable[[Recipe, Context, Local, Batch], Local]
Tensors = list[Tensor]
Kind = tuple[object, ...]
"""Shapes but for the number of clients, and strides: what decides which operations a step takes."""


@dataclass(frozen=True)
class Replay:
    """A recorded step of at most so many clients: `settle` makes of the number of clients and a context what `move`
    needs at every step."""

    most: int
    settle: Callable[..., list[Any]]
    move: Callable[..., Tensors]


class Recordings:
    """What is recorded of one recipe's steps, by the shapes of their tensors."""

    def __init__(self) -> None:
        self._recipe: Recipe | None = None
        self.replays: dict[Kind, Replay] = {}
        self.taken: Counter[Kind] = Counter()
        self.refused: set[Kind] = set()

    def step(self, recipe: Recipe) -> Step:
        """`local_step` for a round. Only our own parts are recorded: a user's may do something else each time."""
        if own_parts(recipe):
            return local_step
        if recipe != self._recipe:
            self._recipe = recipe
            self.replays.clear()
            self.taken.clear()
            self.refused.clear()
        return _Steps(self)


class _Steps:
    """The steps of a round. Contexts change rarely, so what is made of one is kept for the next step."""

    def __init__(self, recordings: Recordings) -> None:
        self._recordings = recordings
        self._context: Context | None = None
        self._context_kind: Kind = ()
        self._settled: dict[tuple[int, Kind], list[Any]] = {}

    def __call__(self, recipe: Recipe, context: Context, local: Local, batch: Batch) -> Local:
        clients = len(local.loss)
        if context is not self._context:
            self._context, self._context_kind, self._settled = context, _kind(_fixed(context), clients), {}
            self._uncast = torch.autocast(local.loss.device.type, enabled=False)
        given = _moving(local) + _examples(batch)
        kind, known = self._context_kind + _kind(given, clients), self._recordings
        replay = known.replays.get(kind)
        if replay is not None and clients <= replay.most:
            return self._again(replay, kind, local, given)
        known.taken[kind] += 1
        if known.taken[kind] < _OFTEN or kind in known.refused:
            return local_step(recipe, context, local, batch)
        moved, replay = _record(recipe, context, local, batch)
        if replay is None:
            known.refused.add(kind)
        else:
            known.replays[kind] = replay
        return moved

    def _again(self, replay: Replay, kind: Kind, local: Local, given: Tensors) -> Local:
        assert self._context is not None
        with torch.no_grad(), self._uncast:  # what was cast is recorded
            here = len(local.loss), kind
            if here not in self._settled:
                self._settled[here] = replay.settle(len(local.loss), *_fixed(self._context))
            return _rebuilt(local, replay.move(*self._settled[here], *given))


def _kind(tensors: Tensors, clients: int) -> Kind:
    if clients < _SEVERAL:
        return tuple([(tensor.shape, tensor.stride()) for tensor in tensors])
    shapes = [tensor.shape for tensor in tensors]
    inner = [shape[1:] if shape and shape[0] == clients else shape for shape in shapes]
    return tuple(zip(inner, [tensor.stride() for tensor in tensors], strict=True))


def _fixed(context: Context) -> Tensors:
    trees = context.anchor, context.buffers, context.client, context.server
    return [*(leaf for part in trees for leaf in part.values()), context.counts, context.travel]


def _moving(local: Local) -> Tensors:
    return [*local.params.values(), *local.buffers.values(), *local.optimizer.values(), local.loss]


def _rebuilt(like: Local, moved: Tensors) -> Local:
    """The inverse of `_moving`."""
    rest = iter(moved)

    def named(part: Params) -> Params:
        return {name: next(rest) for name in part}

    return Local(named(like.params), named(like.buffers), named(like.optimizer), next(rest))


def _examples(batch: Batch) -> Tensors:
    return [batch.x, batch.y] if batch.mask is None else [batch.x, batch.y, batch.mask]


def _record(recipe: Recipe, context: Context, local: Local, batch: Batch) -> tuple[Local, Replay | None]:
    """One step, and how to take it again with other tensors of the same shapes, if that is known."""
    clients = len(local.loss)
    moved, graph = _noted(recipe, context, local, batch)
    fewer, again = clients, graph
    if clients >= _SEVERAL:
        fewer = _SEVERAL if clients > _SEVERAL else _SEVERAL - 1
        few = slice(fewer)
        part = Batch(batch.x[few], batch.y[few], None if batch.mask is None else batch.mask[few])
        _, again = _noted(recipe, take(context, few), take(local, few), part)
    if graph is None or again is None or not _generalise(graph, again, clients, fewer):
        return moved, None
    return moved, _split(graph, 1 + len(_fixed(context)), clients)


def _noted(recipe: Recipe, context: Context, local: Local, batch: Batch) -> tuple[Local, Graph | None]:
    """One step, and the graph of its operations."""
    with _Recorder([*_fixed(context), *_moving(local), *_examples(batch)]) as recorder:
        moved = local_step(recipe, context, local, batch)
    return moved, recorder.graph(_moving(moved))


def _generalise(graph: Graph, other: Graph, clients: int, fewer: int) -> bool:
    """Let the graph of a step of so many clients take their number first, and compute sizes from it. `other` is the
    graph of the step with fewer clients. False if they differ in more than sizes in proportion to these numbers."""
    if len(graph.nodes) != len(other.nodes):
        return False
    pairs = list(zip(graph.nodes, other.nodes, strict=True))
    with graph.inserting_before(pairs[0][0]):
        number = graph.placeholder("clients")
    for node, twin in pairs:
        (values, form), (others, other_form) = (tree_flatten((n.args, n.kwargs)) for n in (node, twin))
        if (node.target, form) != (twin.target, other_form):
            return False
        for place, (value, changed) in enumerate(zip(values, others, strict=True)):
            if value == changed or str(value) == str(changed):  # a node's text is its name
                continue
            if not isinstance(value, int) or value % clients or value // clients * fewer != changed:
                return False
            with graph.inserting_before(node):
                values[place] = graph.call_function(operator.mul, (number, value // clients))
        node.args, node.kwargs = tree_unflatten(values, form)
    return True


class _Recorder(TorchDispatchMode):
    """Notes every operation on the given tensors and on what is made of them."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # to skip it, PyTorch would first import its compiler, which takes a second

    def __init__(self, given: Tensors) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._graph = Graph()
        self._known: dict[int, tuple[Tensor, Node]] = {}  # keeps the tensor, so that no other gets its id
        for number, tensor in enumerate(given):
            self._note(tensor, self._graph.placeholder(f"given_{number}"))
        self._complete = len(self._known) == len(given)  # a tensor that is given twice could be two the next time

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        noted = tree_map(self._node, (args, kwargs or {}))
        if func is torch.ops.aten.detach.default:
            node = noted[0][0]
        elif func in _LIKE and made.numel():
            look = made.shape, made.stride(), made.flatten()[0].item(), made.dtype, made.device
            node = self._graph.call_function(_filled, look)
        else:
            node = self._graph.call_function(func, *noted)
        self._complete &= torch.Tag.nondeterministic_seeded not in func.tags
        if isinstance(made, Tensor):
            self._note(made, node)
        elif isinstance(made, tuple | list):
            for place, part in enumerate(made):
                self._note(part, self._graph.call_function(operator.getitem, (node, place)))
        else:  # a number, on which the next operation may depend
            self._complete = False
        return made

    def _note(self, tensor: Tensor, node: Node) -> None:
        self._known[id(tensor)] = tensor, node

    def _node(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        self._complete &= id(value) in self._known
        return self._known.get(id(value), (None, None))[1]

    def graph(self, wanted: Tensors) -> Graph | None:
        """How the wanted tensors follow from the given ones; None if another tensor, such as a frozen parameter, or a
        number that was read from a tensor takes part, or chance."""
        self._graph.output([self._node(tensor) for tensor in wanted])
        self._graph.eliminate_dead_code()
        return self._graph if self._complete else None


def _split(graph: Graph, count: int, most: int) -> Replay:
    """What follows from the first `count` given tensors alone, and the rest, which is handed that."""
    given = [node for node in graph.nodes if node.op == "placeholder"]
    calls = [node for node in graph.nodes if node.op == "call_function"]
    wanted = next(node for node in graph.nodes if node.op == "output").args[0]
    settled = dict.fromkeys(given[:count])
    if not any(_in_place(node) for node in calls):  # which could change what is handed over
        for node in calls:
            if settled.keys() >= set(node.all_input_nodes):
                settled[node] = None
    handed = [node for node in settled if any(user not in settled for user in node.users)]
    return Replay(
        most=most,
        settle=_function(given[:count], [node for node in calls if node in settled], handed),
        move=_function([*handed, *given[count:]], [node for node in calls if node not in settled], wanted),
    )


def _filled(shape: Sequence[int], strides: Sequence[int], value: float, dtype: torch.dtype, device: Any) -> Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device=device).fill_(value)


def _in_place(call: Node) -> bool:
    schema = getattr(call.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _function(given: Sequence[Node], calls: Sequence[Node], wanted: Sequence[Node]) -> Callable[..., Tensors]:
    """The calls as a function from the given tensors to the wanted ones."""
    graph = Graph()
    here = {node: graph.placeholder(f"given_{number}") for number, node in enumerate(given)}
    for call in calls:
        here[call] = graph.node_copy(call, here.__getitem__)
    graph.output([here[node] for node in wanted])
    made: Callable[..., Tensors] = GraphModule(torch.nn.Module(), graph).forward
    return made
