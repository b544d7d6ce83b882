"""Scores of segmentations: metrics, protocols, and the evaluation of models on sets of videos."""
