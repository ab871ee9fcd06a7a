"""Hyper-parameters of a model, as Python sees them."""

from typing import Any, NoReturn


class Config(dict[str, Any]):
    """Read-only dict of the fields of pn_config; fields are attributes too: config.n_embd."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("the configuration of a loaded model cannot be changed")

    __setitem__ = __delitem__ = __setattr__ = __delattr__ = __ior__ = _refuse  # type: ignore[assignment]
    update = pop = popitem = clear = setdefault = _refuse  # type: ignore[assignment]
