"""A few places for many: first come first served, but a paused one lets those behind it pass."""

from __future__ import annotations

import threading
from collections.abc import Callable

Check = Callable[[], None]
POLL_S = 0.05


class _Turn:
    """One in the line. away: it looks at Stop just now, which may pause it for minutes."""

    away = False


class Places:
    """``count`` places, given to whoever waits longest and is not paused."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._line: list[_Turn] = []
        self._changed = threading.Condition()

    def wanted(self) -> bool:
        """Whether somebody waits."""
        return any(not turn.away for turn in self._line)

    def take(self, check: Check) -> None:
        """Waits for a place. check: called each 0.05 s while waiting; may wait, or raise to leave the line."""
        turn = _Turn()
        with self._changed:
            self._line.append(turn)
        try:
            while not self._got(turn):
                check()
        except BaseException:
            with self._changed:
                self._line.remove(turn)
            raise

    def give_back(self) -> None:
        with self._changed:
            self._free += 1
            self._changed.notify_all()

    def _got(self, turn: _Turn) -> bool:
        with self._changed:
            turn.away = False
            if not self._first(turn):
                self._changed.wait(POLL_S)
            turn.away = not self._first(turn)
            if not turn.away:
                self._free -= 1
                self._line.remove(turn)
                self._changed.notify_all()
            return not turn.away

    def _first(self, turn: _Turn) -> bool:
        return self._free > 0 and next(t for t in self._line if not t.away) is turn
