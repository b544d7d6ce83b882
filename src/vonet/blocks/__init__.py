"""The vocabulary shared by the models; knows nothing of any of them."""
