"""How long a decoding process has worked, whatever it had to wait for a processor (docs/decisions.md#r29)."""

from __future__ import annotations

import os
import time
from pathlib import Path

# A process that used no processor time for so long hangs; a machine that is merely busy gives it some.
_STALLED_SECONDS = 60.0
# Of wall time for each second that is allowed: a process that was taken over could also sleep.
_SLOWEST = 20.0
_LOOK_SECONDS = 0.25


class ProcessClock:
    """The time of one task of a process.

    seconds: of processor time, of all its threads together, that the task may take
    """

    def __init__(self, pid: int, seconds: float) -> None:
        self._stat = Path(f"/proc/{pid}/stat")
        self._seconds = seconds
        self._start = self._last = self._used()
        self._last_moved = self._started = time.monotonic()

    def check(self) -> None:
        """Raises TimeoutError where the task has taken too long, or hangs."""
        used, now = self._used(), time.monotonic()
        if used > self._last:
            self._last, self._last_moved = used, now
        is_late = used - self._start > self._seconds or now - self._started > _SLOWEST * self._seconds
        if is_late or now - self._last_moved > _STALLED_SECONDS:
            raise TimeoutError

    def resume(self) -> None:
        """The process was kept waiting on purpose until now."""
        now = time.monotonic()
        self._started += now - self._last_moved
        self._last_moved = now

    def next_look(self) -> float:
        """Seconds after which `check` is due."""
        left = self._seconds - (self._last - self._start)
        return min(_LOOK_SECONDS, max(left, 0.01))

    def _used(self) -> float:
        """Seconds of processor time; wall time where the system does not tell."""
        try:
            fields = self._stat.read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        except (OSError, IndexError, ValueError):
            return time.monotonic()
