// What the C interface checks because C cannot express it, and how exceptions become codes.
#pragma once

#include <cstdint>
#include <exception>
#include <initializer_list>

#include "reference/check.hpp"
#include "reference/gemm_fp8.hpp"
#include "reference/nvfp4.hpp"
#include "reference/quads_reference.h"

namespace quads::c_interface {

// Keeps the sentence for this thread and returns the code.
int report_error(int code, const char* sentence) noexcept;

// Runs the body; an exception becomes a code, as none may cross the boundary to C.
template <typename Body>
int guarded(const Body& body) noexcept {
    try {
        body();
        return QUADS_OK;
    } catch (const Error& error) {
        return report_error(QUADS_ERROR_ARGUMENT, error.what());
    } catch (const std::exception& error) {
        return report_error(QUADS_ERROR_INTERNAL, error.what());
    } catch (...) {
        return report_error(QUADS_ERROR_INTERNAL, "An unknown exception was thrown.");
    }
}

struct Size {
    const char* name;
    std::int64_t value;
    int least;
};

inline void check_sizes(std::initializer_list<Size> sizes) {
    for (const Size& size : sizes) {
        check(size.value >= size.least, size.name, " is ", size.value, ", expected at least ", size.least, ".");
    }
}

// The place of a null pointer among the arrays of a call, counted from 1, is what the caller can look up.
template <typename... Pointers>
void check_arrays(const Pointers*... pointers) {
    int place = 0;
    const auto check_one = [&](const void* pointer) {
        ++place;
        check(pointer != nullptr, "Array ", place, " of the call is a null pointer, expected an array.");
    };
    (check_one(pointers), ...);
}

inline void check_choice(const char* name, int value, int choices) {
    check(value >= 0 && value < choices, name, " is ", value, ", expected 0 to ", choices - 1, ".");
}

inline void check_indices(const char* name, const int* index, std::int64_t n, int end) {
    for (std::int64_t i = 0; i < n; ++i) {
        check(index[i] >= 0 && index[i] < end, name, "[", i, "] is ", index[i], ", expected 0 to ", end - 1, ".");
    }
}

// Groups of M rows from the caller's offsets, or one group.
class RowGroups {
public:
    RowGroups(const int* offsets, int E, int M) : dense_{0, M}, view_{offsets != nullptr ? offsets : dense_, E} {
        check_sizes({{"M", M, 0}, {"E", E, 1}});
        check(offsets != nullptr || E == 1, "offsets is NULL, which means one group, but E is ", E, ". Pass offsets.");
        check(view_.offsets[0] == 0 && view_.offsets[E] == M, "offsets go from ", view_.offsets[0], " to ",
              view_.offsets[E], ", expected 0 to M = ", M, ".");
        for (int e = 0; e < E; ++e) {
            check(view_.offsets[e] <= view_.offsets[e + 1], "offsets[", e + 1, "] is ", view_.offsets[e + 1],
                  ", which is less than offsets[", e, "]. Offsets must ascend.");
        }
    }
    RowGroups(const RowGroups&) = delete;
    RowGroups& operator=(const RowGroups&) = delete;
    operator Groups() const { return view_; }

private:
    int dense_[2];
    Groups view_;
};

inline OuterScale outer_kind(int outer_scale) {
    check_choice("outer_scale", outer_scale, 2);
    return outer_scale == QUADS_OUTER_ROW ? OuterScale::row : OuterScale::group;
}

// Views for reading: the operations do not write through them.
inline Nvfp4 nvfp4(const std::uint8_t* codes, const std::uint8_t* scales, const float* outer, int outer_scale) {
    return {const_cast<std::uint8_t*>(codes), const_cast<std::uint8_t*>(scales), const_cast<float*>(outer),
            outer_kind(outer_scale)};
}

inline Fp8 fp8(const std::uint8_t* codes, const float* outer, int outer_scale) {
    return {const_cast<std::uint8_t*>(codes), const_cast<float*>(outer), outer_kind(outer_scale)};
}

}  // namespace quads::c_interface
