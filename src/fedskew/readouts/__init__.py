"""How a trained global model is read out, whenever it is measured, exported or put to use. Training never sees this."""

from fedskew.readouts.fitting import Ask, Fewer, Readout
from fedskew.readouts.fitting import AsTrained as as_trained
from fedskew.readouts.fitting import Fitted as fitted

__all__ = ["Ask", "Fewer", "Readout", "as_trained", "fitted"]
