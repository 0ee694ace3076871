"""Tables of the page in a narrow window, such as a phone's."""

import io

import pytest
from PIL import Image

from fedskew.report.page.page import write_page
from fedskew.runs.store import Store
from tests.report.browsing import By, chromium, in_chromium, one, resize
from tests.report.page_store import example_store, gathered, write_run

pytestmark = in_chromium
PAPER = (255, 255, 255)


@pytest.fixture(scope="module")
def browser():
    with chromium() as driver:
        yield driver


@pytest.fixture
def phone(browser, tmp_path):
    """A page with an overview of three federations, 390 pixels wide."""
    store = example_store(tmp_path / "runs")
    for k, title in enumerate(("shapes shards:2, 10 clients", "synthetic:1,1, 100 clients")):
        for seed in range(3):
            write_run(store, f"x{k}{seed}", title=title, dataset=title, seed=seed)
            write_run(store, f"y{k}{seed}", title=title, dataset=title, seed=seed, algorithm="fedlc", gain=0.1)
    write_page(tmp_path / "report.html", gathered(store))
    resize(browser, 390)
    browser.get((tmp_path / "report.html").as_uri())
    return browser


def scrolled(page, selector, left):
    """The box of a table, scrolled that far, as its place in the window and a picture of the window."""
    box = one(page, f".scroll:has({selector})")
    page.execute_script("arguments[0].scrollIntoView(); arguments[0].scrollLeft = arguments[1]", box, left)
    page.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 50))")
    return place(page, box), Image.open(io.BytesIO(page.get_screenshot_as_png())).convert("RGB")


def place(page, element):
    return page.execute_script("return arguments[0].getBoundingClientRect().toJSON()", element)


@pytest.mark.parametrize("selector", [".results", ".overview"])
def test_a_shadow_says_that_there_is_more_until_the_end_is_seen(phone, selector):
    edges = []
    for left in (0, 10_000):
        box, picture = scrolled(phone, selector, left)
        edges.append(picture.getpixel((int(box["right"]) - 2, int(box["top"]) + 6)))
    assert max(edges[0]) < 220
    assert edges[1] == PAPER
    resize(phone, 1200)
    box, picture = scrolled(phone, selector, 0)
    assert picture.getpixel((int(box["right"]) - 2, int(box["top"]) + 6)) == PAPER


def test_the_first_column_and_its_lines_stay(phone):
    for left in (0, 120):
        box, _ = scrolled(phone, ".results", left)
        names = phone.find_elements(By.CSS_SELECTOR, ".results th:first-child")
        assert {place(phone, name)["left"] for name in names[:4]} == {box["left"]}
    style = "const style = getComputedStyle(arguments[0]); return [style.borderCollapse, style.borderBottomWidth]"
    assert phone.execute_script(style, names[1]) == [
        "separate",
        "1px",
    ]  # collapsed lines are the table's, and move away


def test_the_verdict_is_seen_without_scrolling(phone):
    box, _ = scrolled(phone, ".results", 0)
    cell = one(phone, ".results tbody tr:last-child .verdict")
    assert "above, +" in cell.text
    assert place(phone, cell)["right"] <= box["right"]


def test_heads_do_not_have_a_line_for_every_word(phone):
    lines = phone.execute_script(
        "return [...document.querySelectorAll('.results thead th, .overview thead th')].map((head) => {"
        "  const range = document.createRange(); range.selectNodeContents(head);"
        "  const tops = new Set([...range.getClientRects()].map((each) => Math.round(each.top)));"
        "  return [head.textContent, tops.size]; })"
    )
    assert ["balanced accuracy %", 2] in lines
    assert [text for text, count in lines if count > 1 and count >= len(text.split(" "))] == []


def test_wide_tables_of_a_phone_scroll_in_their_box_and_names_leave_room_for_numbers(browser, tmp_path):
    name = "fedlc:tau=1,missing=mask+fedprox:mu=0.01+fedavgm:beta=0.5"
    store = Store(tmp_path / "runs")
    for seed in range(2):
        write_run(store, f"a{seed}", seed=seed)
        write_run(store, f"b{seed}", seed=seed, algorithm=name)
    write_page(tmp_path / "report.html", gathered(store))
    resize(browser, 390)
    browser.get((tmp_path / "report.html").as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    box = "document.querySelector('.results').closest('.scroll')"
    assert browser.execute_script(f"return {box}.scrollWidth - {box}.clientWidth") > 0
    widths = browser.execute_script(
        "return [...document.querySelectorAll('.results tbody th, .overview tbody th')].map((each) => each.offsetWidth)"
    )
    assert widths
    assert max(widths) <= 0.45 * 390
