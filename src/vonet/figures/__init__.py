"""The only place that draws."""
