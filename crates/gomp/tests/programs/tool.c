// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that has a tool for OpenMP in it.
#include "check.h"

void *ompt_start_tool(unsigned version, const char *runtime)
{
    CHECK(version && runtime);
    return NULL;
}

int main(void)
{
    int all = 0;
#pragma omp parallel reduction(+ : all)
    all++;
    CHECK(all == threads());
    CHECK(omp_control_tool(omp_control_tool_start, 0, NULL) < 0);
    return 0;
}
