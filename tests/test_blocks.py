"""The vocabulary, and each exact shortcut against its plain form: 1e-5 in float32, 1e-10 in float64."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import distributions as td
from torch import nn

from tests import plain
from vonet.blocks.autoregressive import ROWS, CausalTransformer, CausalTransformerConfig, causal_attention
from vonet.blocks.broadcast import (
    SpatialBroadcast,
    SpatialBroadcastConfig,
    blend,
    blend_error,
    mixture_error,
)
from vonet.blocks.conv import ResidualBlock, conv_of_constant, conv_up_and_skip, transposed_conv, upsampled_conv
from vonet.blocks.dvae import DVAE, DVAEConfig, hard
from vonet.blocks.gaussian import Gaussian, GaussianHead, kl_divergence
from vonet.blocks.layers import conv, linear
from vonet.blocks.norm import InstanceNorm
from vonet.blocks.random import drop_mask, dropout, gumbel_like
from vonet.blocks.transformer import SlotTransformer, SlotTransformerConfig
from vonet.blocks.unet import UNet, UNetConfig
from vonet.errors import BadInput
from vonet.model.sequential_vae import BalancedKLConfig, PlainKLConfig

PRECISIONS = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=["float32", "float64"]
)


def assert_same_function(fast, slow, inputs, tolerance):
    """Equal values and equal gradients with respect to every input."""
    inputs = [x.requires_grad_() for x in inputs]
    ours, theirs = fast(*inputs), slow(*inputs)
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)
    direction = torch.randn_like(theirs)
    gradients = [torch.autograd.grad(output, inputs, direction) for output in (ours, theirs)]
    for ours, theirs in zip(*gradients, strict=True):
        scale = theirs.abs().max().item()
        torch.testing.assert_close(ours, theirs, atol=tolerance * max(scale, 1), rtol=tolerance)


def test_layers_start_with_the_intended_standard_deviation():
    """Truncation at ±2σ takes 12 % off a normal distribution's standard deviation, which the layers make up for."""
    torch.manual_seed(0)
    assert (linear(4096, 1024).weight.std() * 64).item() == pytest.approx(1, rel=0.01)
    assert (linear(2048, 1024, "relu").weight.std() * 32).item() == pytest.approx(1, rel=0.01)
    assert (conv(64, 256, 3).weight.std() * 24).item() == pytest.approx(1, rel=0.01)


@torch.no_grad()
def test_activations_keep_their_second_moment():
    """Without the compensation it would be 0.17 after seven layers with ReLU."""
    torch.manual_seed(0)
    moments = []
    for _ in range(5):
        x = torch.randn(256, 512)
        for _ in range(7):
            x = linear(512, 512, "relu")(x).relu()
        moments.append(x.square().mean().item())
    assert sum(moments) / 5 == pytest.approx(1, abs=0.25)


def fan_in(*shape, dtype):
    return torch.randn(*shape, dtype=dtype) / math.sqrt(math.prod(shape[1:]))


@PRECISIONS
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_convolution_after_upsampling(dtype, tolerance, memory_format):
    def slow(x, weight):
        return F.conv2d(F.interpolate(x, scale_factor=2.0, mode="nearest"), weight, padding=1)

    x = torch.randn(3, 8, 6, 5, dtype=dtype).to(memory_format=memory_format)
    assert_same_function(upsampled_conv, slow, [x, fan_in(4, 8, 3, 3, dtype=dtype)], tolerance)


@pytest.mark.parametrize("maps", [1, 2])
@pytest.mark.parametrize("side", [4, 32])
def test_instance_norm_of_any_order_in_memory(maps, side):
    norm = InstanceNorm(3)
    wide = torch.randn(maps, 6, side, side + 2)
    strange = (
        torch.randn(maps, side, side, 3).permute(0, 3, 1, 2).as_strided((maps, 3, side, side), (3, 1, 3 * side, 3))
    )
    for x in (wide[:, ::2, :, 1:-1], wide[:, 3:, :, 2:].transpose(2, 3), *([strange] if maps == 1 else [])):
        torch.testing.assert_close(norm(x), F.instance_norm(x), atol=1e-5, rtol=1e-5)


@PRECISIONS
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("cells_for_torch", [10, 1024])  # whose forward pass it is
def test_instance_norm(dtype, tolerance, memory_format, cells_for_torch, monkeypatch):
    monkeypatch.setattr("vonet.blocks.norm.CELLS_FOR_TORCH", cells_for_torch)

    def fast(x, weight, bias):
        norm = InstanceNorm(6).to(dtype)
        return torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (x,)).relu_()

    def slow(x, weight, bias):
        return F.instance_norm(x, weight=weight, bias=bias).relu()

    x = (3 + 2 * torch.randn(4, 6, 7, 5, dtype=dtype)).to(memory_format=memory_format)
    inputs = [x, torch.randn(6, dtype=dtype), torch.randn(6, dtype=dtype)]
    assert_same_function(fast, slow, inputs, tolerance)


