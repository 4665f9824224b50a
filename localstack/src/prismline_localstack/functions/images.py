"""Images of services on a machine without a container engine: folders with the files that a Dockerfile copies.

An image holds the files that its Dockerfile copies from the checkout to `/app/`. Python and the third-party packages
are those of this process: `requirements/runtime.txt` holds the versions of every service's image. The kernel of
gaussline, which a Dockerfile compiles, is also the one installed for this process.

An image is addressed by the digest of its content, as in a registry: `prismline/worker@sha256:...`. Its folder never
changes.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path

from prismline_deploy.dockerfiles import copied
from prismline_deploy.errors import DeployError

#: Folder of an image into which the code of a service and its libraries is copied.
APP = "app"
#: Files that are not copied into an image: caches, metadata of installations, compiled modules.
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")


class FolderImages:
    """Images below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def build(self, root: Path, service: str) -> str:
        """Create the image of a service of the checkout `root`, unless it exists. Return its URI.

        Raises DeployError for a Dockerfile that copies nothing to `/app/`, or folders that do not exist.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as draft:
            app = Path(draft) / APP
            for source in copied(root / "services" / service / "Dockerfile"):
                if not (root / source).is_dir():
                    raise DeployError(f"services/{service}/Dockerfile copies {source}, which is not a folder.")
                shutil.copytree(root / source, app, dirs_exist_ok=True, ignore=IGNORED)
            uri = f"prismline/{service}@sha256:{_digest(app)}"
            if not self.find(uri).exists():
                self.find(uri).parent.mkdir(parents=True, exist_ok=True)
                shutil.copytree(draft, self.find(uri))
        return uri

    def find(self, uri: str) -> Path:
        """The folder of an image."""
        name, _, digest = uri.partition("@sha256:")
        return self._folder / name / digest


def _digest(folder: Path) -> str:
    """SHA-256 of all files in a folder, their names included."""
    whole = hashlib.sha256()
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        content = path.read_bytes()
        whole.update(f"{path.relative_to(folder)} {len(content)}\n".encode() + content)
    return whole.hexdigest()
