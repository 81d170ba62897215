"""A base for classes with `close()`, so that each is also a context manager."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A context manager whose exit is `close()`, and nothing else."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
