// A stand-in for Gaudi's device in torch: PrivateUse1, which lives in the host's memory and computes on the
// CPU. What it shares with the real one is the way there: another device type, with tensors that no CPU
// kernel takes, its own allocator, guard and hooks, and without float64.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_cpu_dispatch.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/library.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::DeviceType;
using c10::Stream;
using at::Tensor;

constexpr DeviceType HPU = DeviceType::PrivateUse1;
thread_local DeviceIndex current = 0;

DeviceIndex device_count() {
  const char* said = std::getenv("STAND_IN_HPU_DEVICES");
  return said ? static_cast<DeviceIndex>(std::atoi(said)) : 1;
}

// As the vendor documents it: a process has one card, that of its LOCAL_RANK or else the first that nobody has, and
// calls it hpu:0. Only where STAND_IN_HPU_HELD names a folder, in which each card is a file that its process locks.
void hold(DeviceIndex index) {
  static const char* folder = std::getenv("STAND_IN_HPU_HELD");
  static bool held = folder == nullptr;
  TORCH_CHECK(folder == nullptr || index <= 0, "synStatus=8 [Device not found] Device acquire failed.");
  const char* rank = std::getenv("LOCAL_RANK");
  for (int card = 0; !held && card < device_count(); ++card) {
    if (rank && std::atoi(rank) != card) continue;
    int file = open((std::string(folder) + "/" + std::to_string(card)).c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    held = flock(file, LOCK_EX | LOCK_NB) == 0;
    if (!held) close(file);
  }
  TORCH_CHECK(held, "synStatus=20 [Device already acquired] Device acquire failed.");
}

struct Memory final : at::Allocator {
  at::DataPtr allocate(size_t bytes) override {
    void* place = bytes ? c10::alloc_cpu(bytes) : nullptr;
    return {place, place, &c10::free_cpu, Device(HPU, current)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};
Memory memory;
REGISTER_ALLOCATOR(HPU, &memory)

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr DeviceType static_type = HPU;
  DeviceType type() const override { return HPU; }
  Device exchangeDevice(Device to) const override {
    Device before(HPU, current);
    current = to.index();
    return before;
  }
  Device getDevice() const override { return Device(HPU, current); }
  void setDevice(Device to) const override {
    hold(to.index());
    current = to.index();
  }
  void uncheckedSetDevice(Device to) const noexcept override { current = to.index(); }
  Stream getStream(Device of) const override { return Stream(Stream::DEFAULT, of); }
  Stream exchangeStream(Stream to) const override { return Stream(Stream::DEFAULT, to.device()); }
  DeviceIndex deviceCount() const noexcept override { return device_count(); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// Draws nothing itself: what is drawn on the CPU in its place is drawn from the one inside.
struct Generator final : c10::GeneratorImpl {
  at::Generator host;
  explicit Generator(DeviceIndex index, at::Generator inside = at::detail::createCPUGenerator())
      : GeneratorImpl(Device(HPU, std::max<DeviceIndex>(index, 0)), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host(std::move(inside)) {}
  static DeviceType device_type() { return HPU; }
  void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { host.set_offset(offset); }
  uint64_t get_offset() const override { return host.get_offset(); }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override { return host.seed(); }
  void set_state(const c10::TensorImpl& state) override { host.unsafeGetGeneratorImpl()->set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return host.unsafeGetGeneratorImpl()->get_state(); }
  Generator* clone_impl() const override { return new Generator(device().index(), host.clone()); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return device_count(); }
  DeviceIndex getCurrentDevice() const override { return current; }
  void setCurrentDevice(DeviceIndex to) const override { current = to; }
  bool isPinnedPtr(const void*) const override { return false; }
  at::Generator getNewGenerator(DeviceIndex index) const override { return at::make_generator<Generator>(index); }
  const at::Generator& getDefaultGenerator(DeviceIndex index) const override {
    static const auto own = at::make_generator<Generator>(index, at::detail::getDefaultCPUGenerator());
    return own;
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    at::native::resize_bytes_cpu(storage.unsafeGetStorageImpl(), bytes);
  }
};
const bool hooked = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();

void refuse_double(at::ScalarType dtype) {
  TORCH_CHECK(dtype != at::kDouble && dtype != at::kComplexDouble, "the stand-in for Gaudi has no ", dtype);
}

Device asked(std::optional<Device> device) {
  return Device(HPU, device && device->has_index() ? device->index() : current);
}

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  refuse_double(c10::dtype_or_default(dtype));
  hold(asked(device).index());
  c10::OptionalDeviceGuard guard(asked(device));
  return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<Device> device, std::optional<bool>) {
  refuse_double(c10::dtype_or_default(dtype));
  hold(asked(device).index());
  c10::OptionalDeviceGuard guard(asked(device));
  return at::detail::empty_strided_generic(size, stride, &memory,
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

Tensor on_host(const Tensor& x) {
  return x.device().is_cpu()
      ? x
      : at::from_blob(x.data_ptr(), x.sizes(), x.strides(), x.options().device(at::kCPU).requires_grad(false));
}

Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  // The memory alone knows nothing of a conjugate that was only marked; and resolving one is a copy, too.
  auto source = on_host(from);
  if (!from.device().is_cpu() && from.is_conj()) source = source.conj();
  if (!from.device().is_cpu() && from.is_neg()) source = source.neg();
  on_host(to).copy_(source);
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  to.resize_(from.sizes());
  return copy_from(from, to, false);
}

const Tensor& resize(const Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
  return at::native::resize_(self, C10_AS_INTARRAYREF_SLOW(size), format);
}

Tensor convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, at::IntArrayRef stride,
                   at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef more,
                   int64_t groups) {
  auto wide = [&](const Tensor& one) { return one.cpu().to(one.is_complex() ? one.scalar_type() : at::kFloat); };
  auto own = bias && bias->defined() ? std::optional<Tensor>(wide(*bias)) : std::nullopt;
  return at::convolution(wide(x), wide(weight), own, stride, padding, dilation, transposed, more, groups)
      .to(x.scalar_type())
      .to(x.device());
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& grad, const Tensor& x, const Tensor& weight, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, bool transposed, at::IntArrayRef more, int64_t groups, std::array<bool, 3> wanted) {
  auto channels = transposed ? weight.size(1) * groups : weight.size(0);
  auto wide = [&](const Tensor& one) { return one.cpu().to(one.is_complex() ? one.scalar_type() : at::kFloat); };
  auto [first, second, third] = at::convolution_backward(wide(grad), wide(x), wide(weight), {channels}, stride,
                                                         padding, dilation, transposed, more, groups, wanted);
  auto back = [&](const Tensor& one) { return one.defined() ? one.to(x.scalar_type()).to(x.device()) : one; };
  return {back(first), back(second), back(third)};
}

// The schema does not say that running statistics are written.
std::tuple<Tensor, Tensor, Tensor> batch_norm(const Tensor& x, const std::optional<Tensor>& weight,
                                              const std::optional<Tensor>& bias, const std::optional<Tensor>& mean,
                                              const std::optional<Tensor>& variance, bool training, double momentum,
                                              double eps) {
  auto host = [](const std::optional<Tensor>& one) {
    return one && one->defined() ? std::optional<Tensor>(on_host(*one)) : std::nullopt;
  };
  auto [out, own_mean, own_spread] = at::native_batch_norm(on_host(x), host(weight), host(bias), host(mean),
                                                           host(variance), training, momentum, eps);
  return {out.to(x.device()), own_mean.to(x.device()), own_spread.to(x.device())};
}

Tensor& set_storage(Tensor& self, at::Storage storage, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::cpu::set_(self, storage, offset, size, stride);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("resize_", resize);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("set_.source_Storage", at::native::set_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("native_batch_norm", batch_norm);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}

// 16 bits are computed in float32 and rounded once, as devices do; torch's CPU kernels do not everywhere.
bool is_narrow(const Tensor& x) {
  return x.defined() && (x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16);
}

bool keeps_its_bits(const c10::FunctionSchema& schema) {
  for (const char* name : {"nextafter", "frexp", "_local_scalar_dense", "uniform_"}) {
    if (schema.name().find(name) != std::string::npos) return true;
  }
  return false;
}

bool is_of_a_norm(const c10::FunctionSchema& schema) { return schema.name().find("_norm") != std::string::npos; }

struct Widened {
  std::vector<std::pair<Tensor, Tensor>> pairs;  // as it came, in float32

  Tensor wide(const Tensor& x) {
    if (!is_narrow(x)) return x;
    pairs.emplace_back(x, x.to(at::kFloat));
    return pairs.back().second;
  }
  Tensor narrow(const Tensor& x, at::ScalarType to) const {
    for (const auto& [own, other] : pairs) {
      if (other.is_same(x)) return own;
    }
    return x.defined() && x.scalar_type() == at::kFloat ? x.to(to) : x;
  }
  void bring_back() const {
    for (const auto& [own, other] : pairs) {
      if (own.sizes() != other.sizes()) own.resize_(other.sizes());
      own.copy_(other);
    }
  }
};

void on_the_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const auto count = schema.arguments().size(), from = stack->size() - count;
  std::vector<Tensor> seen;
  bool told = false;
  for (size_t i = 0; i < count; ++i) {
    auto& value = (*stack)[from + i];
    if (value.isGenerator() && value.toGenerator().device().type() == HPU) {
      value = static_cast<Generator*>(value.toGenerator().unsafeGetGeneratorImpl())->host;
    }
    if (value.isTensor()) seen.push_back(value.toTensor());
    if (value.isTensorList()) for (const Tensor& one : value.toTensorVector()) seen.push_back(one);
    told = told || (schema.arguments()[i].name() == "dtype" && !value.isNone());
  }
  auto first = std::find_if(seen.begin(), seen.end(), is_narrow);
  bool mixed = std::any_of(seen.begin(), seen.end(), [](const Tensor& x) {
    return x.defined() && !is_narrow(x) && (x.is_floating_point() || x.is_complex());
  });
  if (first == seen.end() || told || keeps_its_bits(schema) || (mixed && !is_of_a_norm(schema))) {
    at::native::cpu_fallback(op, stack);
    return;
  }
  const auto narrow = first->scalar_type();
  Widened widened, changed;
  for (size_t i = 0; i < count; ++i) {
    auto& value = (*stack)[from + i];
    const auto* alias = schema.arguments()[i].alias_info();
    auto& kept = alias && alias->isWrite() ? changed : widened;
    if (value.isTensor()) value = kept.wide(value.toTensor());
    if (value.isTensorList()) {
      c10::List<Tensor> all;
      for (const Tensor& one : value.toTensorVector()) all.push_back(kept.wide(one));
      value = all;
    }
  }
  at::native::cpu_fallback(op, stack);
  changed.bring_back();
  const auto returns = schema.returns().size(), back = stack->size() - returns;
  for (size_t i = 0; i < returns; ++i) {
    auto& value = (*stack)[back + i];
    // What a norm keeps for its backward pass stays as it was computed.
    if (i && is_of_a_norm(schema) && schema.name().find("backward") == std::string::npos) continue;
    if (value.isTensor()) value = changed.narrow(value.toTensor(), narrow);
    if (value.isTensorList()) {
      c10::List<Tensor> all;
      for (const Tensor& one : value.toTensorVector()) all.push_back(changed.narrow(one, narrow));
      value = all;
    }
  }
}

// A copy of what is only marked as conjugate or negative is how that is resolved: it is not resolved for a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

// For these torch has compositions, step by step in 16 bits, where a device has no kernel of its own.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"silu_backward", "mish_backward", "native_layer_norm", "native_group_norm"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>());
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu>());
}

// What torch casts on CUDA, with PrivateUse1's macros.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

#define LOW(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FULL(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FULL_UNLESS_TOLD(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(LOW)
  AT_FORALL_FP32(FULL)
  AT_FORALL_FP32_SET_OPT_DTYPE(FULL_UNLESS_TOLD)
  AT_FORALL_PROMOTE(WIDEST)
}

}  // namespace
