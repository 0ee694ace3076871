"""Flower's own programs out of a process that has imported them already: `python -m tests.flower.warm FOLDER`.

Flower starts a process for every message, and most of its time goes into importing torch. The programs in FOLDER/bin
hand their arguments and outputs over to this server, which forks: what runs is Flower's own function, in a process of
its own. `flwr` waits for its end; the others are begun by programs of Flower's that do not wait for them.
"""

import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

PROGRAMS = ("flwr", "flower-superexec", "flwr-serverapp", "flwr-clientapp", "flwr-simulation")
READY, ADDRESS = "ready", "warm"
_SHIM = """\
#!{python} -IS
import os, socket, sys
os.chdir({folder!r})  # an address has room for a hundred characters
there = socket.socket(socket.AF_UNIX)
there.connect({address!r})
socket.send_fds(there, ["\\0".join([{name!r}, *sys.argv[1:]]).encode()], [1, 2])
there.shutdown(socket.SHUT_WR)
sys.exit(int(there.recv(16) or 1) if {name!r} == "flwr" else 0)
"""


def main(folder: Path) -> None:
    import ray  # noqa: F401
    import torch.fx.experimental.symbolic_shapes  # what the first gradient would import  # noqa: F401

    import fedskew.flower  # noqa: F401

    found = {entry.name: entry for entry in entry_points(group="console_scripts") if entry.name in PROGRAMS}
    programs = {name: entry.load() for name, entry in found.items()}
    os.chdir(folder)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(ADDRESS)
        server.listen(64)
        for name in PROGRAMS:
            program = _SHIM.format(python=sys.executable, folder=str(folder), address=ADDRESS, name=name)
            (folder / "bin" / name).write_text(program)
            (folder / "bin" / name).chmod(0o755)
        print(READY, flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
        while True:
            serve(server, programs)


def serve(server: socket.socket, programs: dict) -> None:
    there, _ = server.accept()
    with there:
        content, fds, *_ = socket.recv_fds(there, 2**16, 2)
        while more := there.recv(2**16):
            content += more
        if not os.fork():
            server.close()
            run(programs, content.decode().split("\0"), there, *fds)
        for fd in fds:
            os.close(fd)


def run(programs: dict, arguments: list[str], there: socket.socket, out: int, err: int) -> None:
    """The child's part; it does not return."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.dup2(out, 1)
        os.dup2(err, 2)
        sys.argv = arguments
        code = programs[arguments[0]]() or 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(BrokenPipeError):  # only `flwr` waits for it
            there.sendall(str(code).encode())
        os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
