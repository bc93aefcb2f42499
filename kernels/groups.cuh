// Finding one's group on the device: only there are the offsets known.
#pragma once

#include "kernels/device.hpp"
#include "reference/dims.hpp"

namespace quads::kernels {

// The group of a row.
__device__ inline int group_of(Groups groups, int row) {
    int e = 0;
    while (e + 1 < groups.E && groups.offsets[e + 1] <= row) ++e;
    return e;
}

// Rows begin .. end-1 of one group; empty for the blocks that a grid has too many.
struct RowTile {
    int group, begin, end;
};

// The rows of tile number `tile` where every group is cut into tiles of `height` rows.
__device__ inline RowTile find_row_tile(Groups groups, int height, int tile) {
    for (int e = 0; e < groups.E; ++e) {
        const int begin = groups.offsets[e] + tile * height, end = groups.offsets[e + 1];
        if (begin < end) return {e, begin, min(begin + height, end)};
        tile -= (end - groups.offsets[e] + height - 1) / height;
    }
    return {0, 0, 0};
}

// A number of tiles that suffices whatever the offsets.
inline int row_tiles_bound(int M, int E, int height) { return M / height + E; }

}  // namespace quads::kernels
