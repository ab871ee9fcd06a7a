"""Where no level above ref runs there is no tile to test: `ref` multiplies by vectors."""
from pantheon._core.kernels import table

collect_ignore = [] if table.levels_supported() != ["ref"] else ["test_tiles.py"]
