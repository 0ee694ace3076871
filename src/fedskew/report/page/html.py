"""HTML tags with escaped content: only this module produces markup."""

import re
from collections.abc import Iterable
from html import escape


class Html(str):
    """Text that is already markup."""

    __slots__ = ()


Content = str | int | Html | Iterable["Content"] | None


def tag(name: str, *content: Content, **attributes: str | float | bool | None) -> Html:
    """An element; attributes that are None or False are left out, `class_` is `class`, `data_x` is `data-x`."""
    written = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        written += f" {word}" if value is True else f' {word}="{escape(str(value))}"'
    inside = join(content)
    return Html(f"<{name}{written}>{inside}</{name}>")


def join(content: Content) -> Html:
    """All contents joined, with plain text escaped."""
    if content is None:
        return Html("")
    if isinstance(content, Html):
        return content
    if isinstance(content, str | int):
        return Html(escape(str(content)))
    return Html("".join(join(part) for part in content))


def prose(text: str, store: str = "") -> Html:
    """A sentence whose words in backticks are code. Commands get the option that names the store."""
    pieces = re.split("`([^`]+)`", in_store(text, store))
    return join([tag("code", piece) if i % 2 else piece for i, piece in enumerate(pieces)])


def in_store(text: str, store: str) -> str:
    """A sentence with ` --runs demo/runs`, or nothing, at the end of every command in backticks that names no store."""
    return re.sub("`(fedskew (?:(?! --runs )[^`])+)`", lambda found: f"`{found[1]}{store}`", text)


def table(caption: str, heads: Iterable[Content], rows: Iterable[Iterable[Html]], class_: str = "") -> Html:
    """A captioned table in a frame that scrolls and can be reached by keyboard."""
    top = tag("tr", [tag("th", head, scope="col") for head in heads])
    body = tag("tbody", [tag("tr", list(row)) for row in rows])
    inner = tag("table", tag("caption", tag("span", caption)), tag("thead", top), body, class_=class_ or None)
    return tag("div", inner, class_="scroll", role="region", tabindex=0, aria_label=caption)


def head(*content: Content, **attributes: str | float | bool | None) -> Html:
    """The cell that names its row."""
    return tag("th", *content, scope="row", **attributes)


def cell(*content: Content, **attributes: str | float | bool | None) -> Html:
    return tag("td", *content, **attributes)
