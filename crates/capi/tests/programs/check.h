// SPDX-License-Identifier: MIT OR Apache-2.0
// What the programs here are made of.
#pragma once
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s, line %d: %s\n", __FILE__, __LINE__, #what); \
            exit(1); \
        } \
    } while (0)
