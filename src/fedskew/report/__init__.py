"""What people read: summaries, tables and figures, made from the store alone."""
