"""JSON objects that show whether they were changed: their last field is a checksum of all text before it.

Text without a seal is from an earlier version and is trusted if it has the right form.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

from pydantic import AfterValidator, TypeAdapter, ValidationError

_DIGITS = 16
_SEAL = re.compile(rb',\s*"seal": "([0-9a-f]{%d})"\s*\}\s*\Z' % _DIGITS)
_TAIL = 64
"""Bytes at the end of a text that hold the seal, if it has one."""
_SHOWN = 60
"""Characters of a wrong value that an error shows."""


class Damaged(ValueError):
    """Text that was changed after it was written, or does not have the right form."""


def seal(content: Mapping[str, Any], indent: int | None = None) -> bytes:
    """A non-empty object as sealed JSON."""
    text = json.dumps(content, allow_nan=False, indent=indent).encode()[:-1].rstrip()
    space, end = ("\n" + " " * indent, "\n") if indent else (" ", "")
    return text + f',{space}"seal": "{_checksum(text)}"{end}}}'.encode()


def unseal(form: Any, text: bytes) -> dict[str, Any]:
    """The content of a text, checked against a form: a TypedDict, or a type of dictionary."""
    found = _SEAL.search(text, max(0, len(text) - _TAIL))
    if found is not None:
        if _checksum(text[: found.start()]) != found[1].decode():
            raise Damaged("it was changed after it was written: its checksum does not match")
        text = text[: found.start()] + b"}"
    try:
        content: dict[str, Any] = _adapter(form).validate_json(text)
    except ValidationError as error:
        raise Damaged(explained(error)) from None
    if found is None and _like_seal(*next(reversed(content.items()), ("", ""))):
        raise Damaged("its checksum is damaged")
    return content


def _like_seal(name: str, value: object) -> bool:
    """Whether the last field may have been a seal before it was damaged."""
    return len(name) == len("seal") and isinstance(value, str) and len(value) == _DIGITS


@lru_cache
def _adapter(form: Any) -> TypeAdapter[Any]:
    return TypeAdapter(form)


def explained(error: ValidationError) -> str:
    """What is wrong, in a line: field, value, what is allowed."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return "it is not JSON"
    name = ".".join(str(part) for part in first["loc"]) or "it"
    if first["type"] in ("missing", "missing_argument"):
        return f"{name} is missing"
    message = first["msg"].removeprefix("Value error, ").replace("Input should be", "allowed:")
    shown = json.dumps(first["input"], default=str)
    short = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    return f"{name} is {short}; {message[0].lower()}{message[1:]}"


def _line(text: str) -> str:
    """Refuse control characters, which a terminal would interpret."""
    if any(unicodedata.category(letter) == "Cc" for letter in text):
        raise ValueError("allowed: text without control characters")
    return text


Line = Annotated[str, AfterValidator(_line)]
"""Text that may be shown on a terminal."""


def _checksum(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:_DIGITS]
