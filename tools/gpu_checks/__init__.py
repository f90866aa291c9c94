"""Parts of `tools/gpu_check.py` and `tools/gpu_prepare.py`.

`stages` lists what is done, `workplace` runs it within its time, `record` keeps what was found.
`install` and `barriers` build. `smoke_decode`, `interop`, `c_calls` and `random_calls` are programs
that stages run in processes of their own, the first three as `checks` does.
"""
