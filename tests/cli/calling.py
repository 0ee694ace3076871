"""A command as a user calls it, inside the test's own process."""

import pytest

from fedskew.cli import main


def call(capsys, *arguments):
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    out, err = capsys.readouterr()
    return caught.value.code, out, err
