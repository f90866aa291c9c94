"""The CUDA backend on one GPU, beside a copy of the same bytes and beside other libraries.

`measure` is the program, started by ``tools/gpu_check.py``; `parts` says what it measures, `timing`
how, `peers` beside what. `decode` is the program for decode steps, of the models of `llama`.
`goals`, `report` and `decode_report` read what they found.
"""
