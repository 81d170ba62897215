"""Files that are whole or not there, whatever interrupts their writing."""

import contextlib
import os
import tempfile
from pathlib import Path

from blimp.system import HAS_OWNERS, sync_directory


def write_atomically(
    path: Path, data: bytes, *, mode: int | None = None, keep_owner: bool = False
) -> None:
    """Write `data` to `path`: a process killed or a power cut meanwhile leaves the old file.

    mode: None for that of the file that is there, or for this user alone. keep_owner: the new file
    belongs to the user and group of the old one, where this user may do that. Raises OSError; then,
    too, the old file is whole and no draft is left. Of two writers at once one wins, whole.
    """
    before = path.stat() if path.is_file() and not path.is_symlink() else None
    if mode is None:
        mode = before.st_mode & 0o777 if before is not None else 0o600
    # Of a name that nobody can foresee, made with O_EXCL: a symlink of a stranger is not followed.
    descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if keep_owner and before is not None:
                with contextlib.suppress(PermissionError):  # root's right, and its owner's
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
            if HAS_OWNERS:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # else the rename may reach the disk before the data
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
    sync_directory(path.parent)
