"""The training loop: unroll for replay, sample segments, compute losses, take a step."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vonet.errors import BadInput
from vonet.interface import Output, StreamingModel, Vocabulary, total
from vonet.training.band import LossBand
from vonet.training.config import TrainingConfig
from vonet.training.distributed import Processes, any_process, average_gradients
from vonet.training.optimizer import NotFiniteGradient, Optimizer
from vonet.training.replay import Replay
from vonet.training.segments import Footage, Memory, Segments, Windows

TOKENS_EVERY = 10
"""Updates between counts of the tokens in use, because a count costs a forward pass of the dVAE's encoder."""


class NotFinite(BadInput):
    """A loss or gradient is not finite; the message names it."""


@dataclass
class Update:
    """Result of an update: losses, gradient norms before clipping, and two statistics of the masks."""

    losses: dict[str, float] = field(default_factory=dict)
    norms: dict[str, float] = field(default_factory=dict)
    entropy: float = 0.0
    """Mean entropy of the masks as a share of its maximum. Near 1, all slots share all pixels."""
    largest_slot: float = 0.0
    """Share of the pixels that the largest slot of a segment takes. Near 1, one slot takes all."""
    token_kinds: int | None = None
    """Number of different tokens in the batch when they were last counted. None: a model without tokens."""
    vocabulary: int | None = None
    """Size of the vocabulary."""


