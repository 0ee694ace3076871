"""What the documents say runs, and the figures they quote are those in results/."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fedskew import Run, Store, simulate
from fedskew.algorithms import describe
from fedskew.core import rng
from fedskew.data import USUAL
from fedskew.runs.export import export_model
from tests.cli.calling import call

ROOT = Path(__file__).parents[1]


def blocks(document, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), re.S)


def commands(block):
    """The lines of a block of shell, those that go on in the next one joined."""
    return [line for line in block.replace("\\\n", " ").splitlines() if line]


def paste(line, capsys):
    """Run a line of `fedskew ...` here, and give what it prints or writes into a file."""
    words, _, file = line.partition(" > ")
    code, out, err = call(capsys, *shlex.split(words)[1:])
    assert code == 0, (line, err)
    if file:
        Path(file.strip()).write_text(out)
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all pages: what a page has run, the next one finds in the store."""
    return tmp_path_factory.mktemp("pasted")


def test_the_readme_is_short_and_begins_with_make():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 120
    first = re.search(r"```\n(.*?)```", text, re.S)[1].splitlines()
    assert [line.split("#")[0].strip() for line in first] == ["make demo", "make test"]
    assert text.index("make demo") < text.index("\n## ")


def test_the_readme_counts_the_methods_that_change_fedavg():
    change = [method for method in describe() if method.sets]
    assert f"is one of {len(change)}\nmethods" in (ROOT / "README.md").read_text()


