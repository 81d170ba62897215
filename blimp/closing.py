"""What ends with close(), ends with its with block."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """A context manager whose exit is `close()`, and nothing else."""

    @abstractmethod
    def close(self) -> None:
        """Give up what is held. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
