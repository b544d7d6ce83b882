"""How good a segmentation is: metrics, protocols, and the evaluation of models on sets of videos."""
