"""What pyproject.toml cannot say: wheel and sdist carry the version and commit they are built from.

See `blimp/distribution.py`, which reads it.
"""

import os
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from blimp import distribution  # noqa: E402


def stamp(directory: str | Path, version: str) -> None:
    """Write blimp/_build.py below `directory`, unless it came with the sdist."""
    path = Path(directory, "blimp", "_build.py")
    if not (ROOT / "blimp" / "_build.py").exists():
        commit = distribution.build().commit
        path.unlink(missing_ok=True)  # of an earlier build, or a hard link
        path.write_text(
            f'"""What this was built from."""\n\nVERSION = "{version}"\nCOMMIT = "{commit}"\n',
            encoding="utf-8",
        )


class BuildPackages(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # an editable install is a checkout: it would be out of date
            stamp(self.build_lib, self.distribution.get_version())


class BuildSource(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        stamp(base_dir, self.distribution.get_version())


if not any((ROOT / name).exists() for name in (".git", "PKG-INFO")):
    # An archive, or a copy without history: setuptools-scm would call each one without a tag 0.0.
    name = f"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_{distribution.NAME.replace('-', '_').upper()}"
    os.environ.setdefault(name, distribution.build().version)

setup(cmdclass={"build_py": BuildPackages, "sdist": BuildSource})
