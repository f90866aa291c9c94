"""The CUDA backend on one GPU, beside a copy of the same bytes and beside other libraries.

`measure` is the program, started by ``tools/gpu_check.py``; `parts` says what it measures, `timing`
how, `peers` beside what. `decode` is the program for decode steps, of the models of `llama`, in the
cases of ``decode_cuda.step_cases``: beside the other `engines`, and beside what is predicted of the
GPU that was `found`. ``barrier_probe.cu`` times the parts of a step alone. `goals`, `report` and
`decode_report` read what they found.
"""
