"""Corrections of the local gradient: `Correction` is FedAvg's, which changes nothing; each file overrides a part."""

from fedskew.corrections.ascent import sharpness
from fedskew.corrections.centralization import centralized
from fedskew.corrections.correction import Correction
from fedskew.corrections.momentum import client_momentum
from fedskew.corrections.proximity import proximal
from fedskew.corrections.regularization import dynamic
from fedskew.corrections.variates import control_variates

__all__ = [
    "Correction",
    "centralized",
    "client_momentum",
    "control_variates",
    "dynamic",
    "proximal",
    "sharpness",
]
