"""What a run is, where it is stored, and what its numbers mean."""