class Training:
    """Everything that changes during training. `remember` and `recall` store and restore it, so that a resumed training
    equals one that never stopped."""

    def __init__(
        self,
        model: Any,
        config: TrainingConfig,
        footage: Footage,
        seed: int,
        processes: Processes | None = None,
        accumulate: int = 1,
        half: bool = False,
    ):
        """accumulate: number of parts in which a batch is computed, to save memory. half: autocast to bfloat16."""
        self.model, self.config = model, config
        self.processes = processes or Processes()
        shares = self.processes.count * accumulate
        if accumulate < 1 or config.batch % shares:
            raise BadInput(
                f"a batch of {config.batch} does not go into {self.processes.count} processes of {accumulate} parts: "
                "choose numbers that divide it"
            )
        self.optimizer = Optimizer(config.optimizer, model.parameter_groups())
        self.averaged = None if config.average is None else copy.deepcopy(model).requires_grad_(False)
        rng = np.random.default_rng([seed, self.processes.rank])
        self.segments: Segments = Windows(footage, rng)
        if config.replay is not None and isinstance(model, StreamingModel):
            self.segments = Replay(config.replay.share(self.processes.count), footage, rng)
        torch.manual_seed(seed + 1_000_003 * self.processes.rank)
        self.update = 0
        self.band = LossBand()
        self._tokens = next((part for part in model.modules() if isinstance(part, Vocabulary)), None)
        self._token_kinds: int | None = None
        self._seed = seed
        self._part, self._accumulate = config.batch // shares, accumulate
        self._half = half

    def step(self) -> Update:
        """One gradient update."""
        if not self.model.training:  # setting the mode of every part takes its time
            self.model.train()
        self.roll_out()
        weights = {name: weight(self.update) for name, weight in self.config.weights.items()}
        found = Update()
        for _ in range(self._accumulate):
            clip, state = self.segments.sample(self.model, self._part, self.config.segment)
            with self._half_precision():
                output = self.model(clip, state, self.update)
            loss = total(output.losses, weights)
            self._check_finite(output.losses)
            (loss / self._accumulate).backward()
            self._note(found, output)
        if self._tokens is not None:
            if self._token_kinds is None or self.update % TOKENS_EVERY == 0:
                self._token_kinds = self._tokens.kinds_in_use(clip.frames.flatten(0, 1))
            found.token_kinds, found.vocabulary = self._token_kinds, self._tokens.vocabulary
        self.band.note(self.update, sum(weight * found.losses[name] for name, weight in weights.items()))
        average_gradients([p for group in self.optimizer.parameters.values() for p in group], self.processes)
        try:
            found.norms = self.optimizer.step(self.update)
        except NotFiniteGradient as error:
            raise self._not_finite(str(error)) from None
        self.update += 1
        self._average()
        return found

    @property
    def learned(self) -> Any:
        """The model that is saved and scored."""
        return self.model if self.averaged is None else self.averaged

    @torch.no_grad()
    def _average(self) -> None:
        """Averages the parameters exponentially; while there are fewer updates than `average`, evenly."""
        if self.averaged is not None and self.config.average is not None:
            share = 1 / min(self.update, self.config.average)
            torch._foreach_lerp_(list(self.averaged.parameters()), list(self.model.parameters()), share)

    def roll_out(self, frames: int | None = None) -> None:
        """Unroll this many frames for replay; by default those due before the next update."""
        with self._half_precision():
            self.segments.advance(self.model, frames)

    def _half_precision(self) -> torch.autocast:
        return torch.autocast(torch.device(self.processes.device).type, torch.bfloat16, enabled=self._half)

    def _note(self, found: Update, output: Output) -> None:
        for name, loss in output.losses.items():
            found.losses[name] = found.losses.get(name, 0.0) + loss.detach().mean().item() / self._accumulate
        log_masks = output.log_masks.detach().float()
        entropy = -(log_masks.exp() * log_masks).sum(dim=-3).mean() / np.log(max(log_masks.shape[-3], 2))
        area = log_masks.exp().mean(dim=(-2, -1)).mean(dim=1)
        found.entropy += entropy.item() / self._accumulate
        found.largest_slot += area.max(dim=-1).values.mean().item() / self._accumulate

    def _check_finite(self, losses: Mapping[str, Tensor]) -> None:
        """All processes stop together; otherwise the others would wait for this one for ever."""
        wrong = [name for name, loss in losses.items() if not torch.isfinite(loss).all()]
        if any_process(bool(wrong), self.processes):
            named = f"the loss {' and '.join(map(repr, wrong))}" if wrong else "a loss in another process"
            raise self._not_finite(f"{named} is not finite")

    def check_parameters(self) -> None:
        """Stops before non-finite parameters are saved or scored. The parameters are the same in all processes."""
        if not all(torch.isfinite(p).all() for p in self.model.parameters()):
            raise self._not_finite("a parameter is not finite")

    def _not_finite(self, what: str) -> NotFinite:
        """Names of the parameters with a non-finite gradient. The parameters themselves are unchanged."""
        self.band.note(self.update, math.nan)

        def named(broken: Any) -> list[str]:
            return [name for name, p in self.model.named_parameters() if broken(p)]

        values = named(lambda p: not torch.isfinite(p).all())
        gradients = named(lambda p: p.grad is not None and not torch.isfinite(p.grad).all())
        sizes = sorted(self.model.named_parameters(), key=lambda pair: -pair[1].detach().abs().max().item())
        blame = (
            f"not finite are the parameters {_some(values)}"
            if values
            else f"not finite are the gradients of {_some(gradients)}"
            if gradients
            else f"all parameters are finite; the largest are {_some([name for name, _ in sizes[:3]])}"
        )
        return NotFinite(f"at update {self.update} {what}; {blame}")

    # ---- put away and taken up -------------------------------------------------------------------------------------

    def remember(self) -> Memory:
        """All tensors by name, and other values as JSON. Each process stores its own state."""
        tensors, facts = self.segments.remember()
        stored = {f"segments/{name}": tensor for name, tensor in tensors.items()}
        stored |= {f"model/{name}": tensor for name, tensor in self.model.state_dict().items()}
        if self.averaged is not None:
            stored |= {f"averaged/{name}": tensor for name, tensor in self.averaged.state_dict().items()}
        for number, moments in self.optimizer.rule.state_dict()["state"].items():
            stored |= {f"optimizer/{number}/{name}": tensor for name, tensor in moments.items()}
        stored["random/cpu"] = torch.get_rng_state()
        if torch.cuda.is_available():
            stored["random/cuda"] = torch.cuda.get_rng_state()
        return stored, {"update": self.update, "segments": facts, "band": self.band.remember()}

    def recall(self, memory: Memory) -> None:
        """Restore the state that `remember` returned, with the same number of processes."""
        parts = self._recall_what_all_share(memory)
        self.segments.recall((parts["segments"], memory[1]["segments"]))
        torch.set_rng_state(parts["random"]["cpu"])
        if "cuda" in parts["random"] and torch.cuda.is_available():
            torch.cuda.set_rng_state(parts["random"]["cuda"])

    def recall_of_others(self, memories: Sequence[Memory]) -> None:
        """Continue a training of another number of processes. Parameters and optimiser are restored, the stored replay
        is distributed anew, and random numbers start anew."""
        parts = [self._recall_what_all_share(memory) for memory in memories]
        stored = [(part["segments"], facts["segments"]) for part, (_, facts) in zip(parts, memories, strict=True)]
        numbers = np.random.SeedSequence([self._seed, self.processes.rank, self.processes.count, self.update])
        self.segments.recall_of_others(stored, self.processes.rank, np.random.default_rng(numbers))
        torch.manual_seed(int(numbers.generate_state(1)[0]))

    def _recall_what_all_share(self, memory: Memory) -> dict[str, dict[str, Tensor]]:
        """Restores the state that is the same in every process. Returns all tensors, grouped by part."""
        tensors, facts = memory
        names = ("segments", "model", "averaged", "optimizer", "random")
        parts: dict[str, dict[str, Tensor]] = {name: {} for name in names}
        for name, tensor in tensors.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = tensor
        self.model.load_state_dict(parts["model"])
        if self.averaged is not None:
            self.averaged.load_state_dict(parts["averaged"])
        moments: dict[int, dict[str, Tensor]] = {}
        for name, tensor in parts["optimizer"].items():
            number, _, key = name.partition("/")
            moments.setdefault(int(number), {})[key] = tensor
        self.optimizer.recall(moments)
        self.update = facts["update"]
        if type(self.update) is not int or self.update < 0:
            raise BadInput(f"the update is {self.update!r}; expected a whole number, 0 or more")
        if "band" in facts:  # older checkpoints have none
            self.band.recall(facts["band"])
        return parts


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def collapse(update: Update) -> str | None:
    """A warning if the masks have collapsed (nearly uniform, or one slot takes all) or the vocabulary of the tokens has
    (fewer than one kind in 32 occurs). Else None."""
    if update.entropy > 0.95:
        return "the masks are nearly uniform: every slot takes a share of every pixel"
    if update.largest_slot > 0.98:
        return "one slot takes nearly all pixels"
    if update.token_kinds is not None and update.vocabulary is not None and update.token_kinds < update.vocabulary / 32:
        return f"only {update.token_kinds} of {update.vocabulary} kinds of tokens occur"
    return None
