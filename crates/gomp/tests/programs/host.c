// SPDX-License-Identifier: MIT OR Apache-2.0
// Target constructs that are for the host, with OMP_TARGET_OFFLOAD=mandatory; with an argument, one that is
// not.
#include "check.h"

int main(int count, char **arguments)
{
    int x = 0, host = omp_get_initial_device();
#pragma omp target if (0) map(tofrom : x)
    x++;
#pragma omp target device(host) map(tofrom : x)
    x++;
#pragma omp target data device(host) map(tofrom : x)
    {
#pragma omp target update device(host) to(x)
    }
    omp_set_default_device(host);
#pragma omp target map(tofrom : x)
    x++;
    CHECK(x == 3);
    if (count > 1) {
        omp_set_default_device(7);
#pragma omp target map(tofrom : x)
        x++;
        puts(arguments[1]);
    }
    return 0;
}
