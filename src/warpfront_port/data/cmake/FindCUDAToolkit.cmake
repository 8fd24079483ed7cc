set(CUDAToolkit_FOUND TRUE)
set(CUDAToolkit_VERSION 12.8.0)
set(CUDAToolkit_VERSION_MAJOR 12)
set(CUDAToolkit_VERSION_MINOR 8)
foreach(name
    cudart cudart_static cuda_driver cublas cublas_static cublasLt cublasLt_static cufft cufft_static curand curand_static
    cusolver cusolver_static cusparse cusparse_static cupti nvrtc nvrtc_static nvToolsExt nvtx3 nvml npp nppc nppc_static
    nppial nppicc nppidei nppif nppig nppim nppist nppisu nppitc npps nvjpeg nvJitLink culibos cudla cuFile OpenCL)
  if(NOT TARGET CUDA::${name})
    add_library(CUDA::${name} INTERFACE IMPORTED GLOBAL)
  endif()
endforeach()
