"""The pictures of AprilTags, by family and number, as the field's own library has them."""

import ctypes
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blimp.errors import ConfigError


class _Family(ctypes.Structure):
    """apriltag_family_t, its beginning."""

    _fields_ = (
        ("ncodes", ctypes.c_uint32),
        ("codes", ctypes.POINTER(ctypes.c_uint64)),
        ("width_at_border", ctypes.c_int),
        ("total_width", ctypes.c_int),
        ("reversed_border", ctypes.c_bool),
    )


class _Image(ctypes.Structure):
    """image_u8_t."""

    _fields_ = (
        ("width", ctypes.c_int32),
        ("height", ctypes.c_int32),
        ("stride", ctypes.c_int32),
        ("buf", ctypes.POINTER(ctypes.c_uint8)),
    )


@cache
def _library() -> Any:
    spec = find_spec("pyapriltags")
    if spec is None or spec.origin is None:
        raise ConfigError("a scene with tags needs the extra `camera`: pyapriltags is missing")
    return ctypes.CDLL(str(next(Path(spec.origin).parent.glob("libapriltag*"))))


@cache
def _family(name: str) -> Any:
    create = getattr(_library(), f"{name}_create")
    create.restype = ctypes.POINTER(_Family)
    return create()


@cache
def picture(family: str, number: int) -> tuple[NDArray[np.uint8], int]:
    """Return a tag's cells (n, n), 0 black and 255 white, top row first, with its margin, and how
    many of them lie between its corners.

    Raises ConfigError where the library is missing.
    """
    pointer = _family(family)
    to_image = _library().apriltag_to_image
    to_image.restype, to_image.argtypes = ctypes.POINTER(_Image), [ctypes.c_void_p, ctypes.c_uint32]
    image = to_image(pointer, number).contents
    rows = np.ctypeslib.as_array(image.buf, shape=(image.height, image.stride))
    return rows[:, : image.width].copy(), int(pointer.contents.width_at_border)
