"""Pages of HTML in a browser, for tests."""

from contextlib import contextmanager
from pathlib import Path


@contextmanager
def opener(browser, folder: Path):
    """A function that opens a page: HTML, or the path of a file. Fails at its end if a page has reported an error or
    asked the network."""
    contexts, problems = [], []

    def open_it(page, *, width=1280, height=900, dark=False):
        if not isinstance(page, Path):
            page, html = folder / f"page_{len(contexts)}.html", page
            page.write_text(html, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        opened = context.new_page()
        opened.set_default_timeout(90_000)
        opened.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
        opened.on("pageerror", lambda error: problems.append(str(error)))
        opened.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        local = ("file:", "data:", "blob:")
        context.on("request", lambda asked: None if asked.url.startswith(local) else problems.append(asked.url))
        opened.goto(page.as_uri())
        return opened

    try:
        yield open_it
    finally:
        for context in contexts:
            context.close()
    assert not problems
