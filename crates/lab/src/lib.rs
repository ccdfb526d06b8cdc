// SPDX-License-Identifier: Apache-2.0
//! Experiments that measure the figures of the papers.