def test_the_blocks_of_the_readme_run_and_are_one_run(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    ten, federation = (commands(block) for block in blocks("README.md", "bash"))
    assert ten[:3] == ["python3 -m venv .venv", ". .venv/bin/activate", "pip install -c constraints.txt ."]
    said = [paste(line, capsys) for line in ten[3:]]
    (of_python,) = blocks("README.md", "python")
    names = {}
    exec(compile(of_python, "README.md", "exec"), names)
    assert capsys.readouterr().out.splitlines()[-1].startswith("10 ")
    ran = re.search(r"run (\w{16})", said[1])[1]
    assert names["run"].hash == ran
    assert len(list(Store("runs"))) == 9, "one of `compare` is the run above"
    assert (folder / "report.html").exists()

    pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")
    from fedskew.flower import read_run

    install, init, start = federation
    assert install == "pip install -c constraints.txt '.[flower]'"
    assert f": {start}\n" in paste(init, capsys)
    app = tomllib.loads((folder / "app/pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert read_run(app).hash == ran


@pytest.mark.parametrize("page", ["index", "which-method", "own-method", "data"])
def test_the_commands_of_a_page_run(folder, page, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    found = blocks(f"docs/{page}.md", "(?:bash|python)")
    assert found
    for block in found:
        if "load_model" in block:
            (run, *_) = Store("runs")
            export_model(run, Path("model.safetensors"))
        if page == "own-method" and "MOON" in block:
            assert block == (ROOT / "examples/moon.py").read_text()
            Path("moon.py").write_text(block)
        elif page == "own-method" and "Correction" in block:
            Path("own_correction.py").write_text(block)
        elif page == "own-method" and "import" in block:
            assert block == (ROOT / "examples/own_algorithm.py").read_text()
            Path("own_algorithm.py").write_text(block)
        elif block.startswith("fedskew "):
            for line in commands(block):
                paste(line, capsys)
        else:
            exec(compile(block, page, "exec"), {})


def test_the_correction_of_a_page_is_the_one_that_it_names(tmp_path):
    (code,) = (block for block in blocks("docs/own-method.md", "python") if "Tether" in block)
    (tmp_path / "own.py").write_text(code)
    run = Run(dataset="digits", clients=3, rounds=3, batch_size=64, lr=0.1, algorithm="fedprox:mu=0.5")
    for more in ("", "+fednova"):  # with which steps count by how far they lead
        own, known, plain = (
            [record.train_loss for record in simulate(run.replace(algorithm=f"{method}{more}"))]
            for method in (f"{tmp_path / 'own.py'}:tethered,mu=0.5", "fedprox:mu=0.5", "fedavg")
        )
        assert own == known != plain


def test_what_label_skew_does_is_what_the_commands_print(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (train, diagnose), (compare,) = (commands(block) for block in blocks("docs/skew.md", "bash"))
    paste(train, capsys)
    row = r"^(fed\w+ +\w+) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) *$"
    quoted = re.findall(row, (ROOT / "docs/skew.md").read_text(), re.M)
    printed = {" ".join(first.split()): numbers for first, *numbers in re.findall(row, paste(diagnose, capsys), re.M)}
    assert len(quoted) == 6
    for first, *numbers in quoted:
        assert [*map(float, numbers)] == pytest.approx([*map(float, printed[" ".join(first.split())])], abs=2)
    assert "fedlc is below fedavg" in paste(compare, capsys)
    row = r"^(\w[\w' ]+?) +([\d.]+) +([\d.]+) *$"
    said = re.findall(row, (ROOT / "docs/skew.md").read_text(), re.M)
    found = {first: numbers for first, *numbers in re.findall(row, paste(f"{diagnose} --alone", capsys), re.M)}
    assert len(said) == 5
    for first, mean, lowest in said:
        assert float(mean) == pytest.approx(float(found[first][0]), abs=2)
        assert float(lowest) == pytest.approx(float(found[first][1]), abs=10)  # 36 test images of a class, or fewer


def test_the_advice_of_a_page_is_what_the_command_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked, said = blocks("docs/advise.md", "")
    inspect, _, advise = asked.splitlines()[1].partition(" && ")
    paste(inspect, capsys)
    assert paste(advise, capsys).startswith(said)


def test_the_tables_of_diagnostics_are_those_that_the_command_prints(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    asked, said = blocks("docs/diagnostics.md", "")
    printed = [paste(line, capsys) for line in commands(asked)][-1].splitlines()
    number = re.compile(r"\d+\.?\d*")
    for line in said.splitlines():
        alike = (other for other in printed if number.sub("", other).split() == number.sub("", line).split())
        values = [float(value) for value in number.findall(line)]
        few = 10 if len(values) == 2 else 2  # the lowest of 20 clients is a matter of a few images
        assert any(values == pytest.approx([float(v) for v in number.findall(other)], abs=few) for other in alike), line


def test_what_the_pages_say_of_digits_is_what_the_commands_print(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    said = paste(commands(blocks("docs/which-method.md", "bash")[2])[0], capsys)
    assert "scaffold is above fedavg" in said
    assert "fedlc:tau=1 is tied with fedavg" in said
    assert re.search(r"fedlc against fedavg is open, -\d", said)


def test_the_loss_in_a_loop_of_ones_own():
    names = {}
    with rng.seeded(0, "docs"):
        exec(compile(blocks("docs/loss.md", "python")[0], "docs/loss.md", "exec"), names)
    assert names["loss"].item() > 0


def test_peers_are_as_they_were_measured():
    found = figures_of("benchmark_peers.json")
    text = (ROOT / "README.md").read_text()
    for row, name in {
        "fedskew": "fedskew, stacked",
        "Flower": "flwr, simulation",
        "pfl": "pfl",
        "fluke": "fluke",
    }.items():
        value = found["a round of logistic regression, 100 of 1,000 clients", name]["median"]
        assert re.search(rf"^\| \[?{row}\b.* \| {short(value)} \|", text, re.M), row


def test_the_growth_of_a_round_is_told_where_it_was_measured_twice():
    found = figures_of("benchmark_core.json")
    few, many = (found["growth", f"100 of {clients} clients"]["median"] for clients in ("1,000", "100,000"))
    assert f"the same ratio is\n{many / few:.2f}x:" in (ROOT / "docs/performance.md").read_text()
    twice = found["a hundred times as many clients", "of 100,000 clients / of 1,000 clients"]
    assert twice["high"] < many / few < 1.3


def test_every_page_has_a_place_in_the_site():
    listed = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(listed) == sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))


def test_pages_link_only_to_what_the_site_has():
    """A link to a file outside of docs works in the repository alone."""
    for page in (ROOT / "docs").rglob("*.md"):
        for link in re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text()):
            assert (page.parent / link).resolve().is_relative_to(ROOT / "docs"), (page, link)
            assert (page.parent / link).exists(), (page, link)


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocstrings", reason="needs the extra: pip install -e '.[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site/reference/index.html").exists()


def test_the_run_file_of_the_docs_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (file,) = blocks("docs/cli.md", "toml")
    Path("run.toml").write_text(file)
    code, out, _ = call(capsys, "run", "run.toml", "--rounds", "2", "--json")
    assert code == 0
    assert json.loads(out)["run"]["lr"] == 0.1


def test_what_a_data_set_has_by_default_is_what_the_docs_say():
    text = (ROOT / "docs/data.md").read_text().partition("| data set | model | partition |")[2].partition("\n\n")[0]
    said = re.findall(r"^\| `(\w+)` \| `(\S+)` \| `(\S+)` \|$", text, re.MULTILINE)
    assert said == [(name, usual.model, usual.partition) for name, usual in USUAL.items()]
    assert Run.model_fields["clients"].default == 20


def test_placeholders_of_the_quick_start_are_explained():
    text = (ROOT / "docs/index.md").read_text()
    for name in ("3fa9", "counts.csv"):
        assert f"`{name}` stands for" in text.partition("fedskew export")[2]


def test_the_python_of_the_diagnostics_runs(capsys):
    (code,) = blocks("docs/diagnostics.md", "python")
    exec(compile(code, "docs/diagnostics.md", "exec"), {})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["2", "4"]


def test_the_python_of_tuning_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for code in blocks("docs/tuning.md", "python"):
        exec(compile(code, "docs/tuning.md", "exec"), {})
    said = capsys.readouterr().out
    assert said.startswith("{'fedavg': {'lr': ")
    assert said.count("| chosen |") == 2
    assert "| tau |" in said


def test_the_python_of_tuning_imports_what_is_public():
    lines = [line for code in blocks("docs/tuning.md", "python") for line in code.splitlines() if "import" in line]
    assert all(line.startswith("from fedskew import ") for line in lines)


def test_gpu_figures_are_those_of_the_results():
    result = json.loads((ROOT / "results/benchmark_gpu.json").read_text())
    text = " ".join((ROOT / "docs/performance.md").read_text().split())
    together = json.loads((ROOT / "results/benchmark_cohorts.json").read_text())
    pairs = list(zip(together["rounds"], together["under_the_service"]["rounds"], strict=True))
    for engine, said in (("graphed", "`graphed` takes {} to {} % longer"), ("stacked", "`stacked` {} to {} %,")):
        more = [round(100 * (service["ms"][engine] / plain["ms"][engine] - 1)) for plain, service in pairs]
        assert said.format(min(more), max(more)) in text
    runs = json.loads((ROOT / "results/cifar10_gpu.json").read_text())
    for precision, run in runs["precision_cifar10_100_rounds"].items():
        assert f"{100 * run['accuracy']:.2f} % in {precision}" in text
    apart = [row["apart"] for row in result["parity"] if row["model"] == "cnn"]
    assert f"{100 * min(apart):.1f} to {100 * max(apart):.1f} %" in text
    assert all(row["repeats"] for row in result["parity"])


def figures_of(file):
    found = json.loads((ROOT / "results" / file).read_text())["figures"]
    return {(figure["part"], figure["name"]): figure["value"] for figure in found}


def test_costs_on_a_gpu_are_as_they_were_measured():
    ms = json.loads((ROOT / "results" / "benchmark_costs_gpu.json").read_text())["ms"]
    text = " ".join((ROOT / "docs" / "algorithms.md").read_text().split())
    part = text[text.index("on one H200") : text.index("benchmarks.costs --paper")]
    named = dict(re.findall(r"(Fed\w+)\W{1,2}s? (?:round takes )?(\d\.\d\d)", part))
    assert set(named) == {"FedNTD", "FedVLS", "FedSAM", "FedDecorr", "FedLC"}
    for name, ratio in named.items():
        assert f"{ms[name.lower()]['median'] / ms['fedavg']['median']:.2f}" == ratio, name


def short(value, unit="ms"):
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def test_what_ranks_and_messages_cost_is_what_was_measured():
    text = " ".join((ROOT / "docs/scale.md").read_text().split())
    ranks, messages = figures_of("benchmark_distributed.json"), figures_of("benchmark_messages.json")
    for (part, name), value in ranks.items():
        if name.startswith("efficiency"):
            wanted = "{median:.2f} ({low:.2f} to {high:.2f})".format(**value)
        else:
            wanted = short(value["median"])
        assert wanted in text, (part, name)
    for part, name in messages:
        row = [messages[size, name]["median"] for size, other in messages if other == name]
        unit = "MB" if name.startswith(("an answer", "memory")) else "ms"
        assert f"| {name} | {' | '.join(short(value, unit) for value in row)} |" in text, part
    large = "10 million parameters"
    read = messages[large, "server: an answer read and checked"]["median"]
    added = messages[large, "server: the update from 8 answers"]["median"] / 8
    seconds = 10 * (read + added) / 1e3  # for 100 million parameters
    reduced = 10 * ranks["all-reduce, float32", large]["median"] / 1e3
    assert f"| {1e4 * seconds / 3600:.1f} hours | {100 * seconds:.0f} s | all-reduce {reduced:.1f} s," in text


def test_what_a_repeated_run_gave_is_what_is_kept():
    text = " ".join((ROOT / "docs/performance.md").read_text().split())
    attempts = []
    for file in ("results/repeats/cifar10.jsonl", "results/paper/cifar10.jsonl"):
        lines = map(json.loads, (ROOT / file).read_text().splitlines())
        attempts += [line["summary"] for line in lines if line["hash"] == "7379bd01ec3b86ab"]
    last, ten = ([f"{100 * one[name]:.2f} %" for one in attempts] for name in ("accuracy", "accuracy_last10"))
    assert f"end at {last[0]} and {last[1]} (means of the last ten rounds {ten[0]} and {ten[1]})" in text
