"""The raw scores of every run that we report, and the tables of the documentation made from them."""
