"""The raw scores of every run that we report, and the README's table made of them."""
