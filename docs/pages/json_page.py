"""The page on what commands print with `--json`, from the types in `fedskew.cli.documents`."""

import re
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin

from typing_extensions import get_type_hints, is_typeddict

from fedskew.cli.advice_document import Advice
from fedskew.cli.documents import (
    ComparedMethods,
    CondensedRuns,
    DataFiles,
    ExportedModel,
    FetchedData,
    ListedRun,
    Method,
    PaperItem,
    PaperMap,
    PaperRuns,
    PaperTable,
    PartitionCard,
    RemovedRuns,
    Report,
    RunResult,
    ShownRun,
    SweptSettings,
    TunedMethods,
    UnreadableRun,
    WrittenFiles,
)

DOCUMENTS: dict[str, Any] = {
    "run": RunResult,
    "compare": ComparedMethods,
    "sweep": SweptSettings,
    "tune": TunedMethods,
    "inspect": PartitionCard,
    "methods": list[Method],
    "advise": Advice,
    "report": Report,
    "paper list": list[PaperItem],
    "paper run": PaperRuns,
    "paper show": PaperTable,
    "paper map": PaperMap,
    "runs list": list[ListedRun | UnreadableRun],
    "runs show": ShownRun,
    "runs remove": RemovedRuns,
    "runs condense": CondensedRuns,
    "export": ExportedModel,
    "data list": list[DataFiles],
    "data verify": list[DataFiles],
    "data fetch": FetchedData,
    "flower init": WrittenFiles,
    "flower certificates": WrittenFiles,
}
"""What commands print with `--json`, by command."""
HEAD = """# What commands print as JSON

With `--json` a command prints one document on standard output. Below is every key of every document, first by command,
then the [parts](#parts) that they share. An "object of X" maps names, such as those of methods, to X. Integers count as
numbers. `make reproduction` writes this page from the types in `src/fedskew/cli/documents.py`, and a test compares what
commands print with those types. For `fedskew diagnose`, see
[the page on diagnostics](diagnostics.md#the-document-of-fedskew-diagnose).
"""
PLAIN = {str: "text", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def page() -> str:
    """The whole page: each command's document, then each part once, in the order in which they are first met."""
    parts = dict.fromkeys(part for document in DOCUMENTS.values() for part in _below(_whole(document)))
    commands = [_command(name) for name, document in DOCUMENTS.items() if name == _printing(document)[0]]
    shown = [f"### {title(part)}\n\n{_table(part)}" for part in parts]
    return "\n".join([HEAD, *commands, "## Parts\n", *shown]).rstrip() + "\n"


def title(part: type) -> str:
    """`Method row` of `MethodRow`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", part.__name__).capitalize()


def said(hint: Any) -> str:
    """A type in words; a part is a link to its table."""
    if hint in PLAIN:
        return PLAIN[hint]
    if is_typeddict(hint):
        return f"[{title(hint)}](#{title(hint).lower().replace(' ', '-')})"
    if get_origin(hint) in (UnionType, Union):
        return " or ".join(said(each) for each in get_args(hint))
    assert get_origin(hint) in (list, dict), f"no words for {hint}"
    kind, inner = "list" if get_origin(hint) is list else "object", get_args(hint)[-1]
    if inner is Any:
        return kind
    return f"{kind} of ({said(inner)})" if " or " in said(inner) else f"{kind} of {said(inner)}"


def _printing(document: Any) -> list[str]:
    """The commands that print a document."""
    return [name for name, each in DOCUMENTS.items() if each == document]


def _command(name: str) -> str:
    document = DOCUMENTS[name]
    names = ", ".join(f"`fedskew {each}`" for each in _printing(document))
    whole = _whole(document)
    text = _table(whole) if is_typeddict(whole) else f"Each element is {said(whole)}.\n"
    return f"## {names}\n\n{text if whole is document else 'A list. ' + text}"


def _whole(document: Any) -> Any:
    """The document, or what it is a list of."""
    return get_args(document)[0] if get_origin(document) is list else document


def _table(document: type) -> str:
    rows = [f"| `{name}` | {said(hint)} | {meaning} |" for name, hint, meaning in _keys(document)]
    return "\n".join([f"{document.__doc__}\n", "| key | type | meaning |", "| --- | --- | --- |", *rows, ""])


def _keys(document: type) -> Iterator[tuple[str, Any, str]]:
    """Each key with its type and its meaning."""
    for name, hint in get_type_hints(document, include_extras=True).items():
        kind: Any = get_origin(hint)
        annotated = get_args(hint)[0] if kind is NotRequired else hint
        assert get_origin(annotated) is Annotated, f"{document.__name__}.{name} has no meaning"
        yield name, *get_args(annotated)


def _below(hint: Any, *, itself: bool = False) -> Iterator[type]:
    """The parts in a type, itself left out if it is a whole document."""
    if is_typeddict(hint):
        if itself:
            yield hint
        for _, inner, _ in _keys(hint):
            yield from _below(inner, itself=True)
    for inner in get_args(hint):
        yield from _below(inner, itself=True)
