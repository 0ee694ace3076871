"""The report: one HTML file that needs nothing else, made from runs of a store."""
