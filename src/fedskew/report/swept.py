"""A sweep: a row per setting, as tables and for the figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedskew.core import spec
from fedskew.core.spec import Value
from fedskew.report.comparison import FinishedRun, heads_of, stored, write_texts
from fedskew.report.result_table import DIFFERENCE_COLUMNS, difference_values, result_latex, shown_measures
from fedskew.report.text_tables import as_csv, as_markdown
from fedskew.runs.store import Store
from fedskew.runs.summary import MEASURES, held_out, mean_head, over_seeds, percent, setting_text, summarise
from fedskew.runs.verdict import MEASURE, Difference, ahead

if TYPE_CHECKING:
    from fedskew.simulation.sweep import PlannedSetting

FEDERATION = ("dataset", "partition", "clients")
"""Fields that say what is to be learnt by whom; the others say how."""


@dataclass(frozen=True)
class SweepTable:
    """A row per setting: its `values`, what `over_seeds` has, `against_reference` and the hashes of its runs.

    A setting is compared with the reference, on another federation with the same setting there. If nothing but the
    federation differs, federations are compared.
    """

    title: str
    rows: list[dict[str, Any]]
    reference: int

    @classmethod
    def of(
        cls,
        settings: "Sequence[PlannedSetting]",
        runs: Sequence[Sequence[FinishedRun]],
        reference: int = 0,
        title: str = "",
    ) -> "SweepTable":
        """The rows of settings, each with its finished runs."""
        rows = [_row(setting, group) for setting, group in zip(settings, runs, strict=True)]
        found = cls(title, rows, reference)
        for row, difference in zip(rows, found.differences, strict=True):
            row["against_reference"] = None if difference is None else difference.as_dict()
        return found

    @property
    def names(self) -> list[str]:
        """The fields and arguments that differ between settings."""
        return [name for name in self.rows[0]["values"] if len(self.values(name)) > 1]

    def values(self, name: str) -> list[Value]:
        """All values of a field or argument, in order."""
        return list(dict.fromkeys(row["values"][name] for row in self.rows))

    @property
    def measure(self) -> str:
        """What settings are judged by: held-out examples, if every setting has some."""
        without = any(row["values"].get("validation") == 0 for row in self.rows)
        return MEASURE if without else (held_out(self.rows) or [MEASURE])[0]

    @property
    def differences(self) -> list[Difference | None]:
        """Each setting against its reference, by the verdict rule; None for a reference itself."""
        bases = [self._base(row) for row in self.rows]
        return [
            None if base is None or base is row else ahead(row, base, self.measure)
            for row, base in zip(self.rows, bases, strict=True)
        ]

    @property
    def _compared(self) -> list[str]:
        """The names whose values are compared."""
        return [name for name in self.names if name not in FEDERATION] or self.names

    def _base(self, row: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The row that a row is compared with; None if there is no such setting on its federation."""
        main = self.rows[self.reference]
        wanted = {**row["values"], **{name: main["values"][name] for name in self._compared}}
        return next((base for base in self.rows if base["values"] == wanted), None)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Heads and cells as people read them."""
        measures = ["accuracy", "accuracy_last10", *held_out(self.rows)]
        known = heads_of(self._end)
        apart = f"{known[self.measure].removesuffix(' %')} − ({self._base_text}), points"
        heads = [*self.names, *(known[measure] for measure in measures), apart]
        lines = []
        for row, difference, shown in zip(self.rows, self.differences, self._settings(), strict=True):
            cells = [percent(row[measure]["mean"], row[measure]["std"]) for measure in measures]
            said = "reference" if row is self._base(row) else "-" if difference is None else str(difference)
            if row["diverged"] and not (difference and difference.lost):
                said += f" ({row['diverged']} diverged)"
            lines.append([*shown, *cells, said])
        return heads, lines

    def markdown(self) -> str:
        return "\n".join(as_markdown(*self.table())) + "\n"

    def latex(self) -> str:
        """For a paper."""
        base = self._base_text + ("" if self.measure == MEASURE else ", held out")
        measures = shown_measures(self.rows, self._end)
        runs = [row["runs"] for row in self.rows]
        return result_latex(self.names, self._settings(), self.rows, measures, self.differences, base, runs)

    @property
    def _base_text(self) -> str:
        """What settings are compared with: the reference, without the federation if each is compared on its own."""
        values = self.rows[self.reference]["values"]
        return setting_text({name: values[name] for name in self._compared})

    @property
    def _end(self) -> str:
        return mean_head(row["rounds"] for row in self.rows)

    def _settings(self) -> list[list[str]]:
        """The values of each row, under `names`."""
        return [
            ["-" if (v := row["values"][name]) is None else spec.show(v) for name in self.names] for row in self.rows
        ]

    def csv(self) -> str:
        """A line per setting, with fractions; the difference is in points."""
        heads = [*self.names, "rounds", "seeds", "diverged", *(f"{m}_{p}" for m in MEASURES for p in ("mean", "std"))]
        lines = []
        for row in self.rows:
            figures = [row[measure][part] for measure in MEASURES for part in ("mean", "std")]
            shown = [None if (v := row["values"][name]) is None else spec.show(v) for name in self.names]
            counts = [row["rounds"], len(row["seeds"]), row["diverged"]]
            lines.append([*shown, *counts, *figures, *difference_values(row["against_reference"])])
        return as_csv([*heads, *DIFFERENCE_COLUMNS], lines)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        swept = {name: self.values(name) for name in self.names}
        return {"swept": swept, "measure": self.measure, "reference": self.reference, "rows": self.rows}

    def write(self, out: Path) -> list[Path]:
        """The table as Markdown, LaTeX and CSV, and the figure."""
        from fedskew.report.figures import save
        from fedskew.report.sweep_figure import swept_figure

        out.mkdir(parents=True, exist_ok=True)
        made = write_texts(out / "table", {"md": self.markdown(), "tex": self.latex(), "csv": self.csv()})
        return [*made, *save(swept_figure(self), out / "sweep")]


def stored_runs(store: Store, settings: "Sequence[PlannedSetting]") -> list[list[FinishedRun]]:
    """The runs of each setting that a store has."""
    return [[stored(store, hash, setting.rounds) for hash in setting.hashes] for setting in settings]


def _row(setting: "PlannedSetting", runs: Sequence[FinishedRun]) -> dict[str, Any]:
    summaries = [summarise(one.run, one.records, one.card) for one in runs]
    about = {"values": dict(setting.values), "rounds": setting.rounds, "runs": list(setting.hashes)}
    return {**about, **over_seeds(summaries)}
