"""Builds the documentation site from the Markdown files in their places: `python docs/pages.py`.

A page keeps its path in the repository, so one relative link works in the repository and on the site. A link to a
folder leads to the folder's README; a link to a file that is not a page becomes plain text. Mermaid diagrams are drawn
here as SVG, because the site must not load a script from another host. The adapted pages, and a configuration whose
navigation has all of them, are staged in `.docs/`; Zensical makes the site of them.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import merman
import yaml

from prismline_contracts_tool.catalogue import files as contract_files

ROOT = Path(__file__).resolve().parent.parent
STAGE, SITE = ROOT / ".docs", ROOT / "site"
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

SERVICE = re.compile(r"services/[^/]+/README\.md")
FENCE = re.compile(r"^( *)(```+)(\S*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
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


def _navigation(nav: list[Any], pages: list[str]) -> list[Any]:
    """The navigation with the services of the checkout, and a heading for every page that has no place."""
    services = [{posixpath.basename(posixpath.dirname(path)): path} for path in pages if SERVICE.fullmatch(path)]
    nav = _with_services(nav, services)
    others = [path for path in pages if path.endswith(".md") and path not in _listed(nav)]
    return [*nav, {"More": others}] if others else nav


def stage() -> None:
    """Write the pages of the site and its configuration to `.docs/`."""
    shutil.rmtree(STAGE, ignore_errors=True)
    written = {f"contracts/{name}": text for name, text in contract_files(ROOT / "contracts").items()}
    paths = [path for path in page_paths() if not path.startswith("docs/site/")]
    known = {*paths, *written}
    for path in paths:
        if path.endswith(".md"):
            written[path] = _adapted((ROOT / path).read_text(), path, known)
        else:
            (STAGE / "pages" / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, STAGE / "pages" / path)
    for path, text in written.items():
        (STAGE / "pages" / path).parent.mkdir(parents=True, exist_ok=True)
        (STAGE / "pages" / path).write_text(text)
    shutil.copytree(ROOT / "docs/site", STAGE / "pages", dirs_exist_ok=True)
    configuration = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    configuration["nav"] = _navigation(configuration["nav"], sorted(known))
    configuration |= {"docs_dir": "pages", "site_dir": "site"}
    (STAGE / "mkdocs.yml").write_text(yaml.safe_dump(configuration, sort_keys=False, allow_unicode=True))


def _adapted(markdown: str, page: str, known: set[str]) -> str:
    """A page with its diagrams drawn and its links adapted. Other fenced blocks stay as they are."""
    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        parts.append(_adapt_links(markdown[end : fence.start()], page, known))
        parts.append(_draw(fence[4]) if fence[3] == "mermaid" else fence[0])
        end = fence.end()
    return "".join([*parts, _adapt_links(markdown[end:], page, known)])


def _adapt_links(text: str, page: str, known: set[str]) -> str:
    folder = posixpath.dirname(page)

    def adapted(link: re.Match[str]) -> str:
        target, hash_, anchor = link["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in known or not (ROOT / path).exists():
            return link[0]  # a page; or a dead link, which ends a strict build
        readme = posixpath.normpath(posixpath.join(path, "README.md"))
        if readme not in known:
            return link["text"]
        return f"[{link['text']}]({posixpath.relpath(readme, folder or '.')}{hash_}{anchor})"

    return LINK.sub(adapted, text)


def _draw(source: str) -> str:
    name = f"diagram-{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    try:
        svg = merman.Merman().render_svg('%%{init: {"htmlLabels": false}}%%\n' + source, None)
    except merman.MermanError as error:
        sys.exit(f"A diagram cannot be drawn: {error}\n{source}")
    return f'<div class="diagram">{" ".join(svg.split()).replace("merman", name)}</div>'


def loaded_from_elsewhere(site: Path) -> list[str]:
    """The pages that load a script, a style, a font or a picture from another host, with what they load."""
    return [
        f"{path.relative_to(site)} loads {match['url']}"
        for path in sorted(site.rglob("*.html"))
        for match in LOADS.finditer(path.read_text())
        if 'rel="canonical"' not in match[0]
    ]


def main() -> int:
    """Entry point. Returns 1 if a link is dead or a page loads from the network, with the reasons."""
    stage()
    build = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(STAGE / "mkdocs.yml")]
    done = subprocess.run(build, cwd=STAGE, capture_output=True, text=True, check=False)
    complaints = [] if done.returncode == 0 else [COLOUR.sub("", done.stderr).partition("Traceback")[0]]
    complaints += loaded_from_elsewhere(STAGE / "site")
    sys.stderr.writelines(f"{complaint}\n" for complaint in complaints)
    shutil.rmtree(SITE, ignore_errors=True)
    (STAGE / "site").replace(SITE)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
