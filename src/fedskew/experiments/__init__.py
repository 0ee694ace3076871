"""Runs, their store, and what is made of them."""
