"""Every op side by side with the same op of other libraries.

`cases` says what is measured, `driver` takes the peers in turn, `worker` is the process that each
peer runs in, `record` is the JSON in between, and `goals`, `report` and `figures` read it. The
peers themselves are the files of the package ``peers``.
"""
