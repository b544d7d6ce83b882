"""The estimated mask whose sharpness is given."""

import torch
import torch.nn.functional as F

from vonet.variants.normed_attention import NormedAttention, NormedAttentionConfig


def part(scale=0.4) -> NormedAttention:
    torch.manual_seed(0)
    return NormedAttention(NormedAttentionConfig(scale=scale), 12, 64).double()


def test_it_is_softmax_of_normed_products():
    attention, features, context = part(), torch.randn(2, 12, 4, 6).double(), torch.randn(2, 3, 64).double()
    keys = F.conv2d(features, attention.key.weight[:, :, None, None], attention.key.bias)
    keys = F.layer_norm(keys.permute(0, 2, 3, 1), (64,))
    logits = 0.4 * torch.einsum("bhwd,bkd->bkhw", keys, F.layer_norm(context, (64,)))
    torch.testing.assert_close(attention(features, context), logits.log_softmax(1), atol=1e-10, rtol=1e-10)


def test_sharpness_does_not_depend_on_the_size_of_contexts():
    attention, features, context = part(), torch.randn(2, 12, 4, 6).double(), torch.randn(2, 3, 64).double()
    torch.testing.assert_close(attention(features, context), attention(features, 100 * context), atol=1e-3, rtol=1e-3)


def test_a_larger_scale_is_sharper():
    features, context = torch.randn(2, 12, 4, 6).double(), torch.randn(2, 3, 64).double()
    soft, sharp = (part(scale)(features, context).exp().amax(1).mean() for scale in (0.1, 0.8))
    assert sharp > soft + 0.2
