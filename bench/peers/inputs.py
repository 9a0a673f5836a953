"""The random tensors of a row, and their e4m3 form: elements, and scales by which they are multiplied."""
import torch

INPUTS = ("normal", "paper")
LARGEST = 448.0  # of e4m3
OUTLIERS, OUTLIER_DEVIATION = 0.001, 10.0


def draw(inputs, shape, device):
    """bf16 of N(0, 1). "paper": with N(0, 100) added to one element in a thousand, as in FlashAttention-3's paper
    (arXiv:2407.08608, section 4.3)."""
    x = torch.randn(*shape, device=device, dtype=torch.bfloat16)
    if inputs == "paper":
        x += (torch.rand(*shape, device=device) < OUTLIERS) * torch.randn_like(x) * OUTLIER_DEVIATION
    return x


def _spread(scale, x):
    """A scale [1] or [groups] as a factor of x [..., heads, elements]; adjacent heads share a group."""
    return scale.repeat_interleave(x.shape[-2] // len(scale)).unsqueeze(-1)


def scale_of(x, groups, per_head):
    """The scales f32 of x [..., heads, elements]: [1], or with per_head one for each of `groups` of adjacent heads."""
    largest = x.abs().flatten(0, -3).amax((0, 2)).float()  # [heads]
    largest = largest.view(groups, -1).amax(1) if per_head else largest.amax(0, keepdim=True)
    return largest / LARGEST


def quantise(x, scale):
    return (x.float() / _spread(scale, x)).clamp_(-LARGEST, LARGEST).to(torch.float8_e4m3fn)


def values(x, scale):
    return x.float() * _spread(scale, x)
