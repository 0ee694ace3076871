"""What label skew does to a federation, measured. A probe looks at a round and changes nothing:

    simulate(run, probes=PROBES, every=10)

Each returns one entry of a record's `probes`, with numbers as JSON takes them. See docs/diagnostics.md.
"""

from fedskew.diagnostics.calibration import calibration
from fedskew.diagnostics.class_accuracy import class_accuracy
from fedskew.diagnostics.deviation import deviation
from fedskew.diagnostics.diagnose import diagnose
from fedskew.diagnostics.drift import drift
from fedskew.diagnostics.features import features
from fedskew.diagnostics.margins import margins
from fedskew.simulation import Probe

PROBES: tuple[Probe, ...] = (class_accuracy, deviation, margins, drift, calibration, features)

__all__ = ["PROBES", "calibration", "class_accuracy", "deviation", "diagnose", "drift", "features", "margins"]
