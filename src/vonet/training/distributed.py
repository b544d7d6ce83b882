"""Multi-process training: each process has its own videos and replay, and all take the same step.

torchrun starts the processes, on one machine or many, with GPUs (NCCL) or without (gloo). In a single process these
functions have no effect.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed, nn

from vonet.errors import BadInput

PATIENCE = timedelta(hours=12)
"""How long processes wait for each other, since one may evaluate or have longer videos."""


@dataclass(frozen=True)
class Processes:
    """Rank, number of processes, and device."""

    rank: int = 0
    count: int = 1
    device: str = "cpu"

    @property
    def is_first(self) -> bool:
        """Whether this is the process that logs, scores and saves."""
        return self.rank == 0

    def wait(self) -> None:
        """Waits until all processes reach this point."""
        if self.count > 1:
            distributed.barrier()


@contextmanager
def joined_processes() -> Iterator[Processes]:
    """Join the other processes of torchrun, if there are any."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    on_gpu = torch.cuda.is_available()
    device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if on_gpu else "cpu"
    if on_gpu:
        torch.cuda.set_device(device)
    if count == 1:
        yield Processes(device=device)
        return
    store, rank, count = next(distributed.rendezvous("env://"))
    store = distributed.PrefixStore(attempt_name(store, rank, count), store)
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=PATIENCE)
    try:
        yield Processes(distributed.get_rank(), count, device)
    except RuntimeError as error:
        if not _lost_a_process(error):
            raise
        raise BadInput(
            "another process ended or cannot be reached, so this one stops too. Its own message says why, if it had "
            "time for one. Continue from the last checkpoint with --resume, or let torchrun do so (--max-restarts)"
        ) from None
    finally:
        distributed.destroy_process_group()


def _lost_a_process(error: RuntimeError) -> bool:
    """Whether an exchange between processes failed. gloo has no class for its errors; they name its files."""
    return isinstance(error, distributed.DistError) or "gloo" in str(error).lower()


def attempt_name(store: distributed.Store, rank: int, count: int) -> str:
    """A name that all processes of this attempt agree on, and that no dead process knew.

    torchrun keeps one store for all attempts, which still has the addresses of dead processes, so each attempt needs
    its own key prefix. The number of the attempt is not usable, because machines count restarts differently. So every
    process announces a random word, and the first process answers that word, which a dead process cannot have used.
    """
    word = uuid.uuid4().hex
    store.set(f"hello {rank}", word)
    if rank != 0:
        name = store.get(f"answer {rank} {word}").decode()
        store.set(f"heard {name} {rank}", "yes")
        return name
    others = set(range(1, count))
    while others:
        for other in [other for other in others if store.check([f"hello {other}"])]:
            store.set(f"answer {other} {store.get(f'hello {other}').decode()}", word)
        others = {other for other in others if not store.check([f"heard {word} {other}"])}
        time.sleep(0.02)
    return word


def average_gradients(parameters: Sequence[nn.Parameter], processes: Processes) -> None:
    """Replace every gradient by its mean over the processes, in one exchange. A parameter without a gradient in any
    process keeps none, as in a single process with the joint batch."""
    if processes.count == 1:
        return
    present = torch.tensor([p.grad is not None for p in parameters], dtype=torch.float32)
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in parameters])
    flat = torch.cat([present.to(flat.device), flat])
    distributed.all_reduce(flat)
    present, flat = flat[: len(parameters)], flat[len(parameters) :] / processes.count
    for has, p, gradient in zip(present.tolist(), parameters, flat.split([p.numel() for p in parameters]), strict=True):
        # In the parameter's order in memory, as autograd leaves gradients and the fused optimiser expects them.
        p.grad = torch.empty_like(p).copy_(gradient.view_as(p)) if has else None


def all_the_same(number: int, processes: Processes) -> bool:
    """Whether every process has the same number."""
    if processes.count == 1:
        return True
    numbers = torch.tensor([number, -number], device=processes.device)
    distributed.all_reduce(numbers, distributed.ReduceOp.MAX)
    return bool(numbers[0] == -numbers[1])


def any_process(here: bool, processes: Processes) -> bool:
    """Whether a condition is true in any process, so that all stop together."""
    if processes.count == 1:
        return here
    flag = torch.tensor(float(here), device=processes.device)
    distributed.all_reduce(flag)
    return bool(flag.item())
