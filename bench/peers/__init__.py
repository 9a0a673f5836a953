"""The parts of bench/compare_peers.py. Rows, anchors and statistics need only Python; arms, reference and timing need
torch and a GPU."""
