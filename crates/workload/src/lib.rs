// SPDX-License-Identifier: Apache-2.0
//! Distributions, key and value generators, histograms and trace readers.
