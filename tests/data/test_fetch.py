"""Fetching, against a real server on this machine that can be slow, break off, lie, or know no ranges."""

import hashlib
import http.server
import io
import json
import os
import re
import resource
import socket
import subprocess
import sys
import tarfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fedskew.data import cifar, mnist
from fedskew.data import download as downloading
from fedskew.data import fetch as fetching
from fedskew.data.fetch import FetchError, Source, fetch, listing, verify
from tests.helpers.waiting import wait_until

NOISE = np.random.default_rng(0).integers(0, 256, 3_000_000, dtype=np.uint8).tobytes()
FILE, FOLDER, ARCHIVE = "plain.bin", "cifar-10-batches-bin", "cifar-10-binary.tar.gz"


class Server(http.server.ThreadingHTTPServer):
    """Serves `content`; each of the first answers breaks off after so many bytes as `cuts` says.

    All wait at their end for `go_on`."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.content, self.cuts, self.asked = {}, [], []
        self.ranges, self.announce, self.pause = True, True, 0.0
        self.go_on = threading.Event()
        self.go_on.set()
        self.address = f"http://127.0.0.1:{self.server_port}/data"

    def handle_error(self, request, client_address):
        """A client that leaves early is part of the tests."""


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        content = server.content.get(self.path.removeprefix("/data/"))
        if content is None:
            self.send_error(404)
            return
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and server.ranges else 0
        if start and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.announce:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        sent = content[start : start + server.cuts.pop(0)] if server.cuts else content[start:]
        for i in range(0, len(sent), 300_000):
            self.wfile.write(sent[i : i + 300_000])
            time.sleep(server.pause)
        server.go_on.wait()

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.go_on.set()
        running.shutdown()
        thread.join()


@pytest.fixture
def sources(monkeypatch, server):
    """Put one plain file, or an archive, in the place of the official ones."""

    def use(content, file=FILE, served=None, **more):
        server.content[file] = content if served is None else served
        source = Source(f"{server.address}/{file}", len(content), hashlib.sha256(content).hexdigest(), **more)
        monkeypatch.setattr(fetching, "SOURCES", {"set": (source,)})
        return source

    return use


def tar(members):
    """An archive of (name, content), or of ready TarInfo."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for member in members:
            info, content = member if isinstance(member, tuple) else (member, b"")
            if isinstance(info, str):
                info = tarfile.TarInfo(info)
                info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return raw.getvalue()


