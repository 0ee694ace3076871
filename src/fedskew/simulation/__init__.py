"""Runs, a round at a time."""

from fedskew.simulation.records import Observation, Probe, RoundRecord
from fedskew.simulation.session import simulate, simulate_many
from fedskew.simulation.simulation import Simulation

__all__ = ["Observation", "Probe", "RoundRecord", "Simulation", "simulate", "simulate_many"]
