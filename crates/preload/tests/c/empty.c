// SPDX-License-Identifier: MIT OR Apache-2.0
// A library that does nothing.
int empty_library;
