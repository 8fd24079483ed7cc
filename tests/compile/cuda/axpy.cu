__global__ void axpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

__global__ void lane(unsigned* out) {
    unsigned id;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(id));
    out[threadIdx.x] = id;
}
