"""The tables and figures of Zhang et al., "Federated Learning with Label Distribution Skew via Logits Calibration"."""

from fedskew import spec
from fedskew.experiments.paper import table1, table2, table3, table4, table5, table6, table7
from fedskew.experiments.paper.table import Table

TABLES: dict[str, Table] = {
    module.TABLE.name: module.TABLE for module in (table1, table2, table3, table4, table5, table6, table7)
}

ITEMS: dict[str, Table] = {**TABLES}


def table_of_cell(cell: str) -> Table:
    """The first table that has a cell."""
    for table in TABLES.values():
        if cell in table.cells:
            return table
    raise ValueError(spec.unknown("cell", cell, {name: None for table in TABLES.values() for name in table.cells}))
