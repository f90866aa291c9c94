"""A backend whose probe() fails, which the contract forbids."""

API_VERSION = 1


def probe():
    raise OSError("the driver is of another version")


def info():
    raise OSError("the driver is of another version")
