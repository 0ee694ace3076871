"""Debian's chromium and chromium-driver, without a window; without selenium, files that import this are skipped."""

import os
import shutil
from contextlib import contextmanager

import pytest

REQUIRED = os.environ.get("FEDSKEW_BROWSER") == "1"
if REQUIRED:
    import selenium.webdriver  # noqa: F401 - an error here where it is not installed
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.action_chains import ActionChains as ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys as Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait as WebDriverWait  # noqa: E402

BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
WANTED = REQUIRED or (BROWSER and DRIVER and os.environ.get("FEDSKEW_BROWSER") != "0")
in_chromium = pytest.mark.skipif(not WANTED, reason="chromium and chromedriver are not installed, or do not start")


@contextmanager
def chromium():
    assert BROWSER, "FEDSKEW_BROWSER is 1 and there is no chromium"
    assert DRIVER, "FEDSKEW_BROWSER is 1 and there is no chromedriver"
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER, log_output=os.devnull))
    try:
        yield driver
    finally:
        driver.quit()


def resize(browser, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def scheme(name):
    return [{"name": "prefers-color-scheme", "value": name}]


def one(page, selector):
    return page.find_element(By.CSS_SELECTOR, selector)


def scroll_through(page):
    """Past every drawing, so that all of them are drawn."""
    for host in page.find_elements(By.CSS_SELECTOR, ".drawing"):
        page.execute_script("arguments[0].scrollIntoView()", host)
        page.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 30))")
