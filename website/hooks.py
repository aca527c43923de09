"""Hooks of MkDocs: generated pages, and pages for files of the repository that the documentation links to.

A page under `docs/` may link to any file of the repository by its relative path (`../recipes/tiny/4t4s.yaml`), as on
a code host. Such a file becomes a page of the site, so that every link leads somewhere without a network.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website.commands import commands_page
from website.families import families_page
from website.notebooks import notebook_page
from website.settings import settings_page


ROOT = Path(__file__).resolve().parents[1]
SOURCES = "source/"
"""Pages of repository files are at this address, followed by their path."""
GENERATED = {
    "reference/settings.md": settings_page,
    "reference/commands.md": commands_page,
    "reference/families.md": families_page,
}
LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )([^)\s#]+)((?:#[^)\s]*)?)", re.MULTILINE)
FENCE = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"(?<!\]\()(?<![\w`\[/.>])docs/([\w/]+\.md)(?![\w`\]#])")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".jsonl": "json", ".toml": "toml", ".sh": "bash", ".cfg": "ini"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and a page for each repository file that another page links to."""
    for path, write in GENERATED.items():
        files.append(File.generated(config, path, content=write()))
    waiting = [(file.src_uri, file.content_string) for file in files.documentation_pages()]
    while waiting:
        for target in linked_sources(*waiting.pop()):
            if files.get_file_from_path(source_uri(target)) is None:
                file = File.generated(config, source_uri(target), content=source_page(target))
                files.append(file)
                waiting.append((file.src_uri, file.content_string))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links to repository files into links to their pages, and `docs/x.md` in a sentence into a link."""
    return rewrite(name_pages(markdown, page.file.src_uri, files), page.file.src_uri)


def name_pages(markdown: str, src_uri: str, files: Files) -> str:
    """The text of a page, with a link where a sentence names a page as `docs/x.md`."""

    def link(match: re.Match) -> str:
        if files.get_file_from_path(match[1]) is None:
            return match[0]
        path = posixpath.relpath(f"docs/{match[1]}", posixpath.dirname(repository_path(src_uri)) or ".")
        return f"[{match[1].removesuffix('.md')}]({path})"

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else NAMED.sub(link, part) for part in parts)


def repository_path(src_uri: str) -> str:
    """The file of the repository that a page is written in."""
    if not src_uri.startswith(SOURCES):
        return posixpath.join("docs", src_uri)
    path = src_uri.removeprefix(SOURCES)
    return path if (ROOT / path).is_file() else path.removesuffix(".md")


def source_uri(path: str) -> str:
    """The page of a repository file that is outside `docs/`."""
    return SOURCES + (path if path.endswith(".md") else f"{path}.md")


def linked_sources(src_uri: str, markdown: str) -> list[str]:
    """Files of the repository outside `docs/` that the text of a page links to, if they exist."""
    targets = [resolve(src_uri, match[2]) for text in prose(markdown) for match in LINK.finditer(text)]
    return [path for path in targets if path and not path.startswith("docs/") and (ROOT / path).is_file()]


def rewrite(markdown: str, src_uri: str) -> str:
    """The text of a page, with links to repository files as links to pages.

    Links to files that do not exist are left as they are, and MkDocs reports them.
    """

    def target(match: re.Match) -> str:
        path = resolve(src_uri, match[2])
        if path is None or not (ROOT / path).is_file():
            return match[0]
        page = path.removeprefix("docs/") if path.startswith("docs/") else source_uri(path)
        return match[1] + posixpath.relpath(page, posixpath.dirname(src_uri) or ".") + match[3]

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(target, part) for part in parts)


def resolve(src_uri: str, link: str) -> str | None:
    """Path in the repository that a link of a page means; `None` for addresses elsewhere."""
    if ":" in link or link.startswith("/"):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(repository_path(src_uri)), link))
    return None if path.startswith("..") else path


def prose(markdown: str) -> list[str]:
    """The text without its blocks of code."""
    return [part for part in FENCE.split(markdown) if not part.startswith("```")]


def source_page(path: str) -> str:
    """A repository file as a page: Markdown as it is, a notebook cell by cell, anything else as code."""
    text = (ROOT / path).read_text(encoding="utf-8")
    front = f"---\ntitle: {path}\nsearch: {{exclude: true}}\n---\n\n"
    if path.endswith(".md"):
        return front + text
    if path.endswith(".ipynb"):
        return front + notebook_page(text)
    return f"{front}# `{path}`\n\n````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text.rstrip()}\n````\n"
