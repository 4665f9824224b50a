"""The pages of the documentation that this repository's tests of pages hold: docs/ and the pages at the top."""

from __future__ import annotations

from docs import reference
from prismline_localstack.settings import REPOSITORY

#: Each page by its path in the repository.
PAGES = {
    path.relative_to(REPOSITORY).as_posix(): path
    for path in sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")])
    if path.name != "CHANGELOG.md"
}
#: The pages that `make reference` writes.
GENERATED = {path.relative_to(REPOSITORY).as_posix() for path in reference.FOLDER.glob("*.md")} & {
    f"docs/reference/{name}.md" for name in reference.PAGES
}
