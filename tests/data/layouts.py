"""Writes small videos in every layout that is read, as the projects themselves write them."""

import gzip
import io
import json
import pickle
import struct
import tarfile
import zlib
from pathlib import Path

import google_crc32c
import numpy as np
from PIL import Image

from vonet.errors import BadInput

PALETTE = [channel for i in range(256) for channel in ((i * 37) % 256, (i * 91) % 256, (i * 151) % 256)]


def clip(seed=0, frames=3, height=6, width=8, most=5):
    """Random frames and ids; the largest id occurs in the last frame only."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, most, (frames, height, width), dtype=np.uint8)
    ids[-1, 0, 0] = most
    return rng.integers(0, 256, (frames, height, width, 3), dtype=np.uint8), ids


def read_all(video):
    """Read everything, and refuse what does not go to its end."""
    for _ in video.pieces():
        pass
    if video.damage:
        raise BadInput(video.damage)


def png(array, mode=None):
    image = Image.fromarray(array)
    if mode == "P":
        image = Image.frombytes("P", image.size, array.tobytes())
        image.putpalette(PALETTE)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def save(path, array, mode=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(array, mode))


def jpeg(path, array):
    """Lossy; returns what it decodes to."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, quality=90)
    return np.asarray(Image.open(path))


def png16(pixels, filters):
    """A colour PNG of 16 bits; row y is stored with filter `filters[y % len(filters)]`."""
    rows = pixels.astype(">u2").reshape(len(pixels), -1).view(np.uint8).astype(int)
    raw = b""
    for y, row in enumerate(rows):
        up = rows[y - 1] if y else np.zeros_like(row)
        left, corner = (np.concatenate([np.zeros(6, int), r[:-6]]) for r in (row, up))
        guess = left + up - corner
        distances = np.stack([abs(guess - left), abs(guess - up), abs(guess - corner)])
        paeth = np.choose(distances.argmin(0), [left, up, corner])
        kind = filters[y % len(filters)]
        foretold = (0 * row, left, up, (left + up) // 2, paeth)[kind]
        raw += bytes([kind]) + ((row - foretold) % 256).astype(np.uint8).tobytes()

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 16, 2, 0, 0, 0)
    packed = zlib.compress(raw)
    parts = chunk(b"IDAT", packed[:7]) + chunk(b"IDAT", packed[7:])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + parts + chunk(b"IEND", b"")


