"""Which method helps under which skew, judged from existing runs."""
