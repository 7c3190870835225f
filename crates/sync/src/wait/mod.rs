// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a thread waits: the policies that the algorithms take as a type parameter.
