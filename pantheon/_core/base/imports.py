"""Imports that wait for their first use, kept whole: a child that is forked in the middle of one would wait for ever
for the thread that it has not got, and Python frees only its own global import lock there.
Such imports stand below `with whole_imports`.
"""

import os

from pantheon._core.base.turn import TurnLock

whole_imports = TurnLock("an import", reentrant=True)


def _forked() -> None:
    whole_imports.__exit__()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=whole_imports.__enter__, after_in_parent=_forked, after_in_child=_forked)
