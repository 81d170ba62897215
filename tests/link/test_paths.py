"""The runtime directory and the lengths of its socket paths."""

from pathlib import Path

import pytest

from blimp.errors import ConfigError
from blimp.link.paths import RuntimePaths


def test_a_runtime_directory_too_deep_for_a_socket_is_refused_by_name() -> None:
    RuntimePaths(Path("/run/blimp")).check()
    deep = Path("/tmp") / ("d" * 100)
    with pytest.raises(ConfigError, match=r"dddd.*limit is 107"):
        RuntimePaths(deep).check()
