// SPDX-License-Identifier: MIT OR Apache-2.0
// Functions with variable arguments, of which there are as many as the loop has dimensions.

#include <stdarg.h>

enum { MOST = 64 };

unsigned wakeful_doacross_dimensions(void);
void wakeful_doacross_await(const unsigned long long *iteration);

#define WAIT(name, type)                                                    \
    __attribute__((visibility("hidden"))) void name(type first, ...)        \
    {                                                                       \
        unsigned long long iteration[MOST] = {(unsigned long long)first};   \
        unsigned dimensions = wakeful_doacross_dimensions();                \
        va_list rest;                                                       \
        va_start(rest, first);                                              \
        for (unsigned i = 1; i < dimensions && i < MOST; i++)               \
            iteration[i] = (unsigned long long)va_arg(rest, type);          \
        va_end(rest);                                                       \
        wakeful_doacross_await(iteration);                                  \
    }

WAIT(wakeful_doacross_wait, long)
WAIT(wakeful_doacross_ull_wait, unsigned long long)
