"""Figure 6: average accuracy per class before and after aggregation, from one shared, trained model."""

from fedskew.experiments.paper.figure2 import effects, words
from fedskew.experiments.paper.trained import TrainedFigure
from fedskew.report.paper_figures import figure6

FIGURE = TrainedFigure(
    "figure6", "Per-class accuracy before and after aggregation", "local_effect", effects, figure6, words
)
runs, rows = FIGURE.runs, FIGURE.rows
