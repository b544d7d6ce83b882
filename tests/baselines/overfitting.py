"""Three tiny clips that every method must be able to learn by heart: squares that move over a grey ground."""

import torch
from torch import Tensor

from vonet.interface import Clip, total

COLOURS = torch.tensor([[0.9, 0.1, 0.1], [0.1, 0.8, 0.2], [0.1, 0.2, 0.9], [0.9, 0.9, 0.1]])


def three_clips(time: int = 3, size: int = 32) -> Clip:
    frames = torch.full((3, time, 3, size, size), 0.4)
    for clip in range(3):
        for thing in range(2):
            y, x = 4 + 9 * thing + 3 * clip, 3 + 8 * (thing + clip)
            for t in range(time):
                side = slice(y + t, y + t + 8), slice((x + 2 * t) % 24, (x + 2 * t) % 24 + 8)
                frames[clip, t, :, *side] = COLOURS[(clip + 2 * thing) % 4, :, None, None]
    return Clip(frames)


def overfit(model, clip: Clip, weights: dict[str, float], steps: int, rate: float) -> list[dict[str, float]]:
    """The losses at each step."""
    model.train()
    adam, seen = torch.optim.Adam(model.parameters(), rate), []
    generator = torch.Generator().manual_seed(0)
    noise = model.initial_state(3, generator=generator).detach()
    for step in range(steps):
        state = noise if not hasattr(model, "restart") else model.restart(noise, torch.ones(3, dtype=torch.bool))
        losses: dict[str, Tensor] = model(clip, state, step).losses
        total(losses, weights).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        adam.step()
        adam.zero_grad()
        seen.append({name: loss.mean().item() for name, loss in losses.items()})
    return seen
