"""All drawing: figures, reports, contact sheets."""
