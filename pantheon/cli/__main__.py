"""`python -m pantheon.cli`: the same as the command `pantheon`."""
import sys

from pantheon.cli import main

sys.exit(main())
