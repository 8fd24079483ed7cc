"""The scanner's engine for C, C++, CUDA and HIP."""
