"""What bends the local gradient: `Correction` is FedAvg's, which bends nothing, and each file changes some of it."""

from fedskew.corrections.centralized import centralized
from fedskew.corrections.client_momentum import client_momentum
from fedskew.corrections.control_variates import control_variates
from fedskew.corrections.correction import Correction
from fedskew.corrections.dynamic import dynamic
from fedskew.corrections.proximal import proximal
from fedskew.corrections.sharpness import sharpness

__all__ = [
    "Correction",
    "centralized",
    "client_momentum",
    "control_variates",
    "dynamic",
    "proximal",
    "sharpness",
]
