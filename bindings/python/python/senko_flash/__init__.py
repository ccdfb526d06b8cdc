# SPDX-License-Identifier: Apache-2.0
"""Senko from Python: the DBM in `senko_flash.dbm`, the simulator in `senko_flash.ssd`."""
