"""Choices that the bytes of a fuzzer's input make; when they are used up, the first of each."""

__all__ = ["Choices"]


class Choices:
    def __init__(self, data):
        self._data = data
        self._place = 0

    def byte(self):
        place = self._place
        self._place = place + 1
        return self._data[place] if place < len(self._data) else 0

    def below(self, n):
        """Return a number from 0 to n - 1."""
        if n <= 256:
            return self.byte() % n
        return (self.byte() << 8 | self.byte()) % n

    def pick(self, options):
        return options[self.below(len(options))]

    def rarely(self):
        """Return True for one byte in sixteen."""
        return self.byte() >= 240

    def rest(self):
        rest, self._data = self._data[self._place :], b""
        return rest
