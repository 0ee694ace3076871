"""The pages of the documentation that are written from results and types: `docs/generate.py` calls them."""
