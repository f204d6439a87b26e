// A host unit that wants cuda/std, as FlashMLA's and DeepGEMM's do. C linkage instead of torch's registry.
#include <cuda/std/utility>

#include <cstdint>

#include "tensors.h"

void tiny_scaled_fp4_mm_sm120(float *out, const uint32_t *a, const uint32_t *b, const uint32_t *scales);
void tiny_relu(float *values, int count);

extern "C" int tiny_kernel_call(const Tensor *tensor) {
  const auto size = cuda::std::pair<float *, int>{static_cast<float *>(tensor->data), tensor->count};
  tiny_relu(size.first, size.second);
  return 0;
}

extern "C" int tiny_kernel_fp4(float *out, const uint32_t *a, const uint32_t *b, const uint32_t *scales) {
  tiny_scaled_fp4_mm_sm120(out, a, b, scales);
  return 0;
}
