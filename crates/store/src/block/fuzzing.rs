// SPDX-License-Identifier: Apache-2.0
//! What the fuzz targets of blocks call.
