"""The pictures of AprilTags, by family and number, as the field's own library has them."""

import ctypes
from functools import cache
from typing import Any

from blimp.distribution import needing

with needing("camera", "tags need"):
    import numpy as np
    from numpy.typing import NDArray
    from pyapriltags import Detector
    from pyapriltags.apriltags import _ApriltagFamily, _ImageU8


@cache
def family_of(name: str) -> tuple[Any, Any]:
    """Return the library, and its `apriltag_family_t`."""
    library: Any = Detector(families="").libc
    create = getattr(library, f"{name}_create")
    create.restype = ctypes.POINTER(_ApriltagFamily)
    return library, create().contents


@cache
def picture(family: str, number: int) -> tuple[NDArray[np.uint8], int]:
    """Return a tag's cells (n, n), 0 black and 255 white, top row first, with its margin, and how
    many of them lie between its corners."""
    library, found = family_of(family)
    draw = library.apriltag_to_image
    draw.restype = ctypes.POINTER(_ImageU8)
    image = draw(ctypes.byref(found), ctypes.c_uint32(number)).contents
    rows = np.ctypeslib.as_array(image.buf, shape=(image.height, image.stride))
    return rows[:, : image.width].copy(), int(found.width_at_border)