@PRECISIONS
@pytest.mark.parametrize("side", [4, 16])  # below and above where the transposed form begins to pay
def test_convolution_of_enlarged_map_and_skip(dtype, tolerance, side):
    def slow(small, skip, weight):
        return F.conv2d(torch.cat([F.interpolate(small, scale_factor=2.0), skip], dim=1), weight, padding=1)

    small, skip = torch.randn(2, 4, side, side, dtype=dtype), torch.randn(2, 6, 2 * side, 2 * side, dtype=dtype)
    assert_same_function(conv_up_and_skip, slow, [small, skip, fan_in(5, 10, 3, 3, dtype=dtype)], tolerance)


@PRECISIONS
@pytest.mark.parametrize("size", [(6, 5), (2, 2), (1, 3)])
def test_convolution_of_a_constant_map(dtype, tolerance, size):
    def slow(values, weight):
        return F.conv2d(values[..., None, None].expand(-1, -1, *size), weight, padding=1)

    values = torch.randn(3, 8, dtype=dtype)
    assert_same_function(
        lambda v, w: conv_of_constant(v, w, size), slow, [values, fan_in(4, 8, 3, 3, dtype=dtype)], tolerance
    )


@PRECISIONS
def test_residual_block_equals_the_strided_form(dtype, tolerance):
    block = ResidualBlock(3, 8, stride=2, groups=4).to(dtype)
    x = torch.randn(2, 3, 8, 8, dtype=dtype)
    strided = nn.Conv2d(3, 8, 1, stride=2, bias=False).to(dtype)
    strided.weight.data = block.shortcut[0].weight.data
    y = block.norm2(block.conv2(F.relu(block.norm1(block.conv1(x)))))
    torch.testing.assert_close(block(x), F.relu(y + block.shortcut[1](strided(x))), atol=tolerance, rtol=tolerance)


@PRECISIONS
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_unet_equals_its_plain_form(dtype, tolerance, memory_format):
    unet = UNet(UNetConfig(channels=(4, 6, 8), bottleneck=(16, 12)), 5, (64, 32)).to(dtype)
    x = torch.randn(3, 5, 64, 32, dtype=dtype).to(memory_format=memory_format)
    assert_same_function(unet, lambda x: plain.unet_decode(unet, *plain.unet_encode(unet, x)), [x], tolerance)


def test_unet_refuses_sizes_it_cannot_halve():
    config = UNetConfig(channels=(4, 4, 4, 4))
    for size in [(20, 32), (32, 12), (8, 8)]:
        with pytest.raises(BadInput, match="multiples of 8 and at least 16"):
            UNet(config, 3, size)
    UNet(config, 3, (16, 16))


def test_slot_transformer_does_not_care_for_order():
    transformer, slots, order = SlotTransformer(SlotTransformerConfig(), 12), torch.randn(2, 5, 12), torch.randperm(5)
    torch.testing.assert_close(transformer(slots)[:, order], transformer(slots[:, order]))
    assert not torch.allclose(transformer(slots)[:, :4], transformer(slots[:, :4]))  # but slots do talk


@PRECISIONS
def test_slot_transformer_equals_its_formula(dtype, tolerance):
    transformer = SlotTransformer(SlotTransformerConfig(), 12).to(dtype)
    with torch.no_grad():
        for block in transformer:
            block.query.bias += torch.randn_like(block.query.bias)
    slots = torch.randn(2, 5, 12, dtype=dtype)
    assert_same_function(transformer, lambda u: plain.slot_transformer(transformer, u), [slots], tolerance)


def test_slot_transformer_head_width():
    wide = sum(p.numel() for p in SlotTransformer(SlotTransformerConfig(blocks=1), 12).parameters())
    narrow = sum(p.numel() for p in SlotTransformer(SlotTransformerConfig(blocks=1, head_width=4), 12).parameters())
    assert wide - narrow == 3 * 8 * (4 * 12 + 1)  # heads x narrower by x (four projections and the query's bias)


def gaussians(dtype=torch.float64):
    return [
        Gaussian(torch.randn(4, 3, 6, dtype=dtype).requires_grad_(), torch.randn(4, 3, 6, dtype=dtype).requires_grad_())
        for _ in range(2)
    ]


