# SPDX-License-Identifier: Apache-2.0
"""Senko from Python. `senko_flash.dbm` is the transactional DBM."""
