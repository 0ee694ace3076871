"""The logistic regression that several benchmarks share. Peers read this too: nothing may be imported here."""

FEATURES, CLASSES, BATCH, COHORT, LR = 60, 10, 10, 100, 0.01
