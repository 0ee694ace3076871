"""Figure 6: average accuracy per class before and after aggregation, from one shared, trained model."""

from fedskew.paper.figure2 import effects, words
from fedskew.paper.figures import figure6
from fedskew.paper.trained import TrainedFigure

FIGURE = TrainedFigure(
    "figure6", "Per-class accuracy before and after aggregation", "local_effect", effects, figure6, words
)
runs, rows = FIGURE.runs, FIGURE.rows
