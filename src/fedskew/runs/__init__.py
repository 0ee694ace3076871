"""What a run is, where it is kept, and what its numbers say."""
