"""Estimators of what online work will use: one file each behind the interface in estimator.py."""
