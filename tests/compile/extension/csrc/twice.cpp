#include <torch/extension.h>

torch::Tensor twice(torch::Tensor x) { return x + x; }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
