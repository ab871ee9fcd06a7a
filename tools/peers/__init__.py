"""Children of tools/compare_peers.py: one program per engine, each measures itself once and prints one JSON line."""
