# SPDX-License-Identifier: Apache-2.0
"""Kills a server again and again under load, and knows of every key what it may hold.

`model.py` says what may be answered, `load.py` sends commands and asks it, `victims.py` starts and
kills servers (a real one, and a small one with faults to order, which shows that the model sees
them), `run.py` does the cycles.
"""
