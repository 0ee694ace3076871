"""Ctrl-C and SIGTERM, remembered: Python drops an exception that is raised inside a destructor or a callback."""


class Interruption:
    """A handler of signals."""

    seen = False
    in_vain = False
    """Whether it is known that nothing was finished before."""

    def __call__(self, signum: int, frame: object) -> None:
        self.seen = True
        raise KeyboardInterrupt

    def check(self) -> None:
        if self.seen:
            raise KeyboardInterrupt
