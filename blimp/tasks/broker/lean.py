"""redis-py, loaded as if OpenTelemetry were not installed.

Where it is, redis-py 7 and newer loads its metrics half for figures that nobody here asks for:
two megabytes of a worker's forty. A program that wants those loads either of them before.
"""

from __future__ import annotations

import sys
from typing import Any

_modules: dict[str, Any] = sys.modules
_is_hidden = "redis" not in _modules and "opentelemetry" not in _modules
if _is_hidden:
    _modules["opentelemetry"] = None  # importing it fails, which redis-py is ready for
try:
    import redis
finally:
    if _is_hidden:
        del _modules["opentelemetry"]

__all__ = ["redis"]
