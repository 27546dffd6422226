"""How the C library treats memory that is freed."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_MEBIBYTE = 1 << 20


def keep_freed_memory() -> bool:
    """Let glibc keep what is freed for the next tensor; says whether it agreed.

    Otherwise every activation above a few megabytes is given back and faulted in again, page by page, which took a
    third of the processor time of passes on a CPU. It holds for the whole process, so only commands and workers, whose
    process is their own, ask for it.

    >>> keep_freed_memory() == sys.platform.startswith("linux")  # with glibc
    True
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    wanted = ((_MMAP_THRESHOLD, 32 * _MEBIBYTE), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 64 * _MEBIBYTE))
    return all([mallopt(option, value) == 1 for option, value in wanted])
