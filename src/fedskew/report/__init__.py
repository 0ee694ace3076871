"""Summaries, tables and figures for readers, made only from the store."""
