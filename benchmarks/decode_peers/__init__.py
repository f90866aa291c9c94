"""The decode engine beside other engines: what is measured, how, and what is said of it."""
