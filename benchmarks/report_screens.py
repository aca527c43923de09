"""Pictures of a run's page for docs/report.md, taken by Chromium.

    python -m benchmarks.report_screens RUN [--output docs/report]

Writes the page of RUN into a scratch folder and five PNG files, each under 150 KB. Half a minute. Needs Playwright,
Pillow and Chromium (CHROMIUM says where it is).
"""

import argparse
import os
import shutil
import tempfile
from pathlib import Path


SHOTS = {  # name -> section, width, height, dark, what to click first
    "overview": ("", 1240, 900, False, ()),
    "members_dark": ("members", 1240, 860, True, ()),
    "games": ("games", 1240, 520, False, ()),
    "task": ("tasks", 1240, 860, False, ("[data-view=hardest]", "tr.head >> nth=0")),
    "phone": ("", 390, 844, False, ()),
}
LIMIT = 150_000


def main() -> None:
    from playwright.sync_api import sync_playwright

    from trl_populora.reporting.played_run import read_run
    from trl_populora.reporting.run_page import write_report

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="output_dir of a run")
    parser.add_argument("--output", type=Path, default=Path("docs/report"))
    options = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as driver:
        page = Path(write_report(read_run(options.run), os.path.join(place, "report.html")))
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (section, width, height, dark, clicks) in SHOTS.items():
            tab = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
            )
            tab.goto(page.as_uri())
            for click in clicks:
                tab.locator(click).click()
            if section:
                tab.evaluate("id => document.getElementById(id).scrollIntoView()", section)
            tab.wait_for_selector("[data-drawn]")
            tab.wait_for_timeout(2500)  # figures above and below the first
            path = options.output / f"{name}.png"
            tab.screenshot(path=path)
            _shrink(path)
            print(f"{path}  {path.stat().st_size / 1000:.0f} KB")
            tab.close()
        browser.close()


def _shrink(path: Path) -> None:
    """Saves a picture smaller; with 256 colours if need be."""
    from PIL import Image

    picture = Image.open(path).convert("RGB")
    picture.save(path, optimize=True)
    if path.stat().st_size > LIMIT:
        picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > LIMIT:
        raise SystemExit(f"{path} has {path.stat().st_size:,} bytes, more than {LIMIT:,}")


if __name__ == "__main__":
    main()
