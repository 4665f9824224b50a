"""Images of services on a machine without a container engine: folders with the files that a Dockerfile copies.

An image holds the files that its Dockerfile copies from the checkout to `/app/`. Python and the third-party packages
are those of this process: `requirements/runtime.txt` holds the versions of every service's image. The kernel of
gaussline, which a Dockerfile compiles, is also the one installed for this process.

An image is addressed by the digest of what it is built from, which is also in the tag of the image in a registry:
`prismline/worker@sha256:...`. Its folder never changes.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from prismline_deploy.dockerfiles import copied, dockerfile_of, files_below, ignored_by, image_digest

#: Folder of an image into which the code of a service and its libraries is copied.
APP = "app"


class FolderImages:
    """Images below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def build(self, root: Path, service: str) -> str:
        """Create the image of a service of the checkout `root`, unless it exists. Return its URI.

        Raises DeployError for a Dockerfile that copies nothing to `/app/`, or folders that do not exist.
        """
        dockerfile = dockerfile_of(root, service)
        sources = copied(dockerfile)
        uri = f"prismline/{service}@sha256:{image_digest(root, service)}"
        if self.find(uri).exists():
            return uri
        self._folder.mkdir(parents=True, exist_ok=True)
        ignored = ignored_by(root, dockerfile)
        with tempfile.TemporaryDirectory(dir=self._folder) as draft:
            for source in sources:
                for path in files_below(root, source, ignored):
                    copy = Path(draft) / APP / path.relative_to(root / source)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, copy)
            self.find(uri).parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(draft, self.find(uri), dirs_exist_ok=True)
        return uri

    def find(self, uri: str) -> Path:
        """The folder of an image."""
        name, _, digest = uri.partition("@sha256:")
        return self._folder / name / digest
