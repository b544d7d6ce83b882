"""The methods that VONet is compared with, one file each, behind the same contract."""