def link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def names(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_good(tmp_path, server, sources):
    sources(NOISE)
    seen = []
    paths = fetch("set", str(tmp_path / "new" / "place"), progress=lambda *now: seen.append(now))
    assert paths == [tmp_path / "new" / "place" / FILE]
    assert paths[0].read_bytes() == NOISE
    assert names(paths[0].parent) == [FILE]
    assert [total for _, total in seen] == [len(NOISE)] * len(seen)
    assert sorted(seen) == seen
    assert len(seen) > 2
    assert seen[-1][0] == len(NOISE)


def test_prints_nothing(tmp_path, server, sources, capfd):
    sources(NOISE)
    fetch("set", str(tmp_path))
    assert capfd.readouterr() == ("", "")


def test_present_file_is_not_fetched_again(tmp_path, server, sources):
    sources(NOISE)
    for _ in range(2):
        fetch("set", str(tmp_path))
    assert server.asked == [None]


def test_present_file_with_another_checksum_is_left_alone(tmp_path, server, sources):
    sources(NOISE)
    (tmp_path / FILE).write_bytes(b"my own")
    with pytest.raises(FetchError, match=r"plain\.bin is not the official file \(other checksum\); move it away"):
        fetch("set", str(tmp_path))
    assert (tmp_path / FILE).read_bytes() == b"my own"
    assert server.asked == []


def test_files_of_common_names_go_into_a_folder_of_their_own(tmp_path, server, sources):
    sources(NOISE[:1000], apart=True)
    (tmp_path / FILE).write_bytes(b"of another data set")
    assert fetch("set", str(tmp_path)) == fetch("set", str(tmp_path)) == [tmp_path / "set" / FILE]
    assert (tmp_path / "set" / FILE).read_bytes() == NOISE[:1000]
    assert len(server.asked) == 1


def test_several_files_share_one_progress(tmp_path, server, monkeypatch):
    server.content = {"a.bin": NOISE[:1000], "b.bin": NOISE[:500]}
    parts = [
        Source(f"{server.address}/{file}", len(content), hashlib.sha256(content).hexdigest())
        for file, content in server.content.items()
    ]
    monkeypatch.setattr(fetching, "SOURCES", {"set": tuple(parts)})
    seen = []
    assert [path.name for path in fetch("set", str(tmp_path), progress=lambda *now: seen.append(now))] == list(
        server.content
    )
    assert seen == [(1000, 1500), (1000, 1500), (1500, 1500), (1500, 1500)]


def test_broken_connection_is_resumed(tmp_path, server, sources):
    sources(NOISE)
    server.cuts = [1_000_000, 700_000]
    fetch("set", str(tmp_path))
    assert (tmp_path / FILE).read_bytes() == NOISE
    assert server.asked == [None, "bytes=1000000-", "bytes=1700000-"]


def test_truncated_then_resumed_by_the_next_fetch(tmp_path, server, sources):
    sources(NOISE)
    server.cuts = [1_000_000, 10, 10]
    with pytest.raises(FetchError, match=r"stopped at 1,000,020 of 3,000,000 bytes after 3 attempts; fetch again"):
        fetch("set", str(tmp_path))
    assert names(tmp_path) == [f"{FILE}.part"]
    assert listing(str(tmp_path))[0].state == "partial"
    server.asked.clear()
    fetch("set", str(tmp_path))
    assert server.asked == ["bytes=1000020-"]
    assert (tmp_path / FILE).read_bytes() == NOISE
    assert names(tmp_path) == [FILE]


def test_server_without_ranges_starts_over(tmp_path, server, sources):
    sources(NOISE)
    server.ranges, server.cuts = False, [1_000_000]
    fetch("set", str(tmp_path))
    assert server.asked == [None, "bytes=1000000-"]
    assert (tmp_path / FILE).read_bytes() == NOISE


def test_server_without_lengths(tmp_path, server, sources):
    sources(NOISE)
    server.announce, server.cuts = False, [1_000_000]
    fetch("set", str(tmp_path))
    assert (tmp_path / FILE).read_bytes() == NOISE


def test_corrupted_file_is_removed(tmp_path, server, sources):
    source = sources(NOISE, served=NOISE[:-1] + b"!")
    with pytest.raises(FetchError, match=f"official sha256 {source.sha256}; it was removed"):
        fetch("set", str(tmp_path))
    assert names(tmp_path) == []
    server.content[FILE] = NOISE
    fetch("set", str(tmp_path))
    assert (tmp_path / FILE).read_bytes() == NOISE


def test_resumed_after_other_bytes_is_caught(tmp_path, server, sources):
    sources(NOISE)
    (tmp_path / f"{FILE}.part").write_bytes(b"x" * 1000)
    with pytest.raises(FetchError, match="official sha256"):
        fetch("set", str(tmp_path))
    assert names(tmp_path) == []


def test_part_that_is_too_long_starts_over(tmp_path, server, sources):
    sources(NOISE[:1000])
    (tmp_path / f"{FILE}.part").write_bytes(b"x" * 2000)
    fetch("set", str(tmp_path))
    assert (tmp_path / FILE).read_bytes() == NOISE[:1000]
    assert server.asked == [None]


@pytest.mark.parametrize("size", [10, 2_999_999, 3_000_000 - 1_000])
def test_server_with_a_shorter_file(tmp_path, server, sources, size):
    sources(NOISE, served=NOISE[:size])
    (tmp_path / f"{FILE}.part").write_bytes(NOISE[:100])
    with pytest.raises(FetchError, match=f"has {size:,} bytes, the official file 3,000,000"):
        fetch("set", str(tmp_path))
    assert FILE not in names(tmp_path)


def test_slow_server(tmp_path, server, sources, monkeypatch):
    """The limit is on silence, not on the whole: ten pauses are longer than it, each is far shorter."""
    monkeypatch.setattr(downloading, "_TIMEOUT", (20, 2))
    sources(NOISE)
    server.pause = 0.25
    fetch("set", str(tmp_path))
    assert server.asked == [None]
    assert (tmp_path / FILE).read_bytes() == NOISE


def test_silent_server_is_given_up(tmp_path, server, sources, monkeypatch):
    monkeypatch.setattr(downloading, "_TIMEOUT", (20, 1))
    sources(NOISE)
    server.cuts = [100_000] * 3
    server.go_on.clear()
    with pytest.raises(FetchError, match="stopped at 196,608 of 3,000,000 bytes"):
        fetch("set", str(tmp_path))


def test_not_found(tmp_path, server, sources):
    sources(NOISE)
    server.content.clear()
    with pytest.raises(FetchError, match=r"plain\.bin answered 404 Not Found; give another address with --mirror"):
        fetch("set", str(tmp_path))
    assert names(tmp_path) == []


def test_refused_connection(tmp_path, sources):
    sources(NOISE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(FetchError, match=rf"cannot reach http://127\.0\.0\.1:{port}/plain\.bin \(Connection refused\)"):
        fetch("set", str(tmp_path), mirror=f"http://127.0.0.1:{port}")


def test_mirror(tmp_path, server, sources, monkeypatch):
    source = sources(NOISE)
    elsewhere = Source(f"http://127.0.0.1:9/{FILE}", source.bytes, source.sha256)
    monkeypatch.setattr(fetching, "SOURCES", {"set": (elsewhere,)})
    fetch("set", str(tmp_path), mirror=f"{server.address}/")
    assert (tmp_path / FILE).read_bytes() == NOISE


@pytest.mark.parametrize("mirror", ["ftp://host", "/tmp", ""])
def test_mirror_that_is_no_address(tmp_path, sources, mirror):
    sources(NOISE)
    with pytest.raises(ValueError, match=f"mirror is '{mirror}'; allowed: an address that begins with http"):
        fetch("set", str(tmp_path), mirror=mirror)


def test_unknown_and_manual_names(tmp_path):
    with pytest.raises(ValueError, match="unknown data set to fetch 'cifar11': did you mean cifar10"):
        fetch("cifar11", str(tmp_path))
    with pytest.raises(ValueError, match=r"flwrlabs/femnist into .*femnist.*preprocess\.sh"):
        fetch("femnist", str(tmp_path))
    with pytest.raises(ValueError, match=r"register at https://www\.image-net\.org.*imagenet12"):
        fetch("imagenet12", str(tmp_path))


def test_no_room(tmp_path, server, sources):
    sources(NOISE, unpacked=10**18)
    with pytest.raises(FetchError, match=r"MB free; 1,000,000,000,003 MB are needed"):
        fetch("set", str(tmp_path))
    assert server.asked == []


def test_place_that_cannot_be_written(tmp_path, sources):
    sources(NOISE)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(FetchError, match=r"cannot write to .*file.*--data-dir"):
        fetch("set", str(tmp_path / "file" / "data"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_without_permission(tmp_path, sources):
    sources(NOISE)
    tmp_path.chmod(0o500)
    with pytest.raises(FetchError, match=r"cannot write to .*Permission denied"):
        fetch("set", str(tmp_path))
    tmp_path.chmod(0o700)
    assert names(tmp_path) == []


def test_full_disk_while_extracting_leaves_nothing(tmp_path, server, sources):
    content = tar([(f"{FOLDER}/a.bin", b"a" * 1000), (f"{FOLDER}/b.bin", bytes(1_000_000))])
    sources(content, ARCHIVE, folder=FOLDER)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, limits[1]))
    try:
        with pytest.raises(FetchError, match="File too large"):
            fetch("set", str(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == [ARCHIVE]
    assert names(fetch("set", str(tmp_path))[0]) == ["a.bin", "b.bin"]


def test_full_disk_while_downloading_keeps_a_part(tmp_path, server, sources):
    sources(NOISE)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, limits[1]))
    try:
        with pytest.raises(FetchError, match="File too large"):
            fetch("set", str(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == [f"{FILE}.part"]
    fetch("set", str(tmp_path))
    assert (tmp_path / FILE).read_bytes() == NOISE


def test_archive_is_extracted_and_loads(tmp_path, server, sources, monkeypatch):
    monkeypatch.setattr(cifar, "BATCH", 2)
    files = {f"data_batch_{i}.bin": bytes([i]) * 2 * 3073 for i in range(1, 6)} | {"test_batch.bin": bytes(2 * 3073)}
    content = tar([(f"{FOLDER}/{file}", raw) for file, raw in files.items()])
    sums = {file: hashlib.sha256(raw).hexdigest() for file, raw in files.items()}
    sources(content, ARCHIVE, folder=FOLDER, files=sums)
    assert fetch("set", str(tmp_path)) == [tmp_path / FOLDER]
    assert names(tmp_path) == [FOLDER, ARCHIVE]
    assert cifar.cifar10(str(tmp_path)).y_train.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    (tmp_path / ARCHIVE).unlink()
    assert fetch("set", str(tmp_path)) == [tmp_path / FOLDER]
    assert server.asked == [None]
    (tmp_path / FOLDER / "test_batch.bin").unlink()
    with pytest.raises(FetchError, match=r"test_batch\.bin is not the official file \(missing\); move it away"):
        fetch("set", str(tmp_path))


@pytest.mark.parametrize(
    "members",
    [
        [("../escaped", b"x")],
        [(f"{FOLDER}/../../escaped", b"x")],
        [("/tmp/fedskew-escaped", b"x")],
        [("other/file", b"x")],
        [link(f"{FOLDER}/out", "../.."), (f"{FOLDER}/out/escaped", b"x")],
        [link(f"{FOLDER}/out", "/etc/passwd")],
        [link(f"{FOLDER}/out", "../../escaped", tarfile.LNKTYPE)],
        [link(f"{FOLDER}/device", "", tarfile.CHRTYPE)],
    ],
)
def test_archive_that_escapes_is_refused(tmp_path, server, sources, members):
    root = tmp_path / "a" / "data"
    sources(tar([(f"{FOLDER}/good.bin", b"good"), *members]), ARCHIVE, folder=FOLDER)
    with pytest.raises(FetchError, match=r"cifar-10-binary\.tar\.gz is refused"):
        fetch("set", str(root))
    assert names(root) == [ARCHIVE]
    assert not list(tmp_path.rglob("*escaped*"))


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_damaged_archive(tmp_path, server, sources, share):
    whole = tar([(f"{FOLDER}/a.bin", NOISE[:100_000])])
    sources(whole[: int(len(whole) * share)] or b"nothing", ARCHIVE, folder=FOLDER)
    with pytest.raises(FetchError, match=r"cifar-10-binary\.tar\.gz is damaged"):
        fetch("set", str(tmp_path))
    assert names(tmp_path) == [ARCHIVE]


def test_archive_without_its_folder(tmp_path, server, sources):
    sources(tar([]), ARCHIVE, folder=FOLDER)
    with pytest.raises(FetchError, match="has no cifar-10-batches-bin/"):
        fetch("set", str(tmp_path))


def test_concurrent_threads_fetch_once(tmp_path, server, sources):
    sources(tar([(f"{FOLDER}/a.bin", NOISE)]), ARCHIVE, folder=FOLDER)
    server.pause = 0.02
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: fetch("set", str(tmp_path)), range(4)))
    assert paths == [[tmp_path / FOLDER]] * 4
    assert (tmp_path / FOLDER / "a.bin").read_bytes() == NOISE
    assert server.asked == [None]


def test_concurrent_processes_fetch_once(tmp_path, server, sources):
    source = sources(NOISE)
    server.pause = 0.05
    script = (
        "import sys, json; from fedskew.data import fetch as f\n"
        "f.SOURCES['set'] = (f.Source(*json.loads(sys.argv[1])),)\n"
        "print(f.fetch('set', sys.argv[2])[0])"
    )
    told = json.dumps([source.url, source.bytes, source.sha256])
    command = [sys.executable, "-c", script, told, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0].strip() for process in running] == [str(tmp_path / FILE)] * 2
    assert server.asked == [None]
    assert (tmp_path / FILE).read_bytes() == NOISE
    assert names(tmp_path) == [FILE]


def test_killed_fetch_goes_on_where_it_was(tmp_path, server, sources):
    source = sources(NOISE)
    server.cuts = [900_000]
    server.go_on.clear()
    script = (
        "import sys, json; from fedskew.data import fetch as f\n"
        "f.SOURCES['set'] = (f.Source(*json.loads(sys.argv[1])),)\n"
        "f.fetch('set', sys.argv[2])"
    )
    told = json.dumps([source.url, source.bytes, source.sha256])
    process = subprocess.Popen([sys.executable, "-c", script, told, str(tmp_path)])
    part = tmp_path / f"{FILE}.part"
    wait_until(lambda: part.exists() and part.stat().st_size > 500_000, process)
    process.kill()
    process.wait()
    server.go_on.set()
    assert not (tmp_path / FILE).exists()
    server.asked.clear()
    fetch("set", str(tmp_path))
    assert (tmp_path / FILE).read_bytes() == NOISE
    assert int(server.asked[0].removeprefix("bytes=").removesuffix("-")) > 500_000


def test_verify(tmp_path, monkeypatch):
    good, folder_file = b"good", b"in a folder"
    plain = Source(f"http://x/{FILE}", 4, hashlib.sha256(good).hexdigest())
    sums = {"a.bin": hashlib.sha256(folder_file).hexdigest(), "b.bin": "0" * 64, "c.bin": "0" * 64}
    archive = Source(f"http://x/{ARCHIVE}", 4, "0" * 64, FOLDER, sums, others=("cifar-10-batches-py",))
    monkeypatch.setattr(fetching, "SOURCES", {"plain": (plain,), "set": (archive,)})
    assert verify(str(tmp_path)) == []
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / FILE).write_bytes(good)
    (tmp_path / ARCHIVE).write_bytes(b"rebuilt")
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "a.bin").write_bytes(folder_file)
    (tmp_path / FOLDER / "b.bin").write_bytes(folder_file[:-1])
    (tmp_path / "cifar-10-batches-py").mkdir()
    found = {status.path.name: (status.state, status.bytes) for status in verify(str(tmp_path))}
    assert found == {
        FILE: ("good", 4),
        ARCHIVE: ("other checksum", 7),
        "a.bin": ("good", 11),
        "b.bin": ("other checksum", 10),
        "c.bin": ("missing", 0),
        "cifar-10-batches-py": ("not checked", 0),
    }


