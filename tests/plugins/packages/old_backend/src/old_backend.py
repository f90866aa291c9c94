"""A backend of the contract before the present one: nothing but its API_VERSION may be used."""

API_VERSION = 0


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AssertionError(f"{name} of an old backend was used")
