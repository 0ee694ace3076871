"""The page in a real browser: Debian's chromium and chromium-driver, without a window."""

import base64
import json
import re

import pytest

from fedskew.report.page.entries import read_entries
from fedskew.report.page.federations import federations
from fedskew.report.page.page import write_page
from fedskew.report.style import ORDER, look
from fedskew.runs.store import Store
from tests.report.browsing import (
    ActionChains,
    By,
    Keys,
    WebDriverWait,
    chromium,
    in_chromium,
    one,
    resize,
    scheme,
    scroll_through,
)
from tests.report.page_store import effect, example_store, write_run

MINE = "&lt;b&gt;mine&lt;/b&gt; (unfinished)"
PIXEL = """
const paint = document.createElement("canvas").getContext("2d");
paint.fillStyle = getComputedStyle(arguments[0]).stroke;
paint.fillRect(0, 0, 1, 1);
return "#" + [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v.toString(16).padStart(2, "0")).join("");
"""
pytestmark = in_chromium


@pytest.fixture(scope="module")
def browser():
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    store = example_store(tmp_path_factory.mktemp("store"))
    write_run(store, "x1", seed=7, done=4, algorithm="<b>mine</b>")
    write_run(store, "x2", title="zoo <i>data set</i>", dataset="other")
    pairs = [{"ratio": 2.0**k, "bound": 5.0, "own": 1 - k} for k in range(8)]
    seen = {"class_accuracy": effect(0.9, 0.4), "deviation": {"pairs": pairs}}
    store.folder("0" * 16).write_diagnosis({"round": 20, "methods": {"fedavg": seen}})
    return store


@pytest.fixture(scope="module")
def address(tmp_path_factory, store):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_page(path, federations(read_entries(store)[0]))
    return path.as_uri()


@pytest.fixture
def page(browser, address):
    """The page, opened anew in a window of 1200 x 900 with the light theme; complains about what went wrong in it."""
    resize(browser, 1200)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme("light")})
    browser.get_log("performance")
    browser.get(address)
    browser.execute_script("localStorage.clear()")
    WebDriverWait(browser, 20).until(lambda page: curve_of(page, "fedavg"))
    yield browser
    assert browser.get_log("browser") == []
    requests = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = {each["params"]["request"]["url"] for each in requests if each["method"] == "Network.requestWillBeSent"}
    assert {url for url in urls if not url.startswith("data:")} == {address}


def curve_of(page, method):
    return page.find_elements(By.CSS_SELECTOR, f'[data-curve="{method}"] .line')


def hover(page, share):
    """Move to that share of the plot's width."""
    plot = one(page, "svg.curves")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    offset = int((share - 0.5) * plot.size["width"])
    return ActionChains(page, duration=20).move_to_element_with_offset(plot, offset, 0)


def drag(page):
    hover(page, 0.4).click_and_hold().move_by_offset(150, 0).move_by_offset(50, 0).release().perform()


def axis(page):
    """What is written in plots, read at once: a redraw replaces its elements."""
    return page.execute_script("return [...document.querySelectorAll('.curves text')].map((each) => each.textContent)")


def test_all_is_drawn(page):
    assert len(page.find_elements(By.CSS_SELECTOR, "svg.curves")) >= 1
    assert len(curve_of(page, "fedlc")) >= 1
    scroll_through(page)
    assert len(page.find_elements(By.CSS_SELECTOR, "canvas")) == 4 + 1 + 1 + 1
    assert all(canvas.size["height"] > 20 for canvas in page.find_elements(By.CSS_SELECTOR, "canvas"))
    assert page.find_elements(By.CSS_SELECTOR, "main b, main i") == []


def test_a_method_is_toggled_by_its_button(page):
    button = one(page, '[data-method="fedlc"]')
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert curve_of(page, "fedlc") == []
    button.send_keys(Keys.SPACE)
    assert len(curve_of(page, "fedlc")) == 1
    one(page, "[data-none]").click()
    assert curve_of(page, "fedavg") == []
    one(page, "[data-all]").click()
    assert len(curve_of(page, "fedavg")) == 1


def test_hovering_reads_values(page):
    before = one(page, '[data-method="fedlc"] .value').text
    assert one(page, ".at").text == "last round"
    hover(page, 0.5).perform()
    assert one(page, ".at").text in ("round 9", "round 10", "round 11")
    assert one(page, '[data-method="fedlc"] .value').text != before
    assert len(page.find_elements(By.CSS_SELECTOR, "svg.curves .dot")) == 3


def test_dragging_zooms_and_the_button_resets(page):
    whole = axis(page)
    reset = one(page, "[data-reset]")
    assert not reset.is_enabled()
    drag(page)
    assert axis(page) != whole
    assert "0" not in axis(page)
    assert reset.is_enabled()
    reset.click()
    assert axis(page) == whole


def test_the_keyboard_reads_and_zooms(page):
    plot = one(page, "svg.curves")
    plot.send_keys(Keys.ARROW_LEFT)
    assert one(page, ".at").text == "round 19"
    assert "round 19: fedavg" in one(page, "[aria-live]").get_attribute("textContent")
    whole = axis(page)
    plot.send_keys("+")
    assert axis(page) != whole
    plot.send_keys("0")
    assert axis(page) == whole


def test_the_measure_is_switched(page):
    one(page, '[data-measure="loss"]').click()
    assert "loss" in axis(page)
    assert float(one(page, '[data-method="fedlc"] .value').text.split(" ")[0]) < 2
    assert one(page, '[data-measure="loss"]').get_attribute("aria-pressed") == "true"