def test_listing(tmp_path):
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "a.bin").write_bytes(b"12345")
    (tmp_path / "cifar-100-python.tar.gz").write_bytes(b"1234")
    (tmp_path / "svhn").mkdir()
    (tmp_path / "svhn" / "train_32x32.mat").write_bytes(b"123")
    (tmp_path / "test_32x32.mat.part").write_bytes(b"12")
    found = {status.path.relative_to(tmp_path).as_posix(): status for status in listing(str(tmp_path))}
    assert {path: (status.name, status.state, status.bytes) for path, status in found.items()} == {
        **{f"{name}/{file}.gz": (name, "missing", 0) for name in ("mnist", "fashion_mnist") for file in mnist.FILES},
        FOLDER: ("cifar10", "present", 5),
        "cifar-100-python.tar.gz": ("cifar100", "present", 4),
        "svhn/train_32x32.mat": ("svhn", "present", 3),
        "test_32x32.mat.part": ("svhn", "partial", 2),
        "extra_32x32.mat": ("svhn-extra", "missing", 0),
        "femnist": ("femnist", "missing", 0),
        "imagenet12": ("imagenet12", "missing", 0),
    }
    assert found[FOLDER].source == "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
    assert [status.state for status in listing(str(tmp_path / "nowhere"))] == ["missing"] * 15


def test_registry_is_well_formed():
    for parts in fetching.SOURCES.values():
        for source in parts:
            for sha256 in (source.sha256, *source.files.values()):
                assert re.fullmatch("[0-9a-f]{64}", sha256)
            assert (source.folder is None) == (not source.files) == (source.unpacked == 0)
