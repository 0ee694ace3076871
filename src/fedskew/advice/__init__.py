"""Which method helps on whose skew, judged from the runs there are."""
