# SPDX-License-Identifier: Apache-2.0
"""Senko from Python: the DBM in `dbm`, the store in `store`, the simulator in `ssd`."""