def test_maps_are_read_by_keyboard(page):
    canvas = one(page, "canvas")
    canvas.send_keys(Keys.ARROW_DOWN)
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert one(page, "output").text.startswith("fedavg, class 1, round 2: ")


def test_rows_of_maps_are_labelled(page):
    scroll_through(page)
    labels = page.execute_script(
        "return [...document.querySelector('.labels').children].map((each) => each.textContent)"
    )
    assert labels == [str(k) for k in range(10)]


def test_the_last_half_is_a_button_and_a_broken_axis_is_marked(page):
    one(page, "[data-half]").click()
    assert "0" not in axis(page)
    assert {"10", "20"} <= set(axis(page))
    assert page.find_elements(By.CSS_SELECTOR, "svg.curves .break")
    assert "does not begin at zero" in one(page, ".note").text
    assert "Band: ± one standard deviation over seeds." in one(page, ".note").text


def test_tables_and_curves_leave_the_page(page):
    """What would be saved is caught where the page makes a file of it."""
    page.execute_script(
        "window.saved = []; window.copied = [];"
        "window.download = (name, content) => saved.push([name, content instanceof Blob ? content.type : content]);"
        "window.copyText = async (text) => { copied.push(text); };"
    )
    for name in ("copy", "csv", "svg", "png"):
        one(page, f"[data-{name}]").click()
    WebDriverWait(page, 20).until(lambda page: len(page.execute_script("return saved")) == 3)
    csv, svg, png = page.execute_script("return saved")
    assert csv[0] == "digits.csv"
    assert csv[1].startswith("method,seeds,")
    assert svg[0] == "digits-accuracy.svg"
    assert 'xmlns="http://www.w3.org/2000/svg"' in svg[1]
    assert svg[1].count("<path") == 4 + 3  # lines, and bands of the methods with several seeds
    assert re.findall(r">(fed\w+|scaffold|&lt;b[^<]*)</text>", svg[1]) == ["fedavg", "scaffold", "fedlc", MINE]
    assert png == ["digits-accuracy.png", "image/png"]
    assert "\\toprule" in page.execute_script("return copied")[0]


def test_bars_of_measurements_have_one_scale(page):
    widths = "return [...document.querySelectorAll('.bars tbody td')].map((each) => Math.round(each.clientWidth))"
    assert len(set(page.execute_script(widths))) <= 2  # a pixel apart by rounding


def background(page):
    return page.execute_script("return getComputedStyle(document.body).backgroundColor")


def test_the_theme_follows_the_system_and_the_button(page, address):
    assert background(page) == "rgb(255, 255, 255)"
    one(page, "#theme").click()
    assert background(page) == "rgb(20, 23, 27)"
    assert one(page, "#theme").get_attribute("aria-pressed") == "true"
    page.execute_script("localStorage.clear()")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme("dark")})
    page.get(address)
    assert background(page) == "rgb(20, 23, 27)"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_background(page, theme):
    """WCAG AA: 4.5 to 1 for the colours of text on those of paper, panels and notices."""
    page.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    get = "return getComputedStyle(document.documentElement).getPropertyValue(arguments[0]).trim()"
    pairs = [(ink, ground) for ink in ("ink", "quiet", "accent", "good", "fall") for ground in ("paper", "panel")]
    for ink, ground in [*pairs, ("ink", "warn"), ("paper", "accent")]:
        light, dark = sorted((luminance(page.execute_script(get, f"--{name}")) for name in (ink, ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)


def luminance(colour):
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("width", [320, 360, 390, 768])
def test_a_narrow_window_does_not_scroll_sideways(page, width):
    resize(page, width)
    page.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    scroll_through(page)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


def test_controls_are_reached_by_keyboard_and_named(page):
    unnamed = page.execute_script(
        "return [...document.querySelectorAll('button, [tabindex=\"0\"]')]"
        ".filter((each) => !each.textContent.trim() && !each.getAttribute('aria-label')).length"
    )
    assert unnamed == 0
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    assert page.switch_to.active_element.get_attribute("class") == "skip"
    page.switch_to.active_element.send_keys(Keys.TAB)
    assert page.switch_to.active_element.get_attribute("id") == "theme"
    assert page.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_it_prints(page):
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme("dark")})
    printed = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert printed.startswith(b"%PDF")
    assert len(page.find_elements(By.CSS_SELECTOR, ".drawing:empty")) == 0


def test_two_hundred_runs_open_and_answer(browser, tmp_path):
    store = Store(tmp_path / "runs")
    for k in range(200):
        write_run(store, f"r{k}", rounds=100, clients=20, algorithm=f"method{k % 40}", seed=k // 40, title="many")
    write_page(tmp_path / "report.html", federations(read_entries(store)[0]))
    browser.get((tmp_path / "report.html").as_uri())
    scroll_through(browser)
    one(browser, '[data-method="method39"]').click()
    assert curve_of(browser, "method39") == []
    assert len(browser.find_elements(By.CSS_SELECTOR, "canvas")) == 41
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_stand_out_from_the_paper(page, theme):
    """WCAG AA: 3 to 1 for the colours of curves."""
    page.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    paper = luminance(
        page.execute_script("return getComputedStyle(document.documentElement).getPropertyValue('--paper')")
    )
    swatch = one(page, "[data-method]")
    for colour in sorted({look(name)["color"] for name in ORDER} | {look("x", k)["color"] for k in range(6)}):
        page.execute_script("arguments[0].style.setProperty('--base', arguments[1])", swatch, colour)
        drawn = luminance(page.execute_script(PIXEL, one(page, "[data-method] line")))
        assert (max(paper, drawn) + 0.05) / (min(paper, drawn) + 0.05) >= 3, colour
