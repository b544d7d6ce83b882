"""The causal transformer that predicts each token from those before it and from the slots (STEVE's).

Pre-norm blocks of self-attention, cross-attention to a memory, and an MLP. In the first block the normalised input
*replaces* the residual stream, as in the original.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vonet.blocks.precision import halved
from vonet.blocks.random import drop_mask, dropout
from vonet.blocks.transformer import check_heads

Advance = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
# Queries are taken this many at a time, so that keys in the future of all of them are never touched.
ROWS = 64


class _CausalAttention(torch.autograd.Function):
    """Causal attention for CPUs, because torch's fused kernel has no dropout there and is slow in bfloat16.

    It processes the queries in blocks of rows against the keys up to the last of them (little more than half of the
    square). It keeps one byte per probability for dropout (none without) and recomputes the probabilities in the
    backward pass. For bfloat16 inputs, products are computed in bfloat16 and probabilities in float32.
    """

    @staticmethod
    def _probabilities(q: Tensor, k: Tensor, start: int, stop: int) -> Tensor:
        scores = (q[..., start:stop, :] / math.sqrt(q.shape[-1])) @ k[..., :stop, :].mT
        future = torch.ones(stop - start, stop - start, dtype=torch.bool).triu_(1)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        scores[..., start:stop].masked_fill_(future, -torch.inf)
        return scores.softmax(-1)

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, rate: float) -> Tensor:
        length = q.shape[-2]
        ctx.spans = [(start, min(start + ROWS, length)) for start in range(0, length, ROWS)]
        output, ctx.dropped, ctx.gain = torch.empty_like(q), [], 1.0
        for start, stop in ctx.spans:
            p = _CausalAttention._probabilities(q, k, start, stop)
            if rate > 0:
                dropped, exact_rate = drop_mask(tuple(p.shape), rate)
                ctx.dropped.append(dropped)
                ctx.gain = 1 / (1 - exact_rate)
                p.masked_fill_(dropped, 0)
            output[..., start:stop, :] = p.to(v.dtype) @ v[..., :stop, :]
        ctx.save_for_backward(q, k, v)
        return output if rate == 0 else output.mul_(ctx.gain)

    @staticmethod
    @once_differentiable
    def backward(ctx, d_output: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v = ctx.saved_tensors
        d_output = (d_output * ctx.gain).to(q.dtype)
        scale = 1 / math.sqrt(q.shape[-1])
        summed = torch.promote_types(q.dtype, torch.float32)
        d_q, d_k, d_v = torch.empty_like(q), torch.zeros_like(k, dtype=summed), torch.zeros_like(v, dtype=summed)
        for i, (start, stop) in enumerate(ctx.spans):
            p = _CausalAttention._probabilities(q, k, start, stop)
            d_rows = d_output[..., start:stop, :]
            d_p = (d_rows @ v[..., :stop, :].mT).to(summed)
            kept = p
            if ctx.dropped:
                kept, d_p = p.masked_fill(ctx.dropped[i], 0), d_p.masked_fill_(ctx.dropped[i], 0)
            d_v[..., :stop, :] += kept.to(q.dtype).mT @ d_rows
            d_scores = torch.ops.aten._softmax_backward_data(d_p, p, -1, p.dtype).to(q.dtype)
            d_q[..., start:stop, :] = d_scores @ k[..., :stop, :] * scale
            d_k[..., :stop, :] += d_scores.mT @ q[..., start:stop, :] * scale
        return d_q, d_k.to(q.dtype), d_v.to(q.dtype), None


def causal_attention(
    q: Float[Tensor, "B heads N d"], k: Float[Tensor, "B heads N d"], v: Float[Tensor, "B heads N d"], rate: float
) -> Float[Tensor, "B heads N d"]:
    """Softmax attention of each token to itself and those before it; `rate` of the probabilities is dropped."""
    if q.device.type == "cpu" and (rate > 0 or (q.dtype == torch.bfloat16 and q.requires_grad)):
        return _CausalAttention.apply(q, k, v, rate)
    return F.scaled_dot_product_attention(q, k, v, dropout_p=rate, is_causal=True)


def _xavier(inputs: int, outputs: int, parts: int = 1, gain: float = 1.0) -> nn.Linear:
    """A bias-free linear layer of `parts` matrices side by side, each initialised on its own."""
    layer = nn.Linear(inputs, parts * outputs, bias=False)
    for part in layer.weight.chunk(parts):
        nn.init.xavier_uniform_(part, gain)
    return layer


@dataclass(frozen=True, kw_only=True)
class CausalTransformerConfig:
    """The transformer of STEVE's and VONet's decoder."""

    width: int = 192
    blocks: int = 8
    heads: int = 4
    hidden_ratio: int = 4
    dropout: float = 0.1

    def __post_init__(self) -> None:
        check_heads(self.width, self.heads)


class CausalBlock(nn.Module):
    """Self-attention to earlier tokens, cross-attention to the slots, and an MLP."""

    def __init__(self, config: CausalTransformerConfig, *, replaces_input: bool):
        super().__init__()
        width, residual_gain = config.width, (3 * config.blocks) ** -0.5
        self.heads, self.dropout, self.replaces_input = config.heads, config.dropout, replaces_input
        self.self_norm = nn.LayerNorm(width)
        self.self_qkv = _xavier(width, width, parts=3)
        self.self_output = _xavier(width, width, gain=residual_gain)
        self.cross_norm = nn.LayerNorm(width)
        self.cross_q = _xavier(width, width)
        self.cross_kv = _xavier(width, width, parts=2)
        self.cross_output = _xavier(width, width, gain=residual_gain)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_hidden = nn.Linear(width, config.hidden_ratio * width)
        self.mlp_output = nn.Linear(config.hidden_ratio * width, width)
        nn.init.kaiming_uniform_(self.mlp_hidden.weight, nonlinearity="relu")
        nn.init.xavier_uniform_(self.mlp_output.weight, residual_gain)
        nn.init.zeros_(self.mlp_hidden.bias)
        nn.init.zeros_(self.mlp_output.bias)

    def _split(self, x: Tensor, parts: int) -> Tensor:
        return rearrange(x, "b n (parts heads d) -> parts b heads n d", parts=parts, heads=self.heads)

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)

    def forward(self, x: Float[Tensor, "B N W"], memory: Float[Tensor, "B K W"]) -> Float[Tensor, "B N W"]:
        rate = self.dropout if self.training else 0.0
        normed = self.self_norm(x)
        x = normed if self.replaces_input else x
        q, k, v = self._split(self.self_qkv(normed), 3)
        attended = rearrange(causal_attention(q, k, v, rate), "b heads n d -> b n (heads d)")
        x = x + self._drop(self.self_output(attended))

        (q,), (k, v) = self._split(self.cross_q(self.cross_norm(x)), 1), self._split(self.cross_kv(memory), 2)
        scores = (q @ k.mT / math.sqrt(q.shape[-1])).float() if halved(q) else q @ k.mT / math.sqrt(q.shape[-1])
        p = dropout(scores.softmax(-1), rate, self.training)
        x = x + self._drop(self.cross_output(rearrange(p @ v, "b heads n d -> b n (heads d)")))

        return x + self._drop(self.mlp_output(F.relu_(self.mlp_hidden(self.mlp_norm(x)))))

    def generator(self, memory: Float[Tensor, "B K W"]) -> Advance:
        """The block as a function that is called for one position after the other. Equals `forward` without dropout.

        Its arguments are the vector at the position, the place to store the position's key and value, and all keys and
        values stored so far. Tensors are tiny here and the overhead of each operation dominates, so work is done in
        advance: weights are transposed, and weights without a non-linearity in between are multiplied (the memory's
        keys with the query projection, its values with the output projection).
        """
        batch, width, heads = len(memory), memory.shape[-1], self.heads
        d = width // heads
        scale = 1 / math.sqrt(d)
        memory_k, memory_v = self._split(self.cross_kv(memory), 2)
        query, output = self.cross_q.weight.view(heads, d, width), self.cross_output.weight.view(width, heads, d)
        to_scores = torch.einsum("hdw,bhkd->bwhk", query * scale, memory_k).flatten(2).contiguous()
        from_scores = torch.einsum("bhkd,whd->bhkw", memory_v, output).flatten(1, 2).contiguous()
        to_qkv = torch.cat([self.self_qkv.weight[:width] * scale, self.self_qkv.weight[width:]]).t().contiguous()
        to_residual = self.self_output.weight.t().contiguous()
        to_hidden, from_hidden = self.mlp_hidden.weight.t().contiguous(), self.mlp_output.weight.t().contiguous()
        hidden_bias, output_bias = self.mlp_hidden.bias, self.mlp_output.bias
        of_block = (self.self_norm, self.cross_norm, self.mlp_norm)
        self_norm, cross_norm, mlp_norm = ((n.normalized_shape, n.weight, n.bias, n.eps) for n in of_block)
        replaces_input = self.replaces_input

        def advance(x: Tensor, here: Tensor, k: Tensor, v: Tensor) -> Tensor:
            normed = F.layer_norm(x, *self_norm)
            x = normed if replaces_input else x
            q, k_v = torch.mm(normed, to_qkv).view(batch, 3, heads, d).split((1, 2), dim=1)
            here.copy_(k_v)
            p = torch.bmm(q.reshape(batch * heads, 1, d), k).softmax(-1)
            x = torch.addmm(x, torch.bmm(p, v).view(batch, width), to_residual).unsqueeze(1)

            p = torch.bmm(F.layer_norm(x, *cross_norm), to_scores).view(batch, heads, -1).softmax(-1)
            x = torch.baddbmm(x, p.view(batch, 1, -1), from_scores).squeeze(1)

            y = torch.addmm(hidden_bias, F.layer_norm(x, *mlp_norm), to_hidden).relu_()
            return x.add_(output_bias).addmm_(y, from_hidden)

        return advance


class CausalTransformer(nn.Module):
    """Tokens `B N W` and memory `B K W` to tokens `B N W`; token n sees tokens up to n."""

    def __init__(self, config: CausalTransformerConfig):
        super().__init__()
        self.heads = config.heads
        self.blocks = nn.ModuleList(CausalBlock(config, replaces_input=i == 0) for i in range(config.blocks))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, x: Float[Tensor, "B N W"], memory: Float[Tensor, "B K W"]) -> Float[Tensor, "B N W"]:
        for block in self.blocks:
            x = block(x, memory)
        return self.norm(x)

    def generator(self, memory: Float[Tensor, "B K W"], length: int) -> Callable[[Tensor, int], Tensor]:
        """The transformer as a function that is called for one position after the other and caches keys and values."""
        advances = [block.generator(memory) for block in self.blocks]  # type: ignore[operator]
        kept = memory.new_empty(len(advances), 2, len(memory), self.heads, length, memory.shape[-1] // self.heads)
        every_k, every_v = kept.flatten(2, 3).unbind(1)  # blocks B*heads N d
        norm = self.norm

        def advance(x: Float[Tensor, "B W"], position: int) -> Float[Tensor, "B W"]:
            heres = kept.select(4, position).transpose(1, 2).unbind(0)
            ks = every_k.narrow(2, 0, position + 1).mT.unbind(0)
            vs = every_v.narrow(2, 0, position + 1).unbind(0)
            for advance_block, here, k, v in zip(advances, heres, ks, vs, strict=True):
                x = advance_block(x, here, k, v)
            return norm(x)

        return advance
