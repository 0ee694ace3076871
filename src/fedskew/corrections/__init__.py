"""What bends the local gradient: `Correction` is FedAvg's, which bends nothing, and each file changes some of it."""

from fedskew.corrections.control_variates import control_variates
from fedskew.corrections.correction import Correction
from fedskew.corrections.proximal import proximal

__all__ = ["Correction", "control_variates", "proximal"]
