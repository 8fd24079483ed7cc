// The sum of each row of a float32 matrix: (rows, columns) -> (rows,).
#include <torch/extension.h>

#ifdef WITH_GPU
torch::Tensor row_sum_gpu(const torch::Tensor& input);
#endif

torch::Tensor row_sum(const torch::Tensor& input) {
  TORCH_CHECK(input.dim() == 2, "row_sum: expected a matrix, got ", input.dim(), " dimensions");
  TORCH_CHECK(input.scalar_type() == torch::kFloat32, "row_sum: expected float32");
  const auto dense = input.contiguous();
#ifdef WITH_GPU
  if (dense.is_cuda()) {
    return row_sum_gpu(dense);
  }
#endif
  auto output = torch::zeros({dense.size(0)}, dense.options());
  const auto rows = dense.accessor<float, 2>();
  auto sums = output.accessor<float, 1>();
  for (int64_t row = 0; row < dense.size(0); ++row) {
    double sum = 0;
    for (int64_t column = 0; column < dense.size(1); ++column) {
      sum += rows[row][column];
    }
    sums[row] = static_cast<float>(sum);
  }
  return output;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("row_sum", &row_sum, "Return the sum of each row of a float32 matrix.");
}
