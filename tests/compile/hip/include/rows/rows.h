#pragma once
#include <hip/hip_runtime.h>

namespace rows {

constexpr int kThreads = 256;

// The sum of a value over a wavefront of any width, in its first lane.
template <typename T>
__device__ T wave_sum(T value) {
    for (int offset = warpSize / 2; offset > 0; offset /= 2) value += __shfl_down(value, offset);
    return value;
}

hipError_t sum(const float* in, float* out, int rows, int columns, hipStream_t stream);
hipError_t softmax(const float* in, float* out, int rows, int columns, hipStream_t stream);

}  // namespace rows
