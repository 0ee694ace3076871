"""What label skew does to a federation, measured. A probe looks at a round and changes nothing:

    simulate(run, probes=PROBES, every=10)

Each returns one entry of a record's `probes`, with numbers that JSON can hold. See docs/diagnostics.md.
"""

from fedskew.diagnostics.accuracy_by_class import class_accuracy
from fedskew.diagnostics.calibration_error import calibration
from fedskew.diagnostics.client_drift import drift
from fedskew.diagnostics.deviation_bound import deviation
from fedskew.diagnostics.diagnosis import diagnose
from fedskew.diagnostics.feature_spread import features
from fedskew.diagnostics.pairwise_margins import margins
from fedskew.simulation.records import Probe

PROBES: tuple[Probe, ...] = (class_accuracy, deviation, margins, drift, calibration, features)

__all__ = ["PROBES", "calibration", "class_accuracy", "deviation", "diagnose", "drift", "features", "margins"]
