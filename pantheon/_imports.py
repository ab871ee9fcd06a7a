"""Imports that wait for their first use, kept whole: a child that is forked in the middle of one would wait for ever
for the thread that it has not got, and Python frees only its own global import lock there.

Such imports stand below `with whole_imports`.
"""
import logging as _  # noqa: F401  (takes its lock before a fork as well: after ours only if it was imported first)
import os
import threading

whole_imports = threading.RLock()        # the thread that forks holds it then, and lets go of it on both sides

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=whole_imports.acquire, after_in_parent=whole_imports.release,
                        after_in_child=whole_imports.release)
