"""What `tools/gpu_check.py` is made of.

`stages` lists what is done, `workplace` runs it within its time, `record` keeps what was found.
`interop` and `random_calls` are programs that stages run in processes of their own.
"""
