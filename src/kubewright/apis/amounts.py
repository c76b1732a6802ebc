"""Kubernetes quantities as a kind of field."""

from __future__ import annotations

from typing import Any, Final

from kubewright.apis.scalars import FLOAT64, Kind
from kubewright.apis.walking import Place
from kubewright.base.quantity import Quantity


class Amount(Kind):
    """A resource.Quantity, kept as text in its canonical form. Never left out by omitempty: it is a struct."""

    is_struct = True
    expected = 'a quantity such as "100m" or "2Gi"'

    def read(self, value: Any, at: Place) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            at.wrong_type(self.expected, value)
            return self.zero()
        try:
            return str(Quantity.parse(value if isinstance(value, str) else str(FLOAT64.encode(value))))
        except (ValueError, OverflowError):
            at.invalid(f"expected {self.expected}", value)
            return self.zero()

    def zero(self) -> str:
        return "0"


AMOUNT: Final = Amount()
