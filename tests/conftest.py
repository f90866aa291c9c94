"""Options of every test run."""


def pytest_addoption(parser):
    parser.addoption(
        "--require-backend",
        action="append",
        default=[],
        metavar="NAME",
        help="fail instead of skipping when this backend is unavailable (repeatable)",
    )
    parser.addoption(
        "--backend",
        action="append",
        default=[],
        metavar="NAME",
        help="run only on this backend (repeatable)",
    )
