"""Writes constraints.txt: what the product needs, as installed here, with version and licence.

    .venv/bin/pip install --upgrade --upgrade-strategy eager --editable '.[demo,dev]'
    make test && .venv/bin/python -m tests.constraints

So each version in it is one that the tests have passed with. `make release` refuses another file.
"""

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from blimp.distribution import NAME

PATH = Path(__file__).resolve().parents[1] / "constraints.txt"
TOOLS = {"dev", "docs", "fuzz", "pi"}  # extras that no user installs; `pi` has no wheel for a PC
PYTHONS = ("3.11", "3.13")  # Debian 12's and 13's, those of Raspberry Pi OS
# Debian 12's picamera2 is built for Debian's numpy, which pip must leave in place.
MARKERS = {"numpy": ' ; python_version >= "3.13"'}
BUILT_BY = ("setuptools", "setuptools-scm", "vcs-versioning")  # else a wheel says another
# What a licence may be: permissive, or one that asks nothing of who imports the package as it is.
ALLOWED = {
    "0BSD", "Apache Software License", "Apache-2.0", "Apache-2.0 AND BSD-2-Clause",
    "Apache-2.0 OR BSD-2-Clause", "Apache-2.0 OR BSD-3-Clause", "BSD", "BSD License",
    "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause AND 0BSD AND MIT AND Zlib AND CC0-1.0", "ISC",
    "ISC License (ISCL)", "LGPL-3.0-only", "GNU Lesser General Public License v3 (LGPLv3)", "MIT",
    "MIT AND PSF-2.0", "MIT License", "MIT-CMU", "PSF-2.0", "Python Software Foundation License",
}  # fmt: skip


def needed() -> set[str]:
    """Return the names of all packages that this project and its extras need to run."""
    extras = set(distribution(NAME).metadata.get_all("Provides-Extra") or ()) - TOOLS
    found: set[tuple[str, str]] = set()
    wanted = [(canonicalize_name(NAME), extra) for extra in ("", *sorted(extras))]
    while wanted:
        name, extra = wanted.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        for line in distribution(name).requires or ():
            one = Requirement(line)
            places = [{"extra": extra, "python_version": python} for python in PYTHONS]
            if one.marker is None or any(one.marker.evaluate(place) for place in places):
                wanted += [(canonicalize_name(one.name), each) for each in ("", *one.extras)]
    return {name for name, _ in found} - {canonicalize_name(NAME)}


def is_here(name: str) -> bool:
    try:
        return bool(distribution(name))
    except PackageNotFoundError:
        return False


def licence(name: str) -> str:
    """Return what a package says that its licence is."""
    about = distribution(name).metadata
    classified = [
        one.rpartition(" :: ")[2]
        for one in about.get_all("Classifier") or ()
        if one.startswith("License :: ")
    ]
    short = (about["License"] or "").splitlines() if "License" in about else []
    return str(about["License-Expression"] or ", ".join(classified) or "".join(short[:1]))


def text() -> str:
    lines = [
        "# Written by `python -m tests.constraints`: the versions that the tests have passed with.",
        "# pip install -c constraints.txt '.[demo,bench,page]'",
    ]
    for name in sorted(needed() | set(BUILT_BY)):
        version = distribution(name).version
        lines.append(f"{name}=={version}{MARKERS.get(name, '')}  # {licence(name)}")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    PATH.write_text(text(), "utf-8")
    sys.exit(0)
