"""The page as text: escaping, structure, size."""

import json
import re
import shlex
from html import escape
from html.parser import HTMLParser

import pytest

from fedskew import Run
from fedskew.cli.options import RUN_OPTIONS
from fedskew.report.page.entries import LeftOut, read_entries
from fedskew.report.page.federations import OWN_FIELDS, federations
from fedskew.report.page.page import DEFAULTS, page
from fedskew.report.page.provenance import command
from fedskew.runs.store import Store
from fedskew.runs.verdict import RULE
from tests.report.page_store import RUN, effect, example_store, write_run

EVIL = '</script><img src=x onerror="alert(1)">&'
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(HTMLParser):
    """Elements with their attributes; complains about one that is closed wrongly."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


def page_of(store, left_out=()):
    entries, damaged = read_entries(store)
    return page(federations(entries), [*damaged, *left_out])


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])


def test_everything_is_in_the_one_file(tmp_path):
    text = page_of(example_store(tmp_path))
    reader = Reader(text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert [link["href"] for link in reader.all("link")] == ["data:,"]
    assert not [script for script in reader.all("script") if "src" in script]
    assert "default-src 'none'" in text
    assert "<!--" not in text


def test_tables_have_captions_and_scopes(tmp_path):
    reader = Reader(page_of(example_store(tmp_path)))
    assert len(reader.all("caption")) == len(reader.all("table")) == 3
    assert all("scope" in cell for cell in reader.all("th"))
    assert all(region["aria-label"] for region in reader.all("div") if region.get("role") == "region")


def test_the_best_is_marked_and_compared_with_fedavg(tmp_path):
    text = page_of(example_store(tmp_path))
    best = re.findall(r'<tr><th scope="row">([\w+]+)</th>(?:(?!</tr>).)*class="best"', text)
    assert best == ["fedlc"]
    assert "Methods against fedavg: 2 above." in text
    words = re.sub(r"<.*?>", "", text)
    assert re.search(r"above, \+4\.\d\d \[\+\d\.\d\d, \+\d\.\d\d\] over 3 seeds", words)


def test_nothing_is_best_that_is_not_above_every_other(tmp_path):
    store = example_store(tmp_path)
    for seed in range(3):  # within noise of fedlc
        write_run(store, f"3{seed}" + "0" * 14, algorithm="fedrs", seed=seed, gain=0.05 + 0.002 * (-1) ** seed)
    text = page_of(store)
    assert 'class="best"' not in text
    assert "Methods against fedavg: 3 above." in text


def test_what_is_tied_is_marked_as_tied(tmp_path):
    store = example_store(tmp_path)
    for seed in range(3):
        write_run(store, f"3{seed}" + "0" * 14, algorithm="fedrs", seed=seed, gain=0.05 + 0.002 * (-1) ** seed)
    text = page_of(store)
    marked = re.findall(r'<tr><th scope="row">([\w+]+)</th>(?:(?!</tr>).)*class="first"', text)
    assert set(marked) == {"fedlc", "fedrs"}
    assert '<span class="mark"> tied</span>' in text


def test_the_verdict_stands_beside_the_method_where_there_is_one(tmp_path):
    heads = r'<table class="results">.*?<th scope="col">method</th><th scope="col">(.*?)</th>'
    (second,) = re.findall(heads, page_of(example_store(tmp_path / "several")), re.S)
    assert second == "last ten rounds − fedavg, points"
    store = Store(tmp_path / "one")
    for seed in range(3):
        write_run(store, f"a{seed}", seed=seed)
    text = page_of(store)
    assert re.findall(heads, text, re.S) == ["last ten rounds %"]
    assert 'class="verdict' not in text


def test_where_the_top_is_open_no_accuracy_is_marked(tmp_path):
    store = example_store(tmp_path)
    for seed in range(3):
        write_run(store, f"3{seed}" + "0" * 14, algorithm="fedrs", seed=seed, gain=0.05 + 0.1 * (-1) ** seed)
    text = page_of(store)
    assert "open, " in text
    assert 'class="first"' not in text
    assert 'class="best"' not in text


def test_the_page_states_the_rule_of_verdicts(tmp_path):
    assert escape(RULE) in page_of(example_store(tmp_path))


def test_federations_are_told_apart_by_what_differs_and_begin_with_an_overview(tmp_path):
    store = example_store(tmp_path)
    assert 'class="overview"' not in page_of(store)
    for seed in range(3):
        for m, (method, gain) in enumerate((("fedavg", 0.0), ("fedlc", -0.1 - 0.003 * seed))):
            write_run(store, f"b{m}{seed}", algorithm=method, seed=seed, gain=gain, lr=0.5, momentum=0.9)
    found = federations(read_entries(store)[0])
    assert [each.name for each in found] == ["digits, lr 0.1, momentum 0", "digits, lr 0.5, momentum 0.9"]
    text = page(found)
    (table,) = re.findall(r'<table class="overview">.*?</table>', text)
    rows = re.findall(r"<tr>(.*?)</tr>", table)
    assert len(rows) == 4
    assert re.findall(r'href="(.*?)"', rows[0]) == ["#federation-0", "#federation-1"]
    means = [f"{100 * each.method('fedlc').row['accuracy_last10']['mean']:.2f}" for each in found]
    (row,) = [row for row in rows if "fedlc" in row]
    assert re.findall(r'<td class="(\w+)">([\d.]+) ', row) == [("above", means[0]), ("below", means[1])]
    assert ["▲" in row, "▼" in row] == [True, True]
    (row,) = [row for row in rows if "scaffold" in row]
    assert row.endswith("<td></td>")
    assert "○ not decided; empty: not run</span></caption>" in table


def test_the_mean_of_short_runs_is_over_their_last_half(tmp_path):
    store = Store(tmp_path)
    for seed in range(3):
        for m, method in enumerate(("fedavg", "fedlc")):
            write_run(store, f"s{m}{seed}", algorithm=method, seed=seed, rounds=6)
            write_run(store, f"t{m}{seed}", algorithm=method, seed=seed, rounds=6, lr=0.5)
    text = page_of(store)
    for words in ("last 3 rounds %", "last 3 rounds − fedavg, points", "Accuracy, mean of the last 3 rounds, %."):
        assert words in text
    assert "last ten rounds %" not in text
    assert "empty: not run" not in text
    assert "last ten rounds %" in page_of(example_store(tmp_path))


def test_many_federations_are_rows_of_the_overview(tmp_path):
    store = Store(tmp_path)
    for k in range(8):
        write_run(store, f"a{k}", title=f"data {k}")
    (table,) = re.findall(r'<table class="overview">.*?</table>', page_of(store))
    assert table.count("<tr>") == 9
    for k in range(9):
        write_run(store, f"b{k}", title="data 0", algorithm=f"method{k}")
    (table,) = re.findall(r'<table class="overview">.*?</table>', page_of(store))
    assert table.count("<tr>") == 11  # methods, which are more


def test_methods_are_called_and_ordered_as_asked(tmp_path):
    entries, _ = read_entries(example_store(tmp_path))
    names = {"scaffold": "SCAFFOLD", "fedavg": "FedAvg <1>"}
    (found,) = federations(entries, names=names, order=[*names])
    assert [method.label for method in found.methods] == ["SCAFFOLD", "FedAvg <1>", "fedlc"]
    text = page([found])
    assert 'scope="row">FedAvg &lt;1&gt;</th>' in text
    assert [method["name"] for method in data_of(text)[0]["methods"]] == ["SCAFFOLD", "FedAvg <1>", "fedlc"]
    assert data_of(text)[0]["csv"].splitlines()[1].startswith("SCAFFOLD,3,")
    assert "\\toprule" in data_of(text)[0]["latex"]
    assert found.difference(found.methods[2]).mean > 0


def test_variants_of_a_method_stand_in_the_order_of_their_numbers(tmp_path):
    store = Store(tmp_path / "runs")
    for k, tau in enumerate(("10", "0.5", "2", "1e-3")):
        write_run(store, f"a{k}", algorithm=f"fedlc:tau={tau}")
    entries, _ = read_entries(store)
    (found,) = federations(entries)
    assert [method.name for method in found.methods] == [f"fedlc:tau={tau}" for tau in ("1e-3", "0.5", "2", "10")]


def test_a_section_names_every_field_that_is_not_the_default(tmp_path):
    store = Store(tmp_path / "plain")
    write_run(store, "a", eval_every=5, device="cuda")
    usual = "model m, rounds 20, clients per round 4, local epochs 1, batch size 16, optimizer sgd, lr 0.1"
    assert f'<p class="setting">{usual}</p>' in page_of(store)
    store = Store(tmp_path / "other")
    more = {"momentum": 0.9, "augment": "crop_flip", "grad_clip": 1.5, "validation": 0.1, "precision": "bf16"}
    write_run(store, "a", **more)
    said = "momentum 0.9, augment crop_flip, grad clip 1.5, 10 % of the training examples held out, precision bf16"
    assert f'<p class="setting">{usual}, {said}</p>' in page_of(store)


def test_defaults_are_those_of_a_run():
    shown = {"model", "rounds", "clients_per_round", "local_epochs", "batch_size", "optimizer", "lr"}
    others = set(Run.model_fields) - OWN_FIELDS - shown - {"dataset", "partition", "clients"}
    assert {name: getattr(Run(), name) for name in others} == DEFAULTS


def test_provenance_is_collapsed(tmp_path):
    reader = Reader(page_of(example_store(tmp_path)))
    assert [each.get("open") for each in reader.all("details")] == [None] * 10


@pytest.mark.parametrize(("seeds", "words"), [(1, "one seed"), (2, "two seeds")])
def test_too_few_seeds_say_so(tmp_path, seeds, words):
    store = Store(tmp_path)
    for seed in range(seeds):
        write_run(store, f"a{seed}", seed=seed)
        write_run(store, f"b{seed}", seed=seed, algorithm="fedlc", gain=0.1)
    text = page_of(store)
    assert "Methods against fedavg: 1 not decided. One or two seeds decide nothing." in text
    assert f"not decided: {words}, +" in text
    assert 'class="best"' not in text


def test_names_are_escaped(tmp_path):
    store = Store(tmp_path)
    folder = write_run(store, "a", algorithm=EVIL, title=EVIL, partition=EVIL)
    folder.append_session({"device": EVIL})
    folder.write_measured(RUN["rounds"], {"local_effect": {EVIL: effect(0.9, 0.5)}})
    text = page_of(store, [LeftOut(EVIL, EVIL)])
    reader = Reader(text)
    assert not reader.all("img")
    assert "<img" not in text
    assert data_of(text)[0]["methods"][0]["name"] == EVIL


def test_unfinished_diverged_and_unreadable_runs_are_named(tmp_path):
    store = example_store(tmp_path)
    write_run(store, "x1", seed=7, done=4)
    write_run(store, "x2", seed=8, done=6, diverged=True)
    (tmp_path / "10000000000000000").mkdir()
    (tmp_path / "10000000000000000" / "run.json").write_text("broken")
    text = page_of(store)
    assert "fedavg: 1 diverged in round 6, 1 unfinished at round 4 of 20" in text
    assert "1 run could not be read" in text
    assert "10000000000000000" in text


def test_every_federation_has_a_section(tmp_path):
    store = Store(tmp_path)
    for hash, title in (("a", "digits"), ("b", "cifar10"), ("c", "svhn")):
        write_run(store, hash, title=title, dataset=title)
    reader = Reader(page_of(store))
    assert len(reader.all("h2")) == 3
    assert [link["href"] for link in reader.all("a")[1:]] == [f"#federation-{i}" for i in range(3)]


def test_panels_are_drawn_where_something_was_measured(tmp_path):
    store = example_store(tmp_path)
    assert "Not measured; <code>fedskew diagnose 00000000</code> measures it for a run." in page_of(store)
    pair = {"ratio": 8.0, "bound": 2.0, "own": -0.1}
    methods = {"fedlc": {"class_accuracy": effect(0.9, 0.4), "deviation": {"pairs": [pair, {**pair, "ratio": None}]}}}
    store.folder("0" * 16).write_diagnosis({"round": RUN["rounds"], "methods": methods})
    text = page_of(store)
    assert "Not measured" not in text
    assert "Model of fedavg after round 20, seed 0, run 00000000" in text
    assert "Accuracy % before and after a local update under fedlc" in text
    assert "n_j / n_r (up) against D_jr for 2 pairs of classes, 2 of them above the line of equality. Red" in text
    assert "by theorem 1 of the FedLC paper much more likely" in text
    Reader(text)
    methods["fedlc"]["deviation"]["summary"] = {"stated": 338, "above": 0.5}
    store.folder("0" * 16).write_diagnosis({"round": RUN["rounds"], "methods": methods})
    assert "338 pairs of classes, 169 of them above the line of equality. 2 of them are drawn." in page_of(store)
    store.folder("0" * 16).write_diagnosis({"round": 3, "methods": methods})
    assert "Run 00000000: the diagnosis was measured at round 3;" in page_of(store)


def test_commands_are_code_and_name_the_store(tmp_path):
    store = example_store(tmp_path)
    store.folder("0" * 16).write_diagnosis({"round": 3, "methods": {}})
    write_run(store, "a", algorithm="fedlc", rounds=12)
    (store.folder("10" + "0" * 14).path / "run.json").write_text("broken")
    entries, damaged = read_entries(store)
    text = page(federations(entries), damaged, store=" --runs 'my <runs>'")
    named = escape(" --runs 'my <runs>'")
    for words in ("diagnose 00000000", "diagnose a", "compare"):
        assert f"<code>fedskew {words}{named}</code>" in text
    assert f"<code>fedskew runs remove {'10' + '0' * 14} --runs {tmp_path}</code>" in text
    assert "`" not in re.sub(r"<(script|style).*?</\1>", "", text, flags=re.S)


def test_the_command_makes_the_same_run():
    run = Run(**{**RUN, "algorithm": "fedlc:tau=2+scaffold", "grad_clip": 1.5, "lr": 1e-05})
    words = shlex.split(command(run.model_dump()))
    assert words[:2] == ["fedskew", "run"]
    fields = {
        name.removeprefix("--").replace("-", "_"): value for name, value in zip(*[iter(words[2:])] * 2, strict=True)
    }
    assert set(fields) <= {*RUN_OPTIONS, "algorithm"}
    assert Run(**fields) == run


def test_two_hundred_long_runs_of_many_classes_stay_small(tmp_path):
    """Every run a federation of its own: the largest page there is for so many runs."""
    store = Store(tmp_path)
    pattern = write_run(store, "r0", rounds=200, classes=100, clients=100)
    lines = (pattern.path / "records.jsonl").read_bytes()
    for k in range(1, 200):
        folder = write_run(store, f"r{k}", rounds=200, done=0, classes=100, clients=100, lr=0.1 + k, title=f"run {k}")
        (folder.path / "records.jsonl").write_bytes(lines)
    text = page_of(store)
    assert len(data_of(text)) == 200
    assert len(text.encode()) < 15e6
