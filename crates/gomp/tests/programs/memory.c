// SPDX-License-Identifier: MIT OR Apache-2.0
// Allocators: what a pool has room for, which traits there are, and what becomes of a block that grows.
#include <string.h>

#include "check.h"

static omp_allocator_handle_t allocator(omp_alloctrait_key_t key, omp_uintptr_t value)
{
    omp_alloctrait_t trait = {key, value};
    return omp_init_allocator(omp_default_mem_space, 1, &trait);
}

int main(void)
{
    omp_alloctrait_t traits[] = {{omp_atk_pool_size, 1000}, {omp_atk_fallback, omp_atv_null_fb}};
    omp_allocator_handle_t own = omp_init_allocator(omp_default_mem_space, 2, traits);
    char *block = omp_alloc(400, own);
    CHECK(own && block);
    for (int i = 0; i < 400; i++)
        block[i] = (char)i;
    // There is room for the new block in place of the old one, and not beside it.
    char *larger = omp_realloc(block, 800, own, own);
    CHECK(larger);
    for (int i = 0; i < 400; i++)
        CHECK(larger[i] == (char)i);
    CHECK(omp_alloc(400, own) == NULL);
    CHECK(omp_realloc(larger, 2000, own, own) == NULL && larger[7] == 7);
    // Without an allocator, that of the block.
    char *smaller = omp_realloc(larger, 100, omp_null_allocator, omp_null_allocator);
    CHECK(smaller && smaller[99] == 99 && omp_alloc(950, own) == NULL);
    block = omp_alloc(700, own);
    CHECK(block);
    omp_free(block, own);
    // Over to another allocator, which gives the pool its bytes back.
    larger = omp_realloc(smaller, 5000, omp_default_mem_alloc, own);
    CHECK(larger && larger[99] == 99);
    block = omp_alloc(900, own);
    CHECK(block);
    omp_free(block, own);
    omp_free(larger, omp_default_mem_alloc);
    CHECK(omp_realloc(omp_alloc(5, own), 0, own, own) == NULL);
    block = omp_realloc(NULL, 900, own, own);
    CHECK(block);
    omp_free(block, own);
    omp_destroy_allocator(own);

    const omp_uintptr_t any = (omp_uintptr_t)omp_atv_default;
    static const omp_alloctrait_key_t keys[] = {
        omp_atk_sync_hint, omp_atk_alignment, omp_atk_access, omp_atk_pool_size, omp_atk_fallback, omp_atk_pinned, omp_atk_partition,
    };
    for (int i = 0; i < 7; i++) {
        own = allocator(keys[i], any);
        CHECK(own);
        block = omp_alloc(10, own);
        CHECK(block);
        memset(block, 1, 10);
        omp_free(block, own);
        omp_destroy_allocator(own);
    }
    CHECK(!allocator(omp_atk_alignment, 3) && !allocator(omp_atk_fallback, 99) && !allocator(omp_atk_access, 3));
    CHECK(!omp_init_allocator(omp_high_bw_mem_space, 0, NULL) && omp_init_allocator(omp_low_lat_mem_space, 0, NULL));
    return 0;
}
