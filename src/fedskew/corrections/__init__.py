"""Corrections of the local gradient: `Correction` is FedAvg's, which changes nothing; each file overrides a part."""

from fedskew.corrections.ascent import Sharpness as sharpness
from fedskew.corrections.centralization import Centralized as centralized
from fedskew.corrections.correction import Correction
from fedskew.corrections.momentum import ClientMomentum as client_momentum
from fedskew.corrections.proximity import Proximal as proximal
from fedskew.corrections.regularization import Dynamic as dynamic
from fedskew.corrections.variates import ControlVariates as control_variates

__all__ = ["Correction", "centralized", "client_momentum", "control_variates", "dynamic", "proximal", "sharpness"]
