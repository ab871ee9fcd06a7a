from pantheon._core.kernels.table import cpu_info
from pantheon._core.python.state import Checkpoint, State
from pantheon._core.sampling.params import SamplingParams
from pantheon._core.sampling.sampler import sample
from pantheon._version import __version__
from pantheon.admission import Reservation
from pantheon.config import Config
from pantheon.errors import AdmissionError, BusyError, ContextFullError, PantheonError
from pantheon.generate import Chunk, Generation
from pantheon.model import Model, load
from pantheon.verdict import Cost, Verdict

__all__ = [
    "AdmissionError", "BusyError", "Checkpoint", "Chunk", "Config", "ContextFullError", "Cost", "Generation", "Model",
    "PantheonError", "Reservation", "SamplingParams", "State", "Verdict", "__version__", "cpu_info", "load", "sample",
]
