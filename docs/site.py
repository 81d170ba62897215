"""The documents of the repository's root, and the API reference, as pages of the site.

A hook of MkDocs (`mkdocs.yml`): README, CONTRIBUTING and CHANGELOG stay where a newcomer looks for
them, and the reference is made from the packages that are there, so that neither has a copy.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
# Packages of the reference, with what a reader looks for there.
PACKAGES = {
    "blimp.queue": "the task queue",
    "blimp.tasks": "what a ship can be asked to do",
    "blimp.control": "how to fly",
    "blimp.hardware": "chips and buses",
    "blimp.ship": "the whole ship, and its flights in lockstep",
    "blimp.sim": "the simulated world",
    "blimp.link": "between processes",
    "blimp.service": "processes put together",
    "ground_station": "the operator's side",
    "blimp": "the base",
}
# Search shows a chapter before what the reference or the history has of the same name: a word of a
# title counts a thousand times as much as one of a text, so these count less than a thousandth.
BOOSTS = {"reference/": 1e-5, "changelog.md": 1e-4, "decisions/": 1e-4}
# The text of a window 1280 px wide has room for 114 characters of code; longer lines wrap.
CSS = """
@media (min-width: 76.25em) {
  .md-typeset pre > code { font-size: 0.64rem; white-space: pre-wrap; }
}
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in PAGES.items():
        text = (ROOT / source).read_text("utf-8")
        files.append(File.generated(config, page, content=text))
    files.append(File.generated(config, "site.css", content=CSS))
    for airframe in ROOT.glob("blimp/airframes/*.toml"):
        uri = str(airframe.relative_to(ROOT))
        files.append(File.generated(config, uri, abs_src_path=str(airframe)))
    index = [
        "# Reference",
        "",
        "Made from the docstrings.",
        "",
        "| package | what it holds |",
        "|---|---|",
    ]
    for package, what in PACKAGES.items():
        files.append(File.generated(config, f"reference/{package}.md", content=_reference(package)))
        index.append(f"| [`{package}`]({package}.md) | {what} |")
    files.append(File.generated(config, "reference/index.md", content="\n".join(index)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Links as they are in the repository, made into links between the pages."""
    source = page.file.src_uri
    boost = next((BOOSTS[one] for one in BOOSTS if source.startswith(one)), 1.0)
    page.meta["search"] = {"boost": boost}
    origins = {page: source for source, page in PAGES.items()}
    directory = posixpath.dirname(origins.get(source, f"docs/{source}"))
    here = posixpath.dirname(source)

    def rewritten(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(directory, link[1]))
        page = PAGES.get(path) or path.removeprefix("docs/")
        if path.endswith(".py"):
            page = f"reference/{_package(path)}.md"
        return f"]({posixpath.relpath(page, here or '.')}{link[2] or ''})"

    return markdown if source.startswith("reference/") else LINK.sub(rewritten, markdown)


def _package(path: str) -> str:
    name = path.removesuffix(".py").replace("/", ".")
    return next(one for one in PACKAGES if name.startswith(f"{one}."))


def _reference(package: str) -> str:
    directory = ROOT / package.replace(".", "/")
    deep = package != "blimp"
    modules = sorted(directory.rglob("*.py") if deep else directory.glob("*.py"))
    names = [str(one.relative_to(ROOT).with_suffix("")).replace("/", ".") for one in modules]
    shown = [one for one in names if not one.rpartition(".")[2].startswith("_")]
    return "\n\n".join([f"# `{package}`: {PACKAGES[package]}", *(f"::: {one}" for one in shown)])
