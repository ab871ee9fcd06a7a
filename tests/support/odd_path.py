"""A path whose error no pickle holds. A module of its own: another process has to find it."""


class Odd(Exception):
    """One that does not come out of a pickle."""

    def __init__(self, a, b):
        super().__init__(f"{a} {b}")


class OddPath:
    def __fspath__(self):
        raise Odd("two", "parts")
