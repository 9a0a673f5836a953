"""The parts of bench/compare_peers.py: rows, anchors and statistics need nothing but Python; arms, reference and timing need
torch and a GPU."""
