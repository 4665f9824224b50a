"""Builds the documentation site from the Markdown files in their places, without copies.

MkDocs loads this module as a hook. A page keeps its path in the repository, so one relative link works in the
repository and on the site. A link to a folder leads to the folder's README; a link to a file that is not a page becomes
plain text. Mermaid diagrams are drawn here as SVG, because the site must not load a script from another host.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from pathlib import Path
from typing import Any

import merman
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from prismline_contracts_tool.catalogue import files as contract_files

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = (
    "benchmarks",
    "cli",
    "contracts",
    "deploy",
    "docs",
    "libs",
    "localstack",
    "platform",
    "services",
    "tests",
    "tools",
)
#: Suffixes of the files of the site, and folders that are skipped: installed packages and builds.
KINDS = (".md", ".png", ".svg")
NOT_LOOKED_INTO = {"node_modules", "build", "dist", "site"}

FENCE = re.compile(r"^( *)(```+)(\S*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
LOADS = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?(?P<url>(?:https?:)?//[^"'\s>]+)""")


def _files(folder: Path) -> list[Path]:
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in NOT_LOOKED_INTO:
            continue
        if path.is_dir():
            found += _files(path)
        elif path.suffix in KINDS and path.name != "CHANGELOG.md":
            found.append(path)
    return found


def page_paths() -> list[str]:
    """The paths of all pages and pictures, relative to the repository."""
    paths = [*sorted(ROOT.glob("*.md")), *(path for folder in FOLDERS for path in _files(ROOT / folder))]
    return [path.relative_to(ROOT).as_posix() for path in paths]


def _listed(nav: Any) -> set[str]:
    if isinstance(nav, str):
        return {nav}
    entries = nav.values() if isinstance(nav, dict) else nav
    return set().union(*(_listed(entry) for entry in entries))


def _with_services(nav: Any, services: list[dict[str, str]]) -> Any:
    """The navigation with the pages of the services under the heading `Services`."""
    if isinstance(nav, list):
        return [_with_services(each, services) for each in nav]
    if isinstance(nav, dict):
        return {
            name: services if name == "Services" else _with_services(entries, services) for name, entries in nav.items()
        }
    return nav


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation: the services of the checkout, and a heading for every page that has no place."""
    services = [
        {path.parent.name: path.relative_to(ROOT).as_posix()} for path in sorted(ROOT.glob("services/*/README.md"))
    ]
    config.nav = _with_services(config.nav, services)
    others = [path for path in page_paths() if path.endswith(".md") and path not in _listed(config.nav)]
    if others and config.nav is not None:
        config.nav.append({"More": others})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the repository's pages under their own paths, and the generated files about the contracts."""
    for name, text in contract_files(ROOT / "contracts").items():
        files.append(File.generated(config, f"contracts/{name}", content=text))
    for path in page_paths():
        if path.startswith("docs/site/"):
            continue
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Draw the diagrams and adapt the links; leave other fenced blocks as they are."""
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts.append(_adapt_links(markdown[end : fence.start()], page, files))
        parts.append(_draw(fence[4]) if fence[3] == "mermaid" else fence[0])
        end = fence.end()
    return "".join([*parts, _adapt_links(markdown[end:], page, files)])


def _adapt_links(text: str, page: Page, files: Files) -> str:
    folder = posixpath.dirname(page.file.src_uri)

    def adapted(link: re.Match[str]) -> str:
        target, hash_, anchor = link["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if files.get_file_from_path(path) is not None or not (ROOT / path).exists():
            return link[0]  # a page; or a dead link, about which MkDocs warns
        readme = posixpath.normpath(posixpath.join(path, "README.md"))
        if files.get_file_from_path(readme) is None:
            return link["text"]
        return f"[{link['text']}]({posixpath.relpath(readme, folder or '.')}{hash_}{anchor})"

    return LINK.sub(adapted, text)


def _draw(source: str) -> str:
    name = f"diagram-{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    try:
        svg = merman.Merman().render_svg('%%{init: {"htmlLabels": false}}%%\n' + source, None)
    except merman.MermanError as error:
        raise PluginError(f"a diagram cannot be drawn: {error}\n{source}") from error
    return f'<div class="diagram">{" ".join(svg.split()).replace("merman", name)}</div>'


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001
    """Refuse a page that loads a script, a style, a font or a picture from another host."""
    loaded = {match["url"] for match in LOADS.finditer(output) if 'rel="canonical"' not in match[0]}
    if loaded:
        raise PluginError(f"{page.file.src_uri} loads from the network: {', '.join(sorted(loaded))}")
    return output
