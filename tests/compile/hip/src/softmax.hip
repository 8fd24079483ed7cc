#include "rows/rows.h"

namespace rows {

__global__ void softmax_kernel(const float* in, float* out, int columns) {
    const float* row = in + size_t(blockIdx.x) * columns;
    float largest = row[0], total = 0;
    for (int c = 1; c < columns; ++c) largest = fmaxf(largest, row[c]);
    for (int c = 0; c < columns; ++c) total += expf(row[c] - largest);
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        out[size_t(blockIdx.x) * columns + c] = expf(row[c] - largest) / total;
    }
}

hipError_t softmax(const float* in, float* out, int rows, int columns, hipStream_t stream) {
    softmax_kernel<<<rows, kThreads, 0, stream>>>(in, out, columns);
    return hipGetLastError();
}

}  // namespace rows
