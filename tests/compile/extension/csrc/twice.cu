#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void twice_kernel(const float* in, float* out, long n) {
    long i = long(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] + in[i];
}

at::Tensor twice_cuda(at::Tensor x) {
    auto out = at::empty_like(x);
    auto n = x.numel();
    twice_kernel<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), n);
    return out;
}