def test_kl_agrees_with_torch_and_is_not_negative():
    q, p = gaussians()
    theirs = td.kl_divergence(td.Normal(q.mean, q.log_std.exp()), td.Normal(p.mean, p.log_std.exp())).sum(-1)
    torch.testing.assert_close(kl_divergence(q, p), theirs)
    assert (kl_divergence(q, p) >= 0).all()
    torch.testing.assert_close(kl_divergence(q, q), torch.zeros(4, 3, dtype=torch.float64))


def test_balanced_kl_has_the_value_of_the_plain_one_and_the_gradients_of_the_formula():
    q, p = gaussians()
    plain_kl = PlainKLConfig()(q, p)
    balanced = BalancedKLConfig(kappa=0.7)(q, p)
    torch.testing.assert_close(balanced, plain_kl)
    of_posterior, of_prior = [q.mean, q.log_std], [p.mean, p.log_std]
    for share, parameters in [(0.3, of_posterior), (0.7, of_prior)]:
        whole = torch.autograd.grad(plain_kl.sum(), parameters, retain_graph=True)
        part = torch.autograd.grad(balanced.sum(), parameters, retain_graph=True)
        for w, b in zip(whole, part, strict=True):
            torch.testing.assert_close(b, share * w)


def test_samples_have_the_gaussian_s_moments():
    gaussian = Gaussian(torch.full((200_000, 1), 2.0), torch.full((200_000, 1), -1.0))
    sample = gaussian.sample()
    assert sample.mean().item() == pytest.approx(2, abs=0.01)
    assert sample.std().item() == pytest.approx(math.exp(-1), abs=0.01)


def test_the_standard_deviation_starts_where_asked():
    x = torch.randn(4096, 16)
    at_zero, at_minus_two = (GaussianHead(16, 16, 8, start)(x).log_std.mean().item() for start in (0.0, -2.0))
    assert at_zero == pytest.approx(0, abs=0.3)
    assert at_minus_two == pytest.approx(-2, abs=0.3)


def test_drop_mask_has_its_rate():
    dropped, exact = drop_mask((1000, 1003), 0.1)
    assert dropped.shape == (1000, 1003)
    assert exact == pytest.approx(0.1, abs=1e-5)
    assert dropped.double().mean().item() == pytest.approx(exact, abs=0.001)
    columns = dropped.double().mean(0)
    assert columns.std().item() == pytest.approx(math.sqrt(0.09 / 1000), rel=0.15)  # no column is special


def test_dropout_keeps_the_mean_and_is_off_in_evaluation():
    x = torch.rand(1000, 1000) + 1
    y = dropout(x, 0.25, training=True)
    assert y.mean().item() == pytest.approx(x.mean().item(), rel=0.01)
    kept = y != 0
    torch.testing.assert_close(y[kept], x[kept] / 0.75)
    assert dropout(x, 0.25, training=False) is x


def test_gumbel_noise_draws_from_the_softmax():
    probabilities = torch.tensor([0.1, 0.2, 0.7])
    noisy = probabilities.log().expand(200_000, 3) + gumbel_like(torch.empty(200_000, 3))
    counts = noisy.argmax(-1).bincount(minlength=3) / 200_000
    torch.testing.assert_close(counts, probabilities, atol=0.005, rtol=0)


