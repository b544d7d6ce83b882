"""Mutations of valid files. Each takes a `random.Random`, so that the same number gives the same file."""

import gzip
import io
import json
import re
import struct
import tarfile
import zipfile
import zlib
from copy import deepcopy

from tests.data import layouts

DEEP = "@deep@"
"""Stands for 200,000 nested brackets, which cannot be written by `json.dumps`."""
OUTSIDE = ["/etc/passwd", "../canary", "../../canary", "train/../../canary", "/proc/self/environ"]
NUMBERS = [0, -1, 1, 5, -5, 255, 2**31, 2**32, 2**63, -(2**63), 10**8, 10**9, 10**30, 0.0, 0.5, -0.5, 1e308, 1e-320]
NASTY = [
    *NUMBERS,
    *OUTSIDE,
    *(float("inf"), float("-inf"), float("nan")),
    *(None, True, False, "", "x", "NaN", "\0", "a" * 2000, "\ud800", "1e999", "9" * 5000, DEEP),
    *([], [[]], {}, [1], [None], {"a": 1}, [[1, 2], [3, 4]], {"part": "Schedule", "points": [[0, 1.0]]}),
]
SHAPES = [
    *("(-3, -6, 8, 3)", f"({2**63}, 1, 1, 3)", "(0, 6, 8, 3)", "(3, 0, 8, 3)", "(3, 6, 8)", "()", "(3,)"),
    *("(1000000, 65536, 65536, 3)", "(True, 6, 8, 3)", "(3, 6, 8, 3, 1)", "(3.0, 6, 8, 3)", "(1, 18, 8, 3)"),
    *("(3, 6, 8, -3)", "(3, 6, 8, 3" + ", 1" * 60 + ")", "(9, 6, 8, 3)", "3", "None", "(" * 80 + ")" * 80),
]
DTYPES = ["|u1", "|O", "<f8", "<i8", ">u2", "|S4", "|V8", "<U9", "|b1", "<M8[s]", "<u1,<u1", "[('a', '|O')]", "|V0"]


