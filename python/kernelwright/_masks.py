"""Masks of transformers for kernelwright's attention.

transformers asks a mask function for a mask, once for each kind of layer and step, and hands the result to every such
layer. The results of padding_mask() are
- None: a query sees what the layer's causality and window let it see.
- int32 [2, batch, 1, 1]: the keys of each sequence that exist are one run, and this is the first one and the number behind
  the last one. [1, batch, 1, 1] has the first one alone, and all keys behind it exist. In a causal layer the last key is
  the last query's own. transformers hands a mask of four dimensions on as it is, so each step makes it once.
- int32 [batch, tokens]: several sequences lie in a row, and each token has the number of its sequence.
- bool [batch, 1, queries, keys]: any other mask. No kernel takes it, and torch's attention serves.
"""
import torch
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask

_AND = "and_masks.<locals>.and_mask"
_WINDOW = "sliding_window_overlay.<locals>.inner_mask"
_PACKED = "packed_sequence_mask_function.<locals>.inner_mask"


def _parts(function):
    """The masks that are joined by "and" in a mask function of transformers."""
    if getattr(function, "__qualname__", "") != _AND:
        return [function]
    joined = function.__closure__[function.__code__.co_freevars.index("mask_functions")].cell_contents
    return [part for each in joined for part in _parts(each)]


def _known(function):
    """(whether the mask is causal, the numbers of packed sequences or None), or None if a kernel does not know the mask."""
    causal, packed = False, None
    for part in _parts(function):
        name = getattr(part, "__qualname__", "")
        if part is causal_mask_function:
            causal = True
        elif name == _PACKED:
            packed = part.__closure__[part.__code__.co_freevars.index("packed_sequence_mask")].cell_contents
        elif part is not bidirectional_mask_function and name != _WINDOW:
            return None
    return causal, packed


def _known_by_arguments(function, attention_mask, local_size=None, use_vmap=False, config=None, **more):
    """The same while torch.compile traces, when what a function joins cannot be read. transformers' arguments tell a plain
    window from packed sequences (which have no attention_mask), a model's own masks (use_vmap), layers that are not causal
    (allow_is_bidirectional_skip) and chunks."""
    if function is causal_mask_function or function is bidirectional_mask_function:
        return function is causal_mask_function, None
    window, chunk = (getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size"))
    plain = getattr(function, "__qualname__", "") == _AND and not use_vmap and "allow_is_bidirectional_skip" not in more
    return (True, None) if plain and attention_mask is not None and local_size and window == local_size != chunk else None


def first_and_end(mask):
    """The first key and the number behind the last key of each row of bool [batch, keys]. A row without keys: (keys, 0)."""
    width, some = mask.shape[1], mask.any(-1)
    first = torch.where(some, mask.int().argmax(-1), width)
    end = torch.where(some, width - mask.flip(-1).int().argmax(-1), 0)
    return first.to(torch.int32), end.to(torch.int32)


def left_padding(mask):
    """The first key of each row, int32, if keys of a row exist from one on to the end, and whether any of them is not key 0;
    (None, True) for a mask with a row of another kind. It waits for the device once."""
    first = mask.int().argmax(-1)
    firsts, counts = torch.stack([first, mask.sum(-1)]).tolist()
    if any(count != mask.shape[1] - begin for begin, count in zip(firsts, counts)):
        return None, True
    return first.to(torch.int32), any(firsts)


def is_bounds(mask):
    return mask.dim() == 4 and mask.dtype is torch.int32


def bounds(mask, keys):
    """The first key and the number behind the last one of each sequence, int32 [batch], of a mask that is_bounds(), or of
    bool [batch, keys or more]. The second is None where all keys exist."""
    if is_bounds(mask):
        return mask[0, :, 0, 0], mask[1, :, 0, 0] if mask.shape[0] == 2 else None
    return first_and_end(mask[:, -keys:])


def _as_mask(*each):
    return torch.stack(each)[..., None, None]


def packed_offsets(numbers):
    """(offsets, the longest length) of the sequences that `numbers`, int32 [batch, tokens], has. A row of the batch begins
    a sequence."""
    found = getattr(numbers, "_kernelwright_offsets", None)
    if found is None:
        starts = torch.ones_like(numbers, dtype=torch.bool)
        starts[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
        begins = starts.flatten().nonzero().flatten()
        offsets = torch.cat([begins, begins.new_tensor([numbers.numel()])]).to(torch.int32)
        found = numbers._kernelwright_offsets = offsets, int(offsets.diff().max())
    return found


def _columns(attention_mask, kv_offset, kv_length):
    """The part of a mask of all tokens that is about the layer's keys. It is shorter than kv_length in a cache that is
    not yet full, and is filled up with keys that do not exist."""
    tokens = attention_mask.shape[1]
    if tokens > kv_length:
        begin = kv_offset if kv_offset + kv_length <= tokens else tokens - kv_length
        return attention_mask[:, begin:begin + kv_length]
    return torch.nn.functional.pad(attention_mask, (0, kv_length - tokens)) if tokens < kv_length else attention_mask


def padding_mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=causal_mask_function,
                 attention_mask=None, device="cpu", **more):
    """The mask function that register() gives to transformers."""
    if attention_mask is not None and attention_mask.dim() == 4:
        return attention_mask
    compiling = torch.compiler.is_compiling()
    known = _known_by_arguments(mask_function, attention_mask, **more) if compiling else _known(mask_function)
    blind = compiling or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())  # values cannot be read

    def any_mask():
        skips = dict(allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
        return sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function=mask_function,
                         attention_mask=attention_mask, device=device, **{**more, **skips})
    if known is None:
        return any_mask()
    causal, packed = known
    if packed is not None:
        # How many sequences there are is not known while torch.compile traces or a graph is captured.
        return any_mask() if blind or attention_mask is not None else packed.to(torch.int32)
    # The keys that are written. In a static cache this is a tensor, or less than the keys that there are.
    written = q_offset + q_length - kv_offset if causal else kv_length
    static = isinstance(written, torch.Tensor) or written < kv_length
    if attention_mask is None and not static:
        return None
    if attention_mask is not None:
        attention_mask = attention_mask.to(device=device, dtype=torch.bool)
        if not static and not blind:
            # The mask of each step of generate(). What follows would find the same with three times as many operations.
            first, padded = left_padding(attention_mask)
            if not padded:
                return None
            if first is not None and causal and attention_mask.shape[1] == kv_length:
                return _as_mask(first)
    places = torch.arange(kv_length, device=device)
    exist = None if attention_mask is None else _columns(attention_mask, kv_offset, kv_length)
    if static:
        exist = (places < written).expand(batch_size, kv_length) if exist is None else exist & (places < written)
    first, end = first_and_end(exist)
    holes = exist.sum(-1) != end - first.minimum(end)
    if causal:
        # A query sees no key behind its own, so padding behind a sequence hides nothing. The diagonal is counted from the
        # last written key, which such padding must not hide.
        end = torch.where(first < kv_length, written, 0).to(torch.int32)
    if attention_mask is not None and not blind:
        # Padding that has left the window counts, so that the kernel stays the same.
        padded = ~attention_mask[:, 0].all() if causal else ~exist.all()
        holes, padded = torch.stack([holes.any(), padded]).tolist()
        if holes:
            return any_mask()
        if not padded and not static:
            return None
    return _as_mask(first, end)
