"""What an error of SQLAlchemy or a driver means, in this package's words and without secrets."""

from __future__ import annotations

import re

from sqlalchemy import exc

from blimp.errors import BlimpError, LinkError, NotAuthorised, ResultError
from blimp.tasks.broker.urls import MAX_REASON_LENGTH

_REFUSED = "28"  # the class of PostgreSQL's states for a wrong user or password
# While it connects, the driver has its words alone.
_REFUSAL = re.compile(r'authentication failed|role "[^"]*" does not exist|no pg_hba.conf entry')
# Others are mistakes in this package, and are told as they are.
PASSING = (exc.DBAPIError, exc.TimeoutError, exc.DisconnectionError)
_ROWS = (exc.DataError, exc.IntegrityError)  # of what is written, not of the database


def translated(error: exc.SQLAlchemyError, *, where: str) -> BlimpError:
    """Return LinkError where it may be tried again, ResultError where a row is at fault.

    What is wrong with a whole database, full or read-only or without its tables, may be put
    right: what waits for it is kept.
    """
    cause = getattr(error, "orig", None) or error
    # The driver's words; SQLAlchemy's own hold statements and parameters.
    text = str(cause) if cause is not error else str(error.args[0] if error.args else error)
    reason = " ".join(text.split())[:MAX_REASON_LENGTH]
    if isinstance(error, _ROWS):
        return ResultError(f"{where}: {reason}")
    state = getattr(cause, "sqlstate", None) or ""
    if state.startswith(_REFUSED) or _REFUSAL.search(reason):
        return NotAuthorised(f"{where} refuses: {reason}")
    lost = isinstance(error, exc.DBAPIError) and error.connection_invalidated
    return LinkError(f"{'lost ' if lost else ''}{where}: {reason}")
