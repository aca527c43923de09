"""Pages of the built site that are wider than the window: `python -m website.widths`, after `make docs`.

Every page is opened in Chromium (CHROMIUM, if it is not on the path), as wide as a desktop and as a phone.
"""

import os
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright


WIDTHS = (1280, 390)
SITE = Path(__file__).resolve().parents[1] / "build" / "site"


def main() -> int:
    pages = sorted(SITE.rglob("*.html"))
    if not pages:
        sys.exit(f"{SITE} has no pages: run `make docs` first.")
    wide = []
    with sync_playwright() as driver:
        path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for width in WIDTHS:
            window = browser.new_page(viewport={"width": width, "height": 900})
            for page in pages:
                window.goto(page.as_uri())
                taken = window.evaluate("document.documentElement.scrollWidth")
                wide += [f"{page.relative_to(SITE)}: {taken} pixels in {width}"] if taken > width else []
    told = f"{len(pages)} pages at {' and '.join(map(str, WIDTHS))} pixels, {len(wide)} too wide"
    sys.stdout.write("\n".join([*wide, told]) + "\n")
    return 1 if wide else 0


if __name__ == "__main__":
    sys.exit(main())
