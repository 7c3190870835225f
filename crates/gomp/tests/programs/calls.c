// SPDX-License-Identifier: MIT OR Apache-2.0
// Barriers make no system call to find out which process they are in: each would cost more than the barrier.
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

// From now on getpid ends the process if the calling thread makes it.
static void refuse(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(void)
{
    int met = 0;
#pragma omp parallel
    {
#pragma omp master
        refuse();
        for (int i = 0; i < 100; i++) {
#pragma omp barrier
#pragma omp atomic
            met++;
        }
    }
    CHECK(met == 100 * omp_get_max_threads());
    return 0;
}
