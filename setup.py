"""What pyproject.toml cannot say: wheel and sdist carry the version and commit they are built from,
and are equal byte for byte whoever builds them, where and when.

See `blimp/distribution.py`, which reads it.
"""

import gzip
import os
import re
import shutil
import sys
import tarfile
from datetime import datetime
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
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
        if not self.editable_mode:  # pip leaves it in a checkout: with files of an earlier version
            for package in self.distribution.packages or ():
                shutil.rmtree(Path(self.build_lib, package.partition(".")[0]), ignore_errors=True)
        super().run()
        if not self.editable_mode:  # an editable install is a checkout: it would be out of date
            stamp(self.build_lib, self.distribution.get_version())


class BuildWheel(bdist_wheel):
    def egg2dist(self, egginfo_path: str, distinfo_path: str) -> None:
        super().egg2dist(egginfo_path, distinfo_path)
        for path in Path(distinfo_path).rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)  # a licence is as it was unpacked


class BuildSource(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        stamp(base_dir, self.distribution.get_version())

    def make_archive(self, base_name: str, format: str, *args: Any, **options: Any) -> str:
        """Pack the tree without what differs between two builds: setuptools packs it as it is."""
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if format != "gztar" or epoch is None:
            return super().make_archive(base_name, format, *args, **options)

        def plain(one: tarfile.TarInfo) -> tarfile.TarInfo:
            one.mtime, one.mode = int(epoch), 0o755 if one.mode & 0o100 else 0o644
            one.uid = one.gid = 0
            one.uname = one.gname = ""
            return one

        path = Path(f"{base_name}.tar.gz")
        with (
            path.open("wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=int(epoch)) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            tar.add(options["base_dir"], filter=plain)  # in the order of the names
        return str(path)


def date() -> str:
    """Return when what is built was committed, in Unix time; "" if nothing says it."""
    said = ROOT / "PKG-INFO"  # of an unpacked sdist, in which all files have this date
    if said.exists():
        return str(int(said.stat().st_mtime))
    archive = ROOT / ".git_archival.txt"  # in which `git archive` writes
    text = archive.read_text("utf-8") if archive.exists() else ""
    if archived := re.search(r"^node-date: (\d.*)$", text, re.MULTILINE):
        return str(int(datetime.fromisoformat(archived[1]).timestamp()))
    return distribution._git(ROOT, "log", "-1", "--format=%ct")


if not (ROOT / ".git").exists():
    # An archive, its sdist, a copy without history: setuptools-scm calls each without a tag 0.0.
    name = f"SETUPTOOLS_SCM_PRETEND_VERSION_FOR_{distribution.NAME.replace('-', '_').upper()}"
    os.environ.setdefault(name, distribution.build().version)
    # It packs each file there is, also the bytecode of an archive that was used.
    for bytecode in list(ROOT.glob("[!.]*/**/__pycache__")):
        shutil.rmtree(bytecode)


def shown_on_an_index() -> str:
    """Return the README without links to files, which an index does not have, and no pictures.

    The project has no public address yet. When it has one, link to its files of this commit.
    """
    text = (ROOT / "README.md").read_text("utf-8")
    text = re.sub(r"!\[[^]]*\]\([^)]*\)\n*(The picture shows [^.]*\.\s)?", "", text)
    text = re.sub(r"\[([^]]+)\]\((?!https?:)[^)]+\)", r"\1", text)
    return f"{text}\nThe documents that this text names are in the sdist, below `docs/`.\n"


if committed := date():
    os.environ.setdefault("SOURCE_DATE_EPOCH", committed)  # the wheel's dates, too
os.umask(0o022)  # the modes of what setuptools writes into the wheel

setup(
    cmdclass={"build_py": BuildPackages, "bdist_wheel": BuildWheel, "sdist": BuildSource},
    long_description=shown_on_an_index(),
    long_description_content_type="text/markdown",
)
