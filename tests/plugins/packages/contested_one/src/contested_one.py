"""One of two distributions that claim one name; neither may be imported."""

raise AssertionError("imported although its name is contested")