def test_attention_with_dropout_has_the_gradients_of_its_formula(monkeypatch):
    """Against autograd of the plain formula with the same probabilities dropped."""
    length, masks = 2 * ROWS + 7, []  # two full blocks of rows and a rest

    def remember(shape, rate):
        masks.append(drop_mask(shape, rate))
        return masks[-1]

    monkeypatch.setattr("vonet.blocks.autoregressive.drop_mask", remember)
    q, k, v = (torch.randn(2, 3, length, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    ours = causal_attention(q, k, v, 0.3)
    keep = torch.zeros(2, 3, length, length, dtype=torch.float64)
    for i, (dropped, _) in enumerate(masks):
        keep[:, :, i * ROWS : i * ROWS + dropped.shape[2], : dropped.shape[3]] = (~dropped).double()
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    p = (q @ k.mT / 2).masked_fill(future, -torch.inf).softmax(-1)
    theirs = (p * keep / (1 - masks[0][1])) @ v
    torch.testing.assert_close(ours, theirs)
    direction = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad(ours, (q, k, v), direction),
        torch.autograd.grad(theirs, (q, k, v), direction),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@PRECISIONS
def test_fused_attention_blocks_equal_the_plain_ones(dtype, tolerance):
    transformer = CausalTransformer(CausalTransformerConfig(width=16, blocks=3, heads=2)).to(dtype).eval()
    x, memory = torch.randn(2, 9, 16, dtype=dtype), torch.randn(2, 5, 16, dtype=dtype)

    def slow(x, memory):
        for block in transformer.blocks:
            x = plain.causal_block(block, x, memory)
        return transformer.norm(x)

    assert_same_function(transformer, slow, [x, memory], tolerance)


@PRECISIONS
def test_one_position_after_another_equals_all_at_once(dtype, tolerance):
    transformer = CausalTransformer(CausalTransformerConfig(width=16, blocks=3, heads=2)).to(dtype).eval()
    x, memory = torch.randn(3, 9, 16, dtype=dtype), torch.randn(3, 5, 16, dtype=dtype)
    with torch.no_grad():
        advance = transformer.generator(memory, 9)
        one_by_one = torch.stack([advance(x[:, i], i) for i in range(9)], dim=1)
        torch.testing.assert_close(one_by_one, transformer(x, memory), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("layers", [{"fine_layers": 6}, {"fine_layers": 4, "coarse_layers": 4}])
def test_a_token_sees_its_patch_alone(layers):
    dvae = DVAE(DVAEConfig(vocabulary=20, width=8, **layers), (32, 16))
    frames = torch.rand(1, 3, 32, 16)
    before = dvae.logits(frames)
    frames[:, :, : dvae.patch, : dvae.patch] = torch.rand(3, dvae.patch, dvae.patch)  # the first patch
    changed = (dvae.logits(frames) != before).any(-1)[0]
    assert changed.tolist() == [True] + [False] * (dvae.tokens - 1)


@PRECISIONS
@pytest.mark.parametrize("coarse", [0, 2])
def test_dvae_look_ups_equal_one_hot_convolutions(dtype, tolerance, coarse):
    dvae = DVAE(DVAEConfig(vocabulary=20, width=8, coarse_layers=coarse), (16, 24)).to(dtype)
    tokens = torch.randint(20, (2, dvae.tokens))
    one_hot = F.one_hot(tokens, 20).to(dtype).mT.unflatten(2, dvae.grid)
    weight = dvae.from_tokens.weight[:, :, None, None]
    slow = dvae.decoder(F.relu(F.conv2d(one_hot, weight, dvae.from_tokens.bias)))
    assert slow.shape == (2, 3, 16, 24)
    torch.testing.assert_close(dvae.decode(tokens), slow, atol=tolerance, rtol=tolerance)


def test_dvae_in_patches_equals_convolutions():
    """The MLP on patches is the original's strided convolution followed by 1x1 convolutions."""
    dvae = DVAE(DVAEConfig(vocabulary=20, width=8, fine_layers=2), (8, 12))
    frames = torch.rand(2, 3, 8, 12)
    first, second = dvae.fine[0], dvae.fine[2]
    x = F.relu(F.conv2d(frames, first.weight.view(8, 3, 4, 4), first.bias, stride=4))
    x = F.relu(F.conv2d(x, second.weight[..., None, None], second.bias))
    x = F.conv2d(x, dvae.to_logits.weight[..., None, None], dvae.to_logits.bias)
    torch.testing.assert_close(dvae.logits(frames), x.flatten(2).mT)


def test_soft_tokens_are_distributions_and_sharpen():
    dvae = DVAE(DVAEConfig(vocabulary=20, width=8), (8, 8))
    logits = dvae.logits(torch.rand(2, 3, 8, 8))
    for update, mode in [(0, True), (10_000, True), (0, False)]:
        soft = dvae.train(mode).soft_tokens(logits, update)
        torch.testing.assert_close(soft.sum(-1), torch.ones(2, 4))
    dvae.train()
    warm, cold = dvae.soft_tokens(logits, 0).amax(-1).mean(), dvae.soft_tokens(logits, 10_000).amax(-1).mean()
    assert cold > warm + 0.2
    assert torch.equal(hard(dvae.eval().soft_tokens(logits, 0)), logits.argmax(-1))


def test_unevenness_of_the_vocabulary():
    """0 where all kinds are used alike, log V where one is used for all, in between as the entropy says."""
    dvae = DVAE(DVAEConfig(vocabulary=4, width=8), (8, 8))
    alike = 100 * torch.eye(4)[None]  # four tokens of four kinds
    assert dvae.unevenness(alike).item() == pytest.approx(0, abs=1e-6)
    assert dvae.unevenness(100 * torch.eye(4)[[0] * 4][None]).item() == pytest.approx(math.log(4))
    assert dvae.unevenness(100 * torch.eye(4)[[0, 0, 1, 1]][None]).item() == pytest.approx(math.log(2))


def test_kinds_in_use_counts_what_occurs():
    dvae = DVAE(DVAEConfig(vocabulary=4, width=8), (8, 8))
    logits = torch.eye(4)[[2, 0, 2, 2]][None]
    dvae.logits = lambda frames: logits
    assert dvae.kinds_in_use(torch.rand(1, 3, 8, 8)) == 2


def test_tokens_are_drawn_as_often_as_their_logits_say():
    """Whatever the temperature; in evaluation the likeliest is taken. No gradient passes."""
    dvae = DVAE(DVAEConfig(vocabulary=4, width=8), (8, 8))
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0], requires_grad=True).expand(1, 20_000, 4)
    drawn = dvae.draw_tokens(logits)
    assert not drawn.requires_grad
    torch.testing.assert_close(drawn[0].bincount() / 20_000, logits[0, 0].detach().softmax(-1), atol=0.015, rtol=0)
    assert (dvae.eval().draw_tokens(logits) == 2).all()


@pytest.mark.parametrize("kernel", [3, 5])
def test_transposed_convolution_is_a_convolution_of_the_map_with_zeros_between_its_cells(kernel):
    small, weight, bias = torch.randn(2, 3, 4, 6), torch.randn(5, 3, kernel, kernel), torch.randn(5)
    between = torch.zeros(2, 3, 8, 12)
    between[:, :, ::2, ::2] = small
    theirs = F.conv2d(between, weight.flip(2, 3), bias, padding=kernel // 2)
    torch.testing.assert_close(transposed_conv(small, weight, bias), theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("size", [(16, 16), (16, 32), (8, 8)])
def test_broadcast_decoder_paints_each_slot_alone(size):
    painter = SpatialBroadcast(SpatialBroadcastConfig(grid=8, channels=(6, 6)), 5, 3, size)
    latents = torch.randn(2, 4, 5)
    pictures = painter(latents)
    assert pictures.shape == (2, 4, 3, *size)
    torch.testing.assert_close(painter(latents[:, 1:2])[:, 0], pictures[:, 1], atol=1e-6, rtol=1e-5)


@PRECISIONS
def test_broadcast_decoder_equals_its_plain_form(dtype, tolerance):
    painter = SpatialBroadcast(SpatialBroadcastConfig(grid=8, channels=(6, 5, 4)), 5, 3, (32, 32)).to(dtype)

    def slow(latents):
        rows = torch.linspace(-1, 1, 8).to(dtype)
        coordinates = torch.stack(torch.meshgrid(rows, rows, indexing="ij"), dim=-1)
        pictures = []
        for latent in latents.flatten(0, 1):
            x = (latent + painter.position(coordinates)).permute(2, 0, 1).unsqueeze(0)
            for i, layer in enumerate(painter.layers):
                x = F.relu(layer(F.interpolate(x, scale_factor=2.0) if i < 2 else x))
            pictures.append(painter.output(x)[0])
        return torch.stack(pictures).unflatten(0, latents.shape[:2])

    assert_same_function(painter, slow, [torch.randn(2, 3, 5, dtype=dtype)], tolerance)


@pytest.mark.parametrize("size", [(12, 12), (4, 4), (64, 64)])
def test_broadcast_decoder_refuses_sizes_it_cannot_reach(size):
    with pytest.raises(BadInput, match="power of two"):
        SpatialBroadcast(SpatialBroadcastConfig(grid=8, channels=(6, 6)), 5, 3, size)


def test_mixture_error_is_minus_the_log_likelihood():
    frames, pictures = torch.rand(2, 3, 4, 4), torch.rand(2, 5, 3, 4, 4)
    log_masks = torch.randn(2, 5, 4, 4).log_softmax(1)
    mixture = td.MixtureSameFamily(
        td.Categorical(logits=log_masks.permute(0, 2, 3, 1).unsqueeze(1).expand(2, 3, 4, 4, 5)),
        td.Normal(pictures.permute(0, 2, 3, 4, 1), 0.1),
    )
    torch.testing.assert_close(
        mixture_error(frames, pictures, log_masks, 0.1), -mixture.log_prob(frames).sum((1, 2, 3))
    )


def test_blend_error_is_the_squared_error_of_the_blend():
    frames, pictures = torch.rand(2, 3, 4, 4), torch.rand(2, 5, 3, 4, 4)
    masks = torch.randn(2, 5, 4, 4).softmax(1)
    blended = sum(masks[:, k : k + 1] * pictures[:, k] for k in range(5))
    torch.testing.assert_close(blend(pictures, masks.log()), blended)
    torch.testing.assert_close(
        blend_error(frames, pictures, masks.log(), 0.1), ((frames - blended) ** 2).sum((1, 2, 3)) / 0.02
    )