def varint(number):
    number &= 2**64 - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def delimited(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def feature(values):
    if isinstance(values, list):
        return delimited(1, b"".join(delimited(1, value) for value in values))
    values = np.asarray(values).ravel()
    if values.dtype.kind == "f":
        return delimited(2, delimited(1, values.astype("<f4").tobytes()))
    return delimited(3, delimited(1, b"".join(varint(int(value)) for value in values)))


def example(features):
    entries = (delimited(1, delimited(1, k.encode()) + delimited(2, feature(v))) for k, v in features.items())
    return delimited(1, b"".join(entries))


def masked(data):
    crc = google_crc32c.value(bytes(data))
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(payload):
    length = struct.pack("<Q", len(payload))
    return length + masked(length) + payload + masked(payload)


def movi(level="a", name="10", seed=0, with_ids=True, **shape):
    """The features of a record of MOVi, and what is in them."""
    frames, ids = clip(seed, **shape)
    rng = np.random.default_rng(seed)
    T, H, W = ids.shape
    k, collisions = 4, 2
    depth = rng.integers(0, 65536, (T, H, W), dtype=np.uint16)
    coordinates = rng.integers(0, 65536, (T, H, W, 3), dtype=np.uint16)
    flow = rng.integers(0, 65536, (T, H, W, 2))
    per_frame = {"positions": 3, "velocities": 3, "angular_velocities": 3, "quaternions": 4, "image_positions": 2}
    features = {
        "video": [png(frame) for frame in frames],
        "depth": [png(frame) for frame in depth],
        "normal": [png16(frame, (4, 3, 2, 1, 0)) for frame in coordinates],
        "object_coordinates": [png16(frame, (1,)) for frame in coordinates],
        "forward_flow": flow,
        "backward_flow": flow[::-1],
        "metadata/video_name": [name.encode()],
        "metadata/num_frames": [T] * np.ones(1, int),
        "metadata/num_instances": np.array([k]),
        "metadata/depth_range": np.array([2.0, 10.0]),
        "metadata/forward_flow_range": np.array([-4.0, 4.0]),
        "metadata/backward_flow_range": np.array([-1.0, 3.0]),
        "camera/focal_length": np.array([35.0]),
        "camera/positions": rng.normal(size=(T, 3)),
        "camera/quaternions": rng.normal(size=(T, 4)),
        "instances/mass": rng.normal(size=k),
        **{f"instances/{key}": rng.normal(size=(k, T, n)) for key, n in per_frame.items()},
        "instances/bboxes_3d": rng.normal(size=(k, T, 8, 3)),
        "instances/visibility": rng.integers(0, 999, (k, T)),
        "instances/bboxes/ragged_flat_values": rng.normal(size=(k * 2, 4)),
        "instances/bboxes/ragged_row_lengths_0": np.full(k, 2),
        "events/collisions/instances": np.array([[0, 1], [2, 65535]]),
        "events/collisions/frame": np.array([-1, 2]),
        "events/collisions/position": rng.normal(size=(collisions, 3)),
        "events/collisions/image_position": rng.normal(size=(collisions, 2)),
        "events/collisions/contact_normal": rng.normal(size=(collisions, 3)),
    }
    if with_ids:
        features["segmentations"] = [png(frame) for frame in ids]
    if level in "ab":
        features["instances/color"] = rng.normal(size=(k, 3))
        features["instances/shape_label"] = rng.integers(0, 3, k)
    if level == "b":
        features["background_color"] = rng.normal(size=3)
    if level in "cde":
        features |= {"instances/asset_id": [b"shoe", b"cup", b"bus", b"hat"], "instances/scale": rng.normal(size=k)}
        features["background"] = [b"quarry"]
    if level in "de":
        features["instances/is_dynamic"] = np.array([0, 0, 1, 1])
    truth = {"frames": frames, "ids": ids, "depth": depth, "coordinates": coordinates, "flow": flow}
    return features, truth


def write_shards(folder, records, count, dataset="movi_a", split="train"):
    """Records in turn into `count` shards; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    per_shard = -(-len(records) // count)
    paths = [folder / f"{dataset}-{split}.tfrecord-{i:05d}-of-{count:05d}" for i in range(count)]
    for i, path in enumerate(paths):
        chosen = records[i * per_shard : (i + 1) * per_shard]
        path.write_bytes(b"".join(framed(example(record)) for record in chosen))
    return paths


def write_dataset_info(folder, lengths, split="train"):
    info = {"name": "movi_a", "splits": [{"name": split, "shardLengths": [str(n) for n in lengths]}]}
    (folder / "dataset_info.json").write_text(json.dumps(info))


def write_pickle(path, frames, ids, protocol=4, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"video": frames, "segmentations": ids[..., None], **more}
    path.write_bytes(pickle.dumps(content, protocol))


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def write_tar(path, files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1.5  # a fraction makes an extended header, as webdataset does
            tar.addfile(info, io.BytesIO(content))


def videosaur(videos, with_ids=True):
    files = {}
    for i, (frames, ids) in enumerate(videos):
        files[f"{i}.video.npy"] = npy(frames)
        if with_ids:
            files[f"{i}.segmentations.npy"] = npy(ids[..., None])
        files[f"{i}.forward_flow.npy"] = npy(np.zeros(7, np.float32))
    return files


def oclf(videos):
    files = {}
    for i, (frames, ids) in enumerate(videos):
        files[f"{i:05d}.video.npy.gz"] = gzip.compress(npy(frames))
        files[f"{i:05d}.segmentations.npy.gz"] = gzip.compress(npy(ids[..., None]))
        files[f"{i:05d}.metadata.json"] = b"{}"
    return files


def write_kubric(folder, frames, ids):
    for t, (frame, frame_ids) in enumerate(zip(frames, ids, strict=True)):
        alpha = np.full((*frame.shape[:2], 1), t, np.uint8)
        save(folder / f"rgba_{t:05d}.png", np.concatenate([frame, alpha], axis=2))
        save(folder / f"segmentation_{t:05d}.png", frame_ids, "P")
        save(folder / f"normal_{t:05d}.png", frame[::-1])
        Image.fromarray(frame_ids.astype(np.float32)).save(folder / f"depth_{t:05d}.tiff")
    (folder / "metadata.json").write_text("{}")


def write_steve(folder, frames, ids, masks=True):
    for t, (frame, frame_ids) in enumerate(zip(frames, ids, strict=True)):
        save(folder / f"{t:08d}_image.png", frame)
        for number in range(25) if masks else ():
            mask = np.where(frame_ids == number, 255, 0).astype(np.uint8)
            save(folder / f"{t:08d}_mask_{number:02d}.png", np.repeat(mask[..., None], 3, axis=2))


def write_masked_jpegs(folder, frames, ids, frame_name="{t:06d}.jpg", mask_name="{t:06d}_mask.png"):
    """What SlotDiffusion writes (or, under other names, PPMP); returns what the frames decode to."""
    for t, frame_ids in enumerate(ids):
        save(folder / mask_name.format(t=t), frame_ids)
    return np.stack([jpeg(folder / frame_name.format(t=t), frame) for t, frame in enumerate(frames)])


def write_davis(root, sequence, frames, ids, resolution="480p", annotated=None):
    """Returns what the frames decode to."""
    for t in range(len(ids)) if annotated is None else annotated:
        save(root / "Annotations" / resolution / sequence / f"{t:05d}.png", ids[t], "P")
    pictures = root / "JPEGImages" / resolution / sequence
    return np.stack([jpeg(pictures / f"{t:05d}.jpg", frame) for t, frame in enumerate(frames)])


def write_video(path, codec="libx264", frames=40, height=48, width=64, options=None, seed=0, pixels="yuv420p"):
    """Noise that moves over a picture."""
    import av

    picture = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    picture = picture.repeat(8, 0).repeat(8, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=12, options=options or {})
        stream.width, stream.height, stream.pix_fmt = width, height, pixels
        container.start_encoding()
        for t in range(frames):
            frame = av.VideoFrame.from_ndarray(np.roll(picture, 3 * t, axis=1), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def decode_video(path: Path):
    """All frames, plainly."""
    import av

    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
