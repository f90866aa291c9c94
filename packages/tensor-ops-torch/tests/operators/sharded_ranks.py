"""Compares what is sharded between two processes of gloo with what one process computes."""

import torch
from sharded_models import check_models
from sharded_operators import check_operators
from torch import distributed
from torch.distributed.tensor import init_device_mesh

RANKS = 2
HOST = "127.0.0.1"


def run_rank(rank, port):
    torch.set_num_threads(1)
    store = distributed.TCPStore(HOST, port)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    check_operators(mesh)
    check_models(mesh)
    distributed.destroy_process_group()


if __name__ == "__main__":
    store = distributed.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    # Forked, as importing all this takes a process longer than what it then does.
    torch.multiprocessing.start_processes(
        run_rank, args=(store.port,), nprocs=RANKS, start_method="fork"
    )
