// SPDX-License-Identifier: MIT OR Apache-2.0
// target and teams, on the host.
#include "check.h"

int main(void)
{
    int a[100], sum = 0, teams = 0;
    for (int i = 0; i < 100; i++)
        a[i] = i;
#pragma omp target map(tofrom : sum) map(to : a)
    for (int i = 0; i < 100; i++)
        sum += a[i];
    CHECK(sum == 4950);
    sum = 0;
#pragma omp target teams distribute parallel for map(tofrom : sum) reduction(+ : sum)
    for (int i = 0; i < 100; i++)
        sum += i;
    CHECK(sum == 4950);
    int own = 5;
#pragma omp target data map(a)
    {
#pragma omp target firstprivate(own) map(tofrom : sum)
        {
            own++;
            sum = own;
        }
#pragma omp target update from(a)
    }
    CHECK(own == 5 && sum == 6);
#pragma omp target enter data map(to : a)
#pragma omp target exit data map(from : a)
#pragma omp teams num_teams(3) reduction(+ : teams)
    {
        CHECK(omp_get_num_teams() == 3 && omp_get_team_num() < 3);
        teams++;
    }
    CHECK(teams == 3 && omp_get_num_teams() == 1);
    sum = 0;
#pragma omp teams distribute parallel for reduction(+ : sum) num_teams(2)
    for (int i = 0; i < 1000; i++)
        sum += i;
    CHECK(sum == 499500);
    int *block = omp_target_alloc(100, omp_get_initial_device());
    CHECK(block);
    CHECK(omp_target_memcpy(block, a, 100, 0, 40, omp_get_initial_device(), omp_get_initial_device()) == 0);
    CHECK(block[0] == 10);
    omp_target_free(block, omp_get_initial_device());
    return 0;
}
