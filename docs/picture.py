"""Draw docs/figures/report.png: the page that the README's first commands make, in Chromium (`make picture`)."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from selenium import webdriver

ROOT = Path(__file__).parent.parent
SETTING = "--dataset digits --partition dirichlet:0.1 --clients 10 --rounds 40 --lr 0.1 --batch-size 16"
WIDTH, HEIGHT = 1280, 1040


def photograph(page: Path, picture: Path) -> None:
    """The top of a page as a picture, with few enough colours to stay small."""
    from PIL import Image

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(flag)
    options.add_argument(f"--window-size={WIDTH},{HEIGHT}")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        driver.get(page.as_uri())
        driver.set_window_size(WIDTH, HEIGHT + 300)  # a window without a screen keeps room for its bars
        driver.save_screenshot(str(picture))
    finally:
        driver.quit()
    with Image.open(picture) as image:
        image.crop((0, 0, WIDTH, HEIGHT)).convert("RGB").quantize(64).save(picture, optimize=True)


def fedskew(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "fedskew", *words], check=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        runs, page = f"{folder}/runs", f"{folder}/report.html"
        methods = ["--algorithm", "fedavg,fedlc,scaffold", "--seeds", "3", "--out", f"{folder}/comparison"]
        fedskew("compare", *SETTING.split(), *methods, "--runs", runs)
        fedskew("report", "--runs", runs, "--out", page)
        photograph(Path(page), ROOT / "docs" / "figures" / "report.png")
