#!/usr/bin/env python3
"""kernelwright.transformers.padding_mask(): what it hands to the attention for each kind of mask of transformers.

Run by hand, with Python or pytest, where torch and transformers are installed: it is no part of CI. PYTHONPATH and
KERNELWRIGHT_LIBRARY name the module and the library, unless the package is installed.
"""
import unittest

import torch
from transformers import AutoConfig

from kernelwright import _masks

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def told(mask, keys):
    return tuple(bound.tolist() for bound in _masks.bounds(mask, keys))


class Masks(unittest.TestCase):
    def test_kinds_of_masks_are_told_apart(self):
        from transformers import masking_utils as of
        self.assertEqual(_masks._known(of.causal_mask_function), (True, None))
        self.assertEqual(_masks._known(of.sliding_window_causal_mask_function(4)), (True, None))
        self.assertEqual(_masks._known(of.bidirectional_mask_function), (False, None))
        numbers = torch.zeros(1, 4, dtype=torch.int64)
        packed = of.and_masks(of.sliding_window_causal_mask_function(4), of.packed_sequence_mask_function(numbers))
        self.assertIs(_masks._known(packed)[1], numbers)
        for unknown in (of.or_masks(of.causal_mask_function, lambda *_: True), of.chunked_causal_mask_function(4, numbers[0]),
                        of.and_masks(of.causal_mask_function, of.blockwise_overlay(numbers)), lambda *_: True):
            self.assertIsNone(_masks._known(unknown))

    def test_kinds_of_masks_are_told_apart_while_torch_compile_traces(self):
        from transformers import masking_utils as of
        config = AutoConfig.for_model("mistral", sliding_window=4)
        window, plain = of.sliding_window_causal_mask_function(4), dict(attention_mask=torch.ones(1, 4), local_size=4, config=config)
        self.assertEqual(_masks._known_by_arguments(of.causal_mask_function, None), (True, None))
        self.assertEqual(_masks._known_by_arguments(of.bidirectional_mask_function, None), (False, None))
        self.assertEqual(_masks._known_by_arguments(window, **plain), (True, None))
        for change in ({"attention_mask": None}, {"use_vmap": True}, {"local_size": None}, {"local_size": 5},
                       {"allow_is_bidirectional_skip": False}, {"config": None}):
            self.assertIsNone(_masks._known_by_arguments(window, **plain | change), change)
        self.assertIsNone(_masks._known_by_arguments(lambda *_: True, **plain))

    def test_masks_shorter_and_longer_than_the_keys(self):
        mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
        made = _masks.padding_mask(2, 1, 8, q_offset=torch.tensor(4), attention_mask=mask)
        self.assertEqual((made.shape, made.dtype), ((2, 2, 1, 1), torch.int32))
        self.assertIs(_masks.padding_mask(2, 1, 8, q_offset=torch.tensor(4), attention_mask=made), made)
        first, end = _masks.bounds(made, 8)
        self.assertEqual((first.tolist(), end.tolist(), first.stride()), ([2, 0], [5, 5], (1,)))
        exist = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1, 1, 0]], dtype=torch.bool)
        self.assertEqual([bound.tolist() for bound in _masks.bounds(exist, 6)], [[2, 0], [5, 5]])
        window = _masks.padding_mask(2, 1, 3, q_offset=4, kv_offset=2, attention_mask=mask)
        self.assertEqual(told(window, 3), ([0, 0], [3, 3]))  # padded before: the kernel stays the same

    def test_no_mask_where_nothing_is_padded(self):
        self.assertIsNone(_masks.padding_mask(2, 4, 4, attention_mask=torch.ones(2, 4)))
        self.assertIsNone(_masks.padding_mask(2, 4, 4))
        self.assertIsNone(_masks.padding_mask(2, 4, 4, attention_mask=torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])))
        made = _masks.padding_mask(2, 4, 8, q_offset=torch.tensor(0))
        self.assertEqual(told(made, 8), ([0, 0], [4, 4]))

    def test_masks_of_layers_that_are_not_causal(self):
        from transformers.masking_utils import bidirectional_mask_function as both
        mask = torch.tensor([[0, 1, 1, 0], [1, 1, 1, 1]])
        made = _masks.padding_mask(2, 4, 4, mask_function=both, attention_mask=mask)
        self.assertEqual(told(made, 4), ([1, 0], [3, 4]))
        self.assertIsNone(_masks.padding_mask(2, 4, 4, mask_function=both, attention_mask=torch.ones(2, 4)))
        mask[1, 2] = 0
        self.assertEqual(_masks.padding_mask(2, 4, 4, mask_function=both, attention_mask=mask).shape, (2, 1, 4, 4))

    @unittest.skipUnless(DEVICE == "cuda", "there is no GPU")
    def test_a_graph_captures_the_mask(self):
        mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], device=DEVICE)
        want = _masks.padding_mask(2, 1, 8, q_offset=4, attention_mask=mask, device=DEVICE)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = _masks.padding_mask(2, 1, 8, q_offset=4, attention_mask=mask, device=DEVICE)
            first, end = _masks.bounds(found, 8)
        graph.replay()
        self.assertTrue(torch.equal(found, want))
        self.assertEqual((first.tolist(), end.tolist()), ([2, 0], [5, 5]))

    def test_left_padding_has_a_shorter_way_to_the_same(self):
        for seed in range(40):
            random = torch.Generator().manual_seed(seed)
            first = torch.randint(0, 6, (3,), generator=random)
            mask = torch.arange(9) >= first[:, None]
            kind = seed % 4
            if kind == 1:
                mask[1, 7] = False  # a hole
            elif kind == 2:
                mask[2, 8] = False  # padding behind the sequence
            elif kind == 3:
                mask[0] = False
            found, padded = _masks.left_padding(mask)
            self.assertEqual((None if found is None else found.tolist(), padded),
                             (None, True) if kind else (first.tolist(), bool(first.any())))
            made = _masks.padding_mask(3, 1, 9, q_offset=8, attention_mask=mask)
            if kind == 0 and padded:
                starts, lengths = _masks.bounds(made, 9)
                self.assertEqual((starts.tolist(), lengths, starts.dtype), (first.tolist(), None, torch.int32))
            elif kind == 1:
                self.assertEqual((made.shape, made.dtype), ((3, 1, 1, 9), torch.bool))
            elif kind:
                self.assertTrue(_masks.is_bounds(made) and made.shape[0] == 2)

    def test_rows_without_keys(self):
        first, end = _masks.first_and_end(torch.zeros(1, 3, dtype=torch.bool))
        self.assertEqual((first.tolist(), end.tolist()), ([3], [0]))
        made = _masks.padding_mask(2, 3, 3, attention_mask=torch.tensor([[0, 0, 0], [0, 1, 1]]))
        self.assertEqual(told(made, 3), ([3, 1], [0, 3]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
