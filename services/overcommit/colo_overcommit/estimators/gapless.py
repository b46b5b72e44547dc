"""A series of values at equal distances without gaps, as transforms of whole periods need it.

Source: gocrane/crane (pkg/prediction/dsp, preprocessing of samples).
"""

from array import array
from typing import Final, Literal

__all__ = ["GAP_MOST_S", "GaplessSeries"]

GAP_MOST_S: Final = 3_600


class GaplessSeries:
    """The newest values, at most `most`, one in each `interval_s`. `end_s` is the time of the newest one, -1 before the first.

    A short gap is filled with the line between its ends; after one of more than an hour the series begins again. With the typecode
    "f" a value takes four bytes (float32), and a large one is off by at most one part in sixteen million.
    """

    __slots__ = ("_interval_s", "_most", "end_s", "values")

    def __init__(self, interval_s: int, most: int, typecode: Literal["d", "f"] = "d") -> None:
        self._interval_s, self._most = interval_s, most
        self.end_s = -1
        self.values = array(typecode)

    def add(self, at_s: int, value: float) -> bool:
        """Take the next value. False, and nothing is taken: its time does not grow, or is no whole number of intervals later."""
        values = self.values
        gap_s = at_s - self.end_s
        if values and gap_s <= GAP_MOST_S:
            steps, rest = divmod(gap_s, self._interval_s)
            if gap_s <= 0 or rest:
                return False
            before = values[-1]
            values.extend(before + (value - before) * step / steps for step in range(1, steps))
        elif values:
            del values[:]
        values.append(value)
        if len(values) > self._most:
            del values[: len(values) - self._most]
        self.end_s = at_s
        return True

    def whole(self, unit_s: int) -> "array[float]":
        """The newest values that make whole units of time; none while there is less than one unit."""
        unit = max(unit_s // self._interval_s, 1)
        count = len(self.values) // unit * unit
        return self.values[len(self.values) - count :]

    def forget(self) -> None:
        """Forget all values."""
        self.end_s = -1
        del self.values[:]
