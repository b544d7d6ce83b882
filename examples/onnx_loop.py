"""Follow the objects of a video with onnxruntime alone, after `vonet export RUN EXPORTED`.

python examples/onnx_loop.py EXPORTED VIDEO.npz    where the video is one of a store, or any .npz with `frames` T H W 3
"""

import sys

import numpy as np
import onnxruntime

folder, video = sys.argv[1:]
initial, step = (onnxruntime.InferenceSession(f"{folder}/{name}.onnx") for name in ("initial", "step"))
batch, slots, width = 1, 5, initial.get_inputs()[0].shape[2]  # any number of videos and of slots
noise = np.random.default_rng(0).standard_normal((batch, slots, width), dtype=np.float32)
(state,) = initial.run(None, {"noise": noise})
for number, pixels in enumerate(np.load(video)["frames"]):
    frame = pixels.transpose(2, 0, 1)[None].astype(np.float32) / 255  # 1 3 H W in [0, 1], at the model's size
    masks, state = step.run(None, {"frame": frame, "slots": state})  # masks: 1 K H W, which sum to one over the slots
    print(number, "pixels of each slot:", np.bincount(masks[0].argmax(axis=0).ravel(), minlength=slots))