def of_bytes(rng, data):
    """Bits and bytes changed, parts cut out, repeated or moved, and lengths replaced."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        if not data:
            return bytes(rng.randrange(256) for _ in range(rng.randrange(9)))
        at = rng.randrange(len(data)) if rng.random() < 0.6 else min(len(data) - 1, int(rng.expovariate(1 / 40)))
        span = min(len(data) - at, rng.choice((1, 2, 4, 8, 64, 512)))
        kind = rng.randrange(9)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at : at + span]
        elif kind == 4:
            data[at:at] = data[at : at + span] * rng.choice((1, 2, 50))
        elif kind == 5:
            data[at:at] = bytes(rng.randrange(256) for _ in range(span))
        elif kind == 6:
            number = rng.choice((0, 1, 2**31 - 1, 2**32 - 1, 2**63, 2**64 - 1, len(data), len(data) + 1))
            size = rng.choice((2, 4, 8))
            packed = (number % 2 ** (8 * size)).to_bytes(size, rng.choice(("little", "big")))
            data[at : at + size] = packed
        elif kind == 7:
            other = rng.randrange(len(data))
            data[at : at + span] = data[other : other + span]
        else:
            data[at : at + span] = bytes(span)
    return bytes(data)


def _places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _places(inner, (*path, key))


def _at(value, path):
    for key in path:
        value = value[key]
    return value


def of_value(rng, value):
    """A JSON value with parts replaced by nasty ones or by other parts of it, renamed, removed or doubled."""
    value = deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(value))
        path = rng.choice(places)
        if not path:
            if rng.random() < 0.1:
                return rng.choice(NASTY)
            continue
        holder, key = _at(value, path[:-1]), path[-1]
        kind = rng.randrange(6)
        if kind <= 2:
            holder[key] = deepcopy(rng.choice(NASTY))
        elif kind == 3:
            holder[key] = deepcopy(_at(value, rng.choice(places)))
        elif kind == 4:
            del holder[key]
        elif isinstance(holder, list):
            holder.insert(key, deepcopy(holder[key]))
        else:
            holder[rng.choice((f"{key}x", "", "part", "\ud800"))] = deepcopy(holder[key])
    return value


def as_json(value, **options):
    return json.dumps(value, **options).replace(f'"{DEEP}"', "[" * 200_000 + "]" * 200_000).encode()


def of_json(rng, data):
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):  # it was changed before
        return of_bytes(rng, data)
    if rng.random() < 0.2:
        return of_bytes(rng, data)
    return as_json(of_value(rng, value), indent=rng.choice((None, 1)))


def of_lines(rng, data):
    """Of a file with a JSON value in each line."""
    lines = data.decode().splitlines()
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.randrange(len(lines))
        kind = rng.randrange(5)
        if kind <= 1:
            lines[at] = of_json(rng, lines[at].encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
        elif kind == 2:
            lines.insert(at, as_json(rng.choice(NASTY)).decode())
        elif kind == 3:
            lines.insert(at, lines[rng.randrange(len(lines))])
        else:
            lines[at] = lines[at][: rng.randrange(len(lines[at]) + 1)]
    return "\n".join(lines).encode("utf-8", "surrogateescape")


def of_text(rng, text):
    """Numbers and words replaced, removed and repeated."""
    tokens = re.findall(r"\w+|\W", text)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.randrange(len(tokens)) if tokens else 0
        kind = rng.randrange(4)
        if kind == 0 or not tokens:
            nasty = rng.choice(NASTY)
            tokens[at : at + 1] = [nasty if isinstance(nasty, str) and nasty != DEEP else json.dumps(nasty)]
        elif kind == 1:
            del tokens[at]
        elif kind == 2:
            tokens.insert(at, rng.choice(tokens) * rng.choice((1, 1, 100)))
        else:
            tokens.insert(at, rng.choice(("-", ".", "=", "[", "]", ":", ",", "null", "e", "%", "\0")))
    return "".join(tokens)


def of_npy(rng, data):
    """Shape, type or order of the header replaced; its length stays right, or not."""
    if rng.random() < 0.3:
        return of_bytes(rng, data)
    (length,) = struct.unpack("<H", data[8:10])
    header, content = data[10 : 10 + length].decode("latin1"), data[10 + length :]
    kind = rng.randrange(4)
    if kind <= 1:
        header = re.sub(r"'shape': \([^)]*\)", lambda _: f"'shape': {rng.choice(SHAPES)}", header)
    elif kind == 2:
        header = re.sub(r"'descr': '[^']*'", lambda _: f"'descr': {rng.choice(DTYPES)!r}", header)
    else:
        header = header.replace("False", rng.choice(("True", "None", "1", "[]", "__import__('os').system('true')")))
    packed = header.rstrip().ljust(length - 1)[: max(length - 1, len(header.rstrip()))].encode("latin1") + b"\n"
    if rng.random() < 0.2:
        content = of_bytes(rng, content)
    return data[:8] + struct.pack("<H", len(packed)) + packed + content


def _members(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {info.name: tar.extractfile(info).read() for info in tar if info.isreg()}


def of_tar(rng, data):
    """One file in it changed, the tar itself whole; or the bytes of the tar."""
    if rng.random() < 0.4:
        return of_bytes(rng, data)
    members = _members(data)
    name = rng.choice(list(members))
    content = members[name]
    if name.endswith(".gz") and rng.random() < 0.8:
        members[name] = gzip.compress(of_npy(rng, gzip.decompress(content)), 1)
    else:
        members[name] = of_npy(rng, content) if name.endswith(".npy") else of_bytes(rng, content)
    if rng.random() < 0.1:
        members[rng.choice(("../x.video.npy", "/x.video.npy", "0.video.npy/x", ".video.npy"))] = members.pop(name)
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


def of_npz(rng, data):
    """One member of the archive changed, the archive itself whole; or the bytes of the archive."""
    if rng.random() < 0.4:
        return of_bytes(rng, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = rng.choice(list(members))
    if rng.random() < 0.15:
        del members[name]
    else:
        members[name] = (of_npy if name.endswith(".npy") else of_json)(rng, members[name])
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def of_records(rng, data):
    """The payload of a TFRecord changed and framed again with the right checksums; or the bytes of the file."""
    if rng.random() < 0.3:
        return of_bytes(rng, data)
    (length,) = struct.unpack("<Q", data[:8])
    payload, rest = data[12 : 12 + length], data[16 + length :]
    return layouts.framed(of_bytes(rng, payload)) + rest


def of_png(rng, data):
    """A chunk changed and its checksum made right again; or the bytes of the picture."""
    if rng.random() < 0.4 or data[:4] != b"\x89PNG":
        return of_bytes(rng, data)
    chunks, at = [], 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    which = rng.randrange(len(chunks))
    kind, content = chunks[which]
    if kind == b"IHDR" and rng.random() < 0.7:
        sides = [rng.choice((0, 1, 6, 8, 13_000, 65_536, 2**31 - 1, 2**32 - 1)) for _ in range(2)]
        content = struct.pack(">II", *sides) + content[8:]
    elif kind == b"IDAT" and rng.random() < 0.7:
        try:
            content = zlib.compress(rng.choice((of_bytes(rng, zlib.decompress(content)), bytes(10**6))))
        except zlib.error:  # the pixels are split between chunks
            content = zlib.compress(bytes(10**6))
    else:
        content = of_bytes(rng, content)
    chunks[which] = kind, content
    whole = [struct.pack(">I", len(c)) + k + c + struct.pack(">I", zlib.crc32(k + c)) for k, c in chunks]
    return data[:8] + b"".join(whole)


def of_tensors(rng, data, text):
    """The JSON text `text` among the metadata of a safetensors file changed; or its header; or its bytes."""
    (length,) = struct.unpack("<Q", data[:8])
    chance = rng.random()
    if chance < 0.1:
        return of_bytes(rng, data)
    header = json.loads(data[8 : 8 + length])
    if chance < 0.25:
        header = of_value(rng, header)
    else:
        header["__metadata__"][text] = of_json(rng, header["__metadata__"][text].encode()).decode("utf-8", "replace")
    packed = as_json(header)
    return struct.pack("<Q", len(packed)) + packed + data[8 + length :]


def of_pickle(rng, data):
    """Also with calls put in."""
    if rng.random() < 0.7:
        return of_bytes(rng, data)
    calls = [
        b"cos\nsystem\n(X\x04\x00\x00\x00true\x85R.",
        b"c__builtin__\neval\n(X\x03\x00\x00\x00\x31+1tR.",
        b"\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R",
        b"csubprocess\nPopen\n(X\x04\x00\x00\x00true\x85R.",
        b"cnumpy\nload\n(X\x0b\x00\x00\x00/etc/passwdtR.",
        b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x06\x00\x00\x00latin1tR",
        b"cnumpy\ndtype\n(X\x02\x00\x00\x00|OtR",
        b"(ios\nsystem\n.",
    ]
    at = rng.randrange(len(data))
    return data[:at] + rng.choice(calls) + data[at:]
