"""The plain forms: VONet computed as the paper says it, without any shortcut.

Obviously right rather than fast: real concatenations, real context maps, one-hot vectors, attention by its formula,
every map in ordinary memory order. They use the parameters of the fast model; tests hold the two together, and
`make bench` measures how much the shortcuts are worth.
"""

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from vonet.blocks.time import scan
from vonet.interface import Clip, Output, SlotState
from vonet.model.attention import ContextMap, UNetAttention
from vonet.model.decoder import TokenDecoder
from vonet.model.vonet import VONet
from vonet.variants.mask_pooling import MaskPooling


def instance_norm(norm, x: Tensor) -> Tensor:
    return F.instance_norm(x, weight=norm.weight, bias=norm.bias, eps=norm.eps)


def unet_encode(unet, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    weight = unet.first.weight[:, : x.shape[1]]  # who has no context map gives fewer channels
    x = F.relu(instance_norm(unet.first_norm, F.conv2d(x, weight, padding=1)))
    skips = [x]
    for convolution, norm in zip(unet.down, unet.down_norms, strict=True):
        x = F.max_pool2d(F.relu(instance_norm(norm, F.conv2d(x, convolution.weight, padding=1))), 2)
        skips.append(x)
    return unet.mlp(x.flatten(1)), skips


def unet_decode(unet, e: Tensor, skips: list[Tensor]) -> Tensor:
    x = F.relu(unet.expand(e)).view(-1, *unet.bottom)
    for i, (convolution, norm) in enumerate(zip(unet.up, unet.up_norms, strict=True)):
        x = torch.cat([x, skips[-1 - i]], dim=1)
        x = F.relu(instance_norm(norm, F.conv2d(x, convolution.weight, padding=1)))
        if i < len(unet.up) - 1:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
    return F.conv2d(x, unet.logits.weight, unet.logits.bias).squeeze(1)


def estimated_log_masks(estimate, features: Tensor, context: Tensor) -> Tensor:
    keys = F.conv2d(features, estimate.key.weight[:, :, None, None], estimate.key.bias)
    return torch.einsum("bchw,bkc->bkhw", keys, context * estimate.scale).log_softmax(dim=1)


def unet_input(features: Tensor, estimated: Tensor, context: Tensor) -> Tensor:
    """The concatenation [features | estimated mask | its logarithm | context map] for each slot: B K C h w."""
    size = features.shape[-2:]
    repeated = features.unsqueeze(1).expand(-1, estimated.shape[1], -1, -1, -1)
    maps = context[..., None, None].expand(-1, -1, -1, *size)
    return torch.cat([repeated, estimated.exp().unsqueeze(2), estimated.unsqueeze(2), maps], dim=2)


def slot_transformer(module, u: Tensor) -> Tensor:
    """u' = v + MLP(LayerNorm(v)), v = u + MultiHeadAttn(LayerNorm(u)), head by head."""
    for block in module:
        normed = block.attention_norm(u)
        q, (k, v) = block.query(normed), block.key_value(normed).chunk(2, dim=-1)
        width = q.shape[-1] // block.heads
        heads = []
        for i in range(block.heads):
            of_head = slice(i * width, (i + 1) * width)
            p = (q[..., of_head] @ k[..., of_head].mT / math.sqrt(width)).softmax(-1)
            heads.append(p @ v[..., of_head])
        between = u + block.output(torch.cat(heads, dim=-1))
        u = between + block.mlp(block.mlp_norm(between))
    return u


def gru(cell, y: Tensor, r: Tensor) -> Tensor:
    """By its equations."""
    of_input = y @ cell.weight_ih.t() + cell.bias_ih
    of_state = r @ cell.weight_hh.t() + cell.bias_hh
    (i_r, i_z, i_n), (h_r, h_z, h_n) = of_input.chunk(3, dim=-1), of_state.chunk(3, dim=-1)
    update = torch.sigmoid(i_z + h_z)
    candidate = torch.tanh(i_n + torch.sigmoid(i_r + h_r) * h_n)
    return (1 - update) * candidate + update * r


def slot_attention(module, vectors: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
    """With keys and values, slot by slot and vector by vector where the formula has an index."""
    normed = module.vector_norm(vectors)
    keys, values = normed @ module.key.weight.t(), normed @ module.value.weight.t()  # B N D
    for iteration in range(module.iterations):
        queries = module.slot_norm(slots) @ module.query.weight.t()
        scores = torch.einsum("bkd,bnd->bkn", queries, keys) / math.sqrt(slots.shape[-1])
        attention = scores.exp() / scores.exp().sum(1, keepdim=True)
        weights = (attention + 1e-8) / (attention + 1e-8).sum(-1, keepdim=True)
        slots = gru(module.gru, torch.einsum("bkn,bnd->bkd", weights, values), slots)
        if module.between is not None and iteration != module.iterations - 1:
            norm, mlp = module.between
            slots = slots + mlp(norm(slots))
    return slots, attention


def trajectory(module, y: Tensor, r: Tensor) -> Tensor:
    """The GRU, then LayerNorm(r' + MLP(r'))."""
    updated = gru(module.gru, y, r)
    x = updated + module.mlp(updated)
    normalised = (x - x.mean(-1, keepdim=True)) / (x.var(-1, unbiased=False, keepdim=True) + module.norm.eps).sqrt()
    return normalised * module.norm.weight + module.norm.bias


def attention(module: UNetAttention, features: Tensor, context: Tensor) -> Tensor:
    """Parallel attention, slots in the batch dimension, with the paper's context map; on a smaller map where the U-Net
    is one of a reduced size."""
    assert isinstance(module.conditioning, ContextMap)
    batch = len(features)
    estimated = estimated_log_masks(module.estimate, features, context)
    size = module.unet.size
    small = F.adaptive_avg_pool2d(features, size)
    smaller = estimated if estimated.shape[-2:] == size else F.adaptive_avg_pool2d(estimated.exp(), size).log()
    e, skips = unet_encode(module.unet, unet_input(small, smaller, context).flatten(0, 1))
    q = slot_transformer(module.transformer, e.unflatten(0, (batch, -1)))
    change = unet_decode(module.unet, q.flatten(0, 1), skips).unflatten(0, (batch, -1))
    if estimated.shape[-2:] != size:
        change = F.interpolate(change, size=estimated.shape[-2:], mode="bilinear", align_corners=False)
    return (change + estimated).log_softmax(dim=1)


def recurrent_attention(module: UNetAttention, features: Tensor, slots: int) -> Tensor:
    """MONet's recurrence with the same U-Net: one mask after another from what is left of the frame (the scope), and
    to the last slot the rest. The U-Net runs once per slot but the last."""
    log_scope, log_masks = torch.zeros_like(features[:, :1]), []
    for _ in range(slots - 1):
        x = torch.cat([features, log_scope.exp(), log_scope], dim=1)
        logits = unet_decode(module.unet, *unet_encode(module.unet, x)).unsqueeze(1)
        log_masks.append(log_scope + F.logsigmoid(logits))
        log_scope = log_scope + F.logsigmoid(-logits)
    return torch.cat([*log_masks, log_scope], dim=1)


def backbone(module, frame: Tensor) -> Tensor:
    x = frame.contiguous()
    for block in module.blocks:
        y = F.relu(block.norm1(block.conv1(x)))
        y = block.norm2(block.conv2(y))
        shortcut = x
        if len(list(block.shortcut.parameters())):
            projection, norm = block.shortcut
            # Every stride-th cell, then 1x1: the strided 1x1 convolution itself crashes in training (blocks/conv.py).
            shortcut = norm(F.conv2d(x[:, :, :: block.stride, :: block.stride].contiguous(), projection.weight))
        x = F.relu(y + shortcut)
    return module.features(x) + module.position(module.grid).permute(2, 0, 1)


def slot_encoder(module, features: Tensor, log_masks: Tensor) -> Tensor:
    values = F.conv2d(features, module.value.weight[:, :, None, None], module.value.bias)
    masked = values.unsqueeze(1) * log_masks.exp().unsqueeze(2)  # B K D h w
    if isinstance(module, MaskPooling):
        area = log_masks.exp().sum((-2, -1)).unsqueeze(-1)
        return masked.sum((-2, -1)) / torch.where(area > module.smallest_area, area, module.smallest_area)
    return masked.mean((-2, -1))


def causal_block(block, x: Tensor, memory: Tensor) -> Tensor:
    def split(y: Tensor) -> Tensor:
        return y.unflatten(-1, (block.heads, -1)).transpose(1, 2)

    def attend(q: Tensor, k: Tensor, v: Tensor, future: Tensor | None = None) -> Tensor:
        scores = split(q) @ split(k).mT / math.sqrt(q.shape[-1] // block.heads)
        if future is not None:
            scores = scores.masked_fill(future, -torch.inf)
        p = F.dropout(scores.softmax(-1), block.dropout, block.training)
        return (p @ split(v)).transpose(1, 2).flatten(2)

    def drop(y: Tensor) -> Tensor:
        return F.dropout(y, block.dropout, block.training)

    normed = block.self_norm(x)
    x = normed if block.replaces_input else x
    future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    x = x + drop(block.self_output(attend(*block.self_qkv(normed).chunk(3, dim=-1), future)))
    x = x + drop(block.cross_output(attend(block.cross_q(block.cross_norm(x)), *block.cross_kv(memory).chunk(2, -1))))
    return x + drop(block.mlp_output(F.relu(block.mlp_hidden(block.mlp_norm(x)))))


def predict(decoder: TokenDecoder, tokens: Tensor, latents: Tensor) -> Tensor:
    """Logits for every position of the (perhaps incomplete) sequence that follows `tokens`, BOS first: B n+1 V."""
    x = torch.cat([decoder.begin.expand(len(latents), -1, -1), decoder.embedding(tokens)], dim=1)
    x = F.dropout(x + decoder.positions[:, : x.shape[1]], decoder.dropout, decoder.training)
    x, memory = decoder.input_norm(x), decoder.memory(latents)
    for block in decoder.transformer.blocks:
        x = causal_block(block, x, memory)
    return decoder.head(decoder.output_norm(decoder.transformer.norm(x)))


def generate(decoder: TokenDecoder, latents: Tensor, length: int) -> Tensor:
    """Argmax generation that runs the whole prefix again for each token."""
    tokens = torch.empty(len(latents), 0, dtype=torch.long)
    for _ in range(length):
        tokens = torch.cat([tokens, predict(decoder, tokens, latents)[:, -1:].argmax(-1)], dim=1)
    return tokens


def token_losses(decoder: TokenDecoder, frames: Tensor, latents: Tensor, update: int) -> dict[str, Tensor]:
    dvae = decoder.dvae
    logits = dvae.logits(frames).mT.unflatten(2, dvae.grid)  # B V h w
    log_p = logits.log_softmax(dim=1)
    if dvae.training:
        log_p = log_p - torch.empty_like(log_p).exponential_().log()
    soft = (log_p / dvae.temperature(update)).softmax(dim=1)
    one_hot = F.one_hot(soft.argmax(dim=1).flatten(1), dvae.vocabulary).to(soft.dtype)  # B N V
    embedded = F.relu(F.conv2d(soft, dvae.from_tokens.weight[:, :, None, None], dvae.from_tokens.bias))
    prediction = predict(decoder, one_hot.argmax(-1)[:, :-1], latents).log_softmax(-1)
    return {
        "tokens": -(prediction * one_hot).sum((1, 2)),
        "pixels": (dvae.decoder(embedded) - frames).square().sum((1, 2, 3)),
    }


class PlainVONet(VONet):
    """The model as the paper writes it, with a copy of another's parameters in ordinary memory order."""

    def __init__(self, model: VONet):
        torch.nn.Module.__init__(self)
        self.__dict__.update(copy.deepcopy(model).__dict__)
        for parameter in self.parameters():
            parameter.data = parameter.data.contiguous()
        self.decoder.forward = lambda frames, latents, log_masks, update: token_losses(
            self.decoder, frames, latents, update
        )

    def unroll(self, clip: Clip, state: SlotState | None = None) -> Output:
        """Frame by frame, the backbone too."""
        state = self.initial_state(len(clip.frames)) if state is None else state
        tensors, last = scan(self._step, self.restart, clip, state)
        return Output(size=self.size, enlargement=self.enlargement, state=last, **tensors)

    def encode_frame(self, frame: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
        features = backbone(self.backbone, frame)
        log_masks = attention(self.attention, features, self.context(slots))
        return log_masks, trajectory(self.trajectory, slot_encoder(self.slot_encoder, features, log_masks), slots)
