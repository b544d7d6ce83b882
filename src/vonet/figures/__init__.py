"""Everything that draws: figures, reports, contact sheets."""
