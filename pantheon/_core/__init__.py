"""The engine. Whoever imports any of it, by cimport too, gets its log lines on the Python logger "pantheon"."""
from pantheon._core.base import logging_bridge

logging_bridge.install()
