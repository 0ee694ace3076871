"""The app's configuration, `[tool.flwr.app.config]`: the fields of a run, and the rules of its federation."""

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedskew.core import spec
from fedskew.core.files import sha256_of
from fedskew.runs.run import Run, explain

WORDS_FOR_NONE = {"grad_clip": "none", "data_dir": ""}
"""How an app says that these fields of a run are not set. `flwr run` overrides only keys that an app has."""


class Rules(BaseModel):
    """How a server treats its nodes. The configuration keys have the same names, with dashes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: str = ""
    """Folder that keeps the run, to be continued by the next `flwr run`; empty: nothing is kept."""
    min_clients: Annotated[int, Field(ge=0)] = 0
    """Valid answers that a round needs; 0: half of the sampled clients, rounded up."""
    on_bad_reply: Literal["refuse", "fail"] = "refuse"
    """Whether a round continues without an invalid answer, or the run fails."""
    round_timeout: Annotated[float, Field(gt=0)] = 3600.0
    """Seconds after which a client counts as not answering."""
    resend_after: Annotated[float, Field(gt=0)] = 60.0
    """Seconds without a reply after which the server asks a node whether it still works on its message, and sends the
    message again if not. It waits longer if replies have needed more than a third of that."""
    start_timeout: Annotated[float, Field(gt=0)] = 600.0
    """Seconds to wait for all clients before the first round."""
    max_norm: Annotated[float, Field(ge=0)] | Literal["auto", "off"] = "auto"
    """An answer whose model is farther than this from the global one is refused; auto: a limit learnt from the other
    answers; off or 0: no limit."""
    max_examples: Annotated[int, Field(ge=0)] | Literal["auto", "off"] = "auto"
    """An answer that claims more examples, or a different number than when its node joined, is refused; auto: as many
    as the data set has; off or 0: no check."""

    @field_validator("store")
    @classmethod
    def _absolute(cls, given: str) -> str:
        if given and not Path(given).expanduser().is_absolute():
            raise ValueError("must be an absolute path, because Flower manages the server app's folder")
        return given

    @field_validator("max_norm", "max_examples", mode="before")
    @classmethod
    def _word(cls, given: Any) -> Any:
        if (isinstance(given, str) and given not in ("auto", "off")) or isinstance(given, bool):
            raise ValueError("allowed: auto, off or a number of at least 0")
        return given

    def needed(self, sampled: int) -> int:
        """How many of the sampled clients must give a valid answer: by default half."""
        return min(sampled, self.min_clients or -(-sampled // 2))

    def folder(self) -> Path | None:
        """The store's folder, if there is a store."""
        return Path(self.store).expanduser() if self.store else None


def read_run(config: Mapping[str, Any]) -> Run:
    """The run that a configuration describes; keys of `Rules` are left to `read_rules`."""
    given = {key.replace("-", "_"): value for key, value in config.items()}
    for name in given:
        if name not in Run.model_fields and name not in Rules.model_fields:
            raise ValueError(spec.unknown("key in the app's config", name, {**Run.model_fields, **Rules.model_fields}))
    given = {name: None if value == WORDS_FOR_NONE.get(name) else value for name, value in given.items()}
    return Run(**{name: value for name, value in given.items() if name in Run.model_fields})


def read_rules(config: Mapping[str, Any]) -> Rules:
    """The rules that a configuration describes; other keys are ignored."""
    given = {key.replace("-", "_"): value for key, value in config.items()}
    try:
        return Rules(**{name: value for name, value in given.items() if name in Rules.model_fields})
    except ValidationError as error:
        raise ValueError(explain(error).replace("_", "-")) from error


MODS = dict[Path | None, str]()
"""The mods of a folder's client app, by name. Its server app can name them, since both are made in one process."""


def app_digest(folder: Path) -> str:
    """A digest of an app's own Python files."""
    pattern, digest = "**/*.py" if (folder / "pyproject.toml").exists() else "*.py", hashlib.sha256()
    for path in sorted(folder.glob(pattern)):
        digest.update(f"{path.relative_to(folder).as_posix()} {sha256_of(path)}\n".encode())
    return digest.hexdigest()[:16]


def caller_folder() -> Path | None:
    """The folder of the module that called our caller: the app's, wherever Flower has installed it."""
    file = sys._getframe(2).f_globals.get("__file__")
    return Path(file).resolve().parent if file else None
