// The work of a grouped GEMM as a numbered list of items. Only the device knows the sizes of the groups, so an item is
// found there, by its number.
#pragma once

#include "kernels/warp.cuh"
#include "reference/dims.hpp"

namespace quads::kernels::ladder {

// Some tokens of one group, and one of the `row_groups` parts of its matrix.
struct Item {
    int e, token, tokens, row_group;  // tokens: 0 where there is no such item
};

// Item number i, and with i < 0 only the number of items, by a whole warp, 32 groups at a time. Items with the same
// tokens follow each other. Not inlined: it is called rarely.
static __device__ __noinline__ Item find_group_item(Groups groups, int M, int tokens_per_item, int row_groups, int i,
                                                    int* items) {
    if (groups.E == 1) {  // the host knows it all
        const int chunks = (M + tokens_per_item - 1) / tokens_per_item;
        *items = chunks * row_groups;
        const int token = i / row_groups * tokens_per_item;
        return {0, token, i >= 0 && i < *items ? min(tokens_per_item, M - token) : 0, i % row_groups};
    }
    int before = 0;  // items of the groups before `first`
    for (int first = 0; first < groups.E; first += kWarp) {
        const int e = first + lane_id();
        const int begin = e < groups.E ? groups.offsets[e] : 0,
                  count = e < groups.E ? groups.offsets[e + 1] - begin : 0;
        const int mine = (count + tokens_per_item - 1) / tokens_per_item * row_groups;
        int through = mine;
        for (int distance = 1; distance < kWarp; distance *= 2) {
            const int lower = __shfl_up_sync(kAllLanes, through, distance);
            if (lane_id() >= distance) through += lower;
        }
        const unsigned reach = i < 0 ? 0u : __ballot_sync(kAllLanes, i - before < through);
        if (reach == 0) {
            before += __shfl_sync(kAllLanes, through, kWarp - 1);
            continue;
        }
        const int lane = __ffs(reach) - 1, within = i - before - __shfl_sync(kAllLanes, through - mine, lane);
        const int token = within / row_groups * tokens_per_item, left = __shfl_sync(kAllLanes, count, lane) - token;
        return {first + lane, __shfl_sync(kAllLanes, begin, lane) + token, min(tokens_per_item, left),
                within % row_groups};
    }
    *items = before;
    return {0, 0, 0, 0};
}

}  // namespace quads::kernels::ladder
