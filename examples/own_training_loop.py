"""A training loop of your own: videos from a torch DataLoader, VONet as an ordinary torch module.

python examples/own_training_loop.py [UPDATES]     trains the small model on sprites, a hundred updates by default
"""

import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader

import vonet
from vonet.data.generate import generate
from vonet.data.sprites import SpritesConfig

updates = int(sys.argv[1]) if len(sys.argv) > 1 else 100
world, run = Path("worlds/own-loop"), Path("runs/own-loop")
generate(SpritesConfig(), {"train": 32, "validation": 4}, world, workers=1)

experiment = vonet.experiments.get("vonet-sprites")
model = experiment.build_model(seed=0)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
clips = DataLoader(vonet.data.segments(world, length=4), batch_size=8, shuffle=True, drop_last=True)

update = 0
while update < updates:
    for frames in clips:  # B T 3 H W, floats in [0, 1]
        output = model(vonet.Clip(frames), update=update)  # fresh slots; masks, slots, losses B T by name
        weights = {name: schedule(update) for name, schedule in experiment.training.weights.items()}
        loss = vonet.total(output.losses, weights)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        update += 1
        if update % 20 == 0 or update == updates:
            print(f"update {update}: loss {loss.item():.1f}")
        if update == updates:
            break

vonet.save(run, model, experiment)  # what vonet.load, vonet evaluate and vonet segment read
scores = vonet.evaluate(run, world, progress=False).as_json()
print(f"FG-ARI {100 * scores['fg_ari']:.1f}, mIoU {100 * scores['miou']:.1f}; {scores['verdict']}")
