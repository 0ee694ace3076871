import json
import os

import numpy as np
import pytest

from fedskew.partition.count_file import read_counts

TABLE = [[5, 0, 3], [1, 2, 9]]


@pytest.mark.parametrize(
    "text",
    [
        "5,0,3\n1,2,9\n",
        "5;0;3\n1;2;9",
        "5\t0\t3\r\n1\t2\t9\r\n",
        "\ufeff5, 0, 3\n\n1,2,9\n",
        "cat,dog,fox\n5,0,3\n1,2,9\n",
        "0,1,2\n5,0,3\n1,2,9\n",
        ",0,1,2\n0,5,0,3\n1,1,2,9\n",
        "client,0,1,2\n0,5,0,3\n1,1,2,9\n",
        "Client,cat,dog,fox\nnorth,5,0,3\nsouth,1,2,9\n",
        'north,5,0,3\n"south, old",1,2,9\n',
        "[[5, 0, 3], [1, 2, 9]]",
        json.dumps({"counts": TABLE, "dataset": "digits"}),
    ],
)
def test_the_same_counts_in_every_form(tmp_path, text):
    path = tmp_path / "counts"
    path.write_text(text, encoding="utf-8")
    counts, _ = read_counts(path)
    assert counts.dtype == np.int64
    assert counts.tolist() == TABLE


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("0,1,2\n5,0,3\n", {"note": "line 1 was taken for class numbers"}),
        ("\n1,2,3\n5,0,3\n", {"note": "line 2 was taken for class numbers"}),
        ("client,0,1,2\na,5,0,3\n", {}),
        ("1,2,3\n", {}),
        ("5,0,3\n1,2,3\n", {}),
    ],
)
def test_a_skipped_line_of_numbers_is_said(tmp_path, text, note):
    path = tmp_path / "counts.csv"
    path.write_text(text)
    assert read_counts(path)[1] == note


def test_a_card_comes_with_the_counts(tmp_path):
    path = tmp_path / "card.json"
    path.write_text(json.dumps({"counts": TABLE, "dataset": "digits", "seed": 3}))
    _, card = read_counts(path)
    assert (card["dataset"], card["seed"]) == ("digits", 3)


@pytest.mark.parametrize(
    ("text", "shape"), [("5,0,3\n", (1, 3)), ("0,1,2\n", (1, 3)), ("5\n7\n", (2, 1)), ("n\n5\n7\n", (2, 1))]
)
def test_one_client_and_one_class_are_counts(tmp_path, text, shape):
    path = tmp_path / "counts.csv"
    path.write_text(text)
    assert read_counts(path)[0].shape == shape


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", ["empty"]),
        (b" \n\n", ["empty"]),
        (b"5,-1\n2,3\n", ["line 1", "class 1", "negative"]),
        (b"5,1\n2,0.5\n", ["line 2", "class 1", "0.5", "integers"]),
        (b"5,1\n2,1e3\n", ["1e3"]),
        (b"5,1\n2,nan\n", ["nan"]),
        (b"5,1\n2,\n", ["line 2", "class 1", "missing"]),
        (b",5\n2,3\n", ["line 1", "class 0", "missing"]),
        (b"5,1\n2,many\n", ["line 2", "many"]),
        (b"5,1\n2,3,4\n", ["line 2", "3 counts", "line 1", "2"]),
        (b"5,1\n0,0\n", ["line 2", "no example"]),
        (b"a,b,c\n", ["line 1", "'b'"]),
        (b"5,99999999999999999999\n", ["99999999999999999999"]),
        (b"9007199254740992,1\n", ["more than"]),
        (b"\xff\xfe5\x00", ["UTF-8"]),
        (b'5,"1\n', ["CSV"]),
        (b"{", ["JSON"]),
        (b"{}", ["no table of counts"]),
        (b'{"counts": [1, 2]}', ["no table of counts"]),
        (b'{"counts": []}', ["no counts"]),
        (b'{"counts": [[1, true]]}', ["client 0", "True"]),
        (b'{"counts": [[1, 2.5]]}', ["client 0", "class 1", "2.5"]),
        (b'{"counts": [[1, null]]}', ["missing"]),
        (b'{"counts": [[1, NaN]]}', ["nan"]),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, text, words):
    path = tmp_path / "counts.csv"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=r"counts\.csv") as caught:
        read_counts(path)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_table_of_nothing_but_commas(tmp_path):
    (tmp_path / "a.csv").write_text(",,,\n, ,\n")
    with pytest.raises(ValueError, match=r"a.csv has no counts; a line per client"):
        read_counts(tmp_path / "a.csv")


def test_a_file_that_is_not_there(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for name, message in {"nowhere.csv": "there is no file", ".": "is a folder", "pipe.csv": "is a pipe"}.items():
        with pytest.raises(ValueError, match=message):
            read_counts(tmp_path / name)
