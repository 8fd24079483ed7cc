#include "rows/rows.h"

namespace rows {

__global__ void sum_kernel(const float* in, float* out, int columns) {
    __shared__ float parts[kThreads];
    float total = 0;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        total += in[size_t(blockIdx.x) * columns + c];
    }
    total = wave_sum(total);
    if (threadIdx.x % warpSize == 0) parts[threadIdx.x / warpSize] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        float whole = 0;
        for (int wave = 0; wave < int(blockDim.x) / warpSize; ++wave) whole += parts[wave];
        out[blockIdx.x] = whole;
    }
}

hipError_t sum(const float* in, float* out, int rows, int columns, hipStream_t stream) {
    sum_kernel<<<rows, kThreads, 0, stream>>>(in, out, columns);
    return hipGetLastError();
}

}  // namespace rows
