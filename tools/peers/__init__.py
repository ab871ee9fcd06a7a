"""The engines that tools/compare_peers.py compares, a child program each, and what the programs share."""
