"""What figures draw: the data of their lines, bands and axes."""

import statistics

import pytest

from fedskew.report import figures
from fedskew.report.evened import evened
from fedskew.report.style import COLUMN, PAPER_SIZE, drawn_for


def records(values, rounds=None):
    return [{"round": r, "accuracy": v} for r, v in zip(rounds or range(1, len(values) + 1), values, strict=True)]


def rising(count, gain=0.0):
    return [0.2 + gain + 0.6 * k / count for k in range(count)]


EVERY_TEN = [10, 20, 30, *range(31, 41)]


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """The panels of a figure, instead of its files."""
    kept = []
    monkeypatch.setattr(figures, "save", lambda figure, path: kept.append(figure) or [])

    def draw(function, *arguments, **options):
        function(tmp_path / "figure", *arguments, **options)
        return kept[-1]

    return draw


def line_of(axes, label):
    return next(line for line in axes.lines if line.get_label() == label)


def test_a_line_is_the_mean_over_seeds_and_the_band_is_named(drawn):
    seeds = [records([0.1, 0.2, 0.4]), records([0.3, 0.2, 0.8])]
    whole, _ = drawn(figures.curves, {"fedlc": seeds}, "title").axes
    assert line_of(whole, "fedlc").get_ydata() == pytest.approx([20, 20, 60])
    (band,) = [each for each in whole.collections if each.get_label() != figures.BAND]
    edges = [y for x, y in band.get_paths()[0].vertices.tolist() if x == 3]
    half = 100 * statistics.stdev([0.4, 0.8])
    assert (min(edges), max(edges)) == pytest.approx((60 - half, 60 + half))
    assert figures.BAND in whole.get_legend_handles_labels()[1]


@pytest.mark.parametrize(
    "series", [{"fedavg": [records([0.1, 0.2])]}, {f"m{k}": [records([0.1])] * 2 for k in range(5)}]
)
def test_without_a_band_none_is_named(drawn, series):
    whole, _ = drawn(figures.curves, series, "title").axes
    assert figures.BAND not in whole.get_legend_handles_labels()[1]


def test_the_second_panel_shows_the_last_half_and_marks_its_broken_axis(drawn):
    whole, near = drawn(figures.curves, {"fedavg": [records(rising(40))]}, "title").axes
    assert whole.get_ylim()[0] == 0
    assert near.get_xlim()[0] == 20
    values = [100 * value for value in rising(40)[19:]]
    low, high = near.get_ylim()
    assert low < min(values) < low + 5
    assert high - 5 < max(values) < high
    breaks = [[line for line in axes.lines if line.get_label() == "_break"] for axes in (whole, near)]
    assert [len(found) for found in breaks] == [0, 1]


def test_an_end_that_alone_is_dense_is_drawn_as_its_mean_with_every_value_as_a_dot(drawn):
    values = [0.2, 0.4, 0.5, *[0.5, 0.7] * 5]
    whole, _ = drawn(figures.curves, {"fedavg": [records(values, EVERY_TEN)]}, "title").axes
    line, dots, _ = whole.lines
    assert list(line.get_xdata()) == [10, 20, 30, 35.5, 40]
    assert list(line.get_ydata()) == pytest.approx([20, 40, 50, 60, 60])
    assert list(dots.get_xdata()) == EVERY_TEN
    assert dots.get_linestyle() == "None"


@pytest.mark.parametrize(
    "rounds", [range(1, 41), range(2, 41, 2), range(10, 201, 10), [*range(2, 31, 2), *range(31, 41)], [5], range(1, 6)]
)
def test_other_curves_stay_as_they_are(rounds):
    points = [(r, r / 100) for r in rounds]
    assert evened(points) == points
    assert evened([]) == []


def test_names_label_curves_and_colours_stay_the_methods(drawn):
    series = {"fedavg": [records([0.1, 0.2])], "fedlc": [records([0.2, 0.3])]}
    plain, _ = drawn(figures.curves, series, "title").axes
    named, _ = drawn(figures.curves, series, "title", names={"fedlc": "FedLC (ours)"}).axes
    assert line_of(named, "FedLC (ours)").get_color() == line_of(plain, "fedlc").get_color()


def test_a_figure_for_a_paper_is_a_column_wide_without_title_and_in_8_points(drawn):
    series = {"fedavg": [records(rising(20))], "fedlc": [records(rising(20, 0.1))]}
    with drawn_for("paper"):
        figure = drawn(figures.curves, series, "a title")
    assert figure.get_figwidth() == COLUMN
    assert figure.get_suptitle() == ""
    figure.canvas.draw()
    (legend,) = figure.legends
    texts = [*legend.get_texts(), *(text for axes in figure.axes for text in (axes.xaxis.label, axes.yaxis.label))]
    texts += [text for axes in figure.axes for text in axes.get_xticklabels()]
    assert {text.get_fontsize() for text in texts} == {PAPER_SIZE}
    assert drawn(figures.curves, series, "a title").get_suptitle() == "a title"


def test_a_figure_for_a_paper_is_one_vector_file(tmp_path):
    with drawn_for("paper"):
        (made,) = figures.curves(tmp_path / "curves", {"fedavg": [records([0.1, 0.2])]}, "title")
    content = made.read_bytes()
    assert made.name == "curves.pdf"
    width = float(content.split(b"/MediaBox [ 0 0 ")[1].split()[0])
    assert width == pytest.approx(72 * COLUMN, abs=0.1)
    assert b"/Type3" not in content


def test_an_unknown_style_says_what_there_is():
    with pytest.raises(ValueError, match="style is 'poster'; allowed: screen, paper"), drawn_for("poster"):
        pass


def test_a_dollar_in_a_name_or_a_title_is_a_dollar(tmp_path):
    name = r"ours $\none$"
    made = figures.curves(tmp_path / "curves", {name: [records([0.1, 0.2])]}, r"data for $5 or $\none$")
    assert all(path.stat().st_size for path in made)
