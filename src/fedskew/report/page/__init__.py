"""The report: one self-contained HTML file, made from runs of a store."""
