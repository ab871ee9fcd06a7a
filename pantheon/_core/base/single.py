"""Objects of which there is one each."""

from typing import NoReturn, SupportsIndex


class Single:
    """Cannot be copied or pickled: a second object over the same memory or reservation would end the first one's."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled")
