"""Types that several threads read, made ready while there is one.

msgspec builds what it knows of a struct at the first use, in parts and with Python's own code
between them. A second thread that reads the same type meanwhile takes what is half there, and the
process ends with a segmentation fault (msgspec 0.22, 1 in 50 first messages of a loaded worker).
"""

from typing import TypeVar

import msgspec

T = TypeVar("T")


def ready(kind: type[T]) -> type[T]:
    """Return a struct's type when msgspec has built all that it needs to read it.

    A decorator; called after the class where its fields name what is defined later. Raises
    NameError for such a name, TypeError for a field that msgspec cannot read.
    """
    msgspec.json.Decoder(kind)
    return kind
