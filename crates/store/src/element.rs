// SPDX-License-Identifier: Apache-2.0
//! How one key, value and time lie on flash.
