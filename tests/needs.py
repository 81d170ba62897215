"""What a test needs of its machine: where that is missing it is NOT RUN, and says why.

Under CI, where all of it must be there, it fails.
"""

import os
import subprocess

import pytest


def not_run(why: str, *, module: bool = False) -> BaseException:
    """Return what ends this test, or the module whose head raises it."""
    if os.environ.get("CI"):
        return pytest.fail.Exception(f"{why}: CI needs it", pytrace=False)
    return pytest.skip.Exception(f"NOT RUN: {why}", allow_module_level=module)


def needs_root(why: str) -> pytest.MarkDecorator:
    """Mark a test, or a module by `pytestmark`; conftest.py judges it. why: what only root can."""
    return pytest.mark.root(why)


def no_mount() -> str:
    """Return why no process here can have a mount of its own; "" if one can."""
    if os.getuid() != 0:
        return "a mount of its own: needs root"
    words = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        ended = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "a mount of its own: no unshare here: apt-get install util-linux"
    return f"a mount of its own: {ended.stderr.strip()}" if ended.returncode else ""
