"""What people see in a terminal: progress, tables, live curves."""
