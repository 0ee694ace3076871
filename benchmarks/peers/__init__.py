"""The same rounds in other simulators, each in a virtual environment of its own (`make bench-peers`)."""
